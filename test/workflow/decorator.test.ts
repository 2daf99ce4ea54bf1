import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, it, onTestFinished } from 'vitest'

const root = fileURLToPath(new URL('../..', import.meta.url))

it('decorator: functionTask wraps asynchronous methods, which keep their `this`', () => {
  // Inside of the repository, so that the compiled files find their packages.
  mkdirSync(join(root, 'node_modules/.cache'), { recursive: true })
  const outDir = mkdtempSync(join(root, 'node_modules/.cache/tutti-decorated-'))
  onTestFinished(() => rmSync(outDir, { recursive: true, force: true }))
  const compiler = join(root, 'node_modules/.bin/tsc')
  const fixture = 'test/workflow/fixtures/decorated.ts'
  const flags = ['--ignoreConfig', '--target', 'es2022', '--module', 'nodenext', '--skipLibCheck']
  const lib = 'es2024,esnext.disposable,esnext.promise'
  const rewrite = ['--rewriteRelativeImportExtensions', '--lib', lib, '--types', 'node']
  // Started as a process or thread, so that no import leads to it.
  const workers = 'src/backends/local/functions/worker-program.ts'
  const where = ['--rootDir', '.', '--outDir', outDir, fixture, workers]
  execFileSync(compiler, [...flags, ...rewrite, ...where], { cwd: root })
  const program = join(outDir, 'test/workflow/fixtures/decorated.js')
  const output = execFileSync(process.execPath, [program], { encoding: 'utf8' })
  expect(output).toBe('number: 40\na handle: true\nsimulate\n')
})

import { execFile } from 'node:child_process'
import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, it, onTestFinished } from 'vitest'

const root = fileURLToPath(new URL('../../', import.meta.url))
const run = promisify(execFile)

/** The code blocks of the recipe by the file name in their first line. */
function filesOf(markdown: string): ReadonlyMap<string, string> {
  const recipe = markdown.slice(markdown.indexOf('## Add a backend'))
  const blocks = recipe.matchAll(/^```ts\n\/\/ (\S+\.ts)\n(.*?)^```$/gms)
  return new Map(Array.from(blocks, ([, name = '', text = '']) => [name, text]))
}

/** A folder outside of the package, where the package is installed. */
function createProject(files: ReadonlyMap<string, string>): string {
  const folder = mkdtempSync(join(tmpdir(), 'tutti-own-backend-'))
  onTestFinished(() => rmSync(folder, { recursive: true }))
  mkdirSync(join(folder, 'node_modules/@types'), { recursive: true })
  symlinkSync(root, join(folder, 'node_modules/tutti'), 'dir')
  for (const name of ['@types/node', 'undici-types']) {
    symlinkSync(join(root, 'node_modules', name), join(folder, 'node_modules', name), 'dir')
  }
  cpSync(join(root, 'tsconfig.json'), join(folder, 'base.json'))
  const compilerOptions = { noEmit: false, outDir: 'out', skipLibCheck: false }
  const config = { extends: './base.json', compilerOptions, include: ['*.ts'] }
  writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify(config))
  writeFileSync(join(folder, 'package.json'), '{ "type": "module" }')
  for (const [name, text] of files) writeFileSync(join(folder, name), text)
  return folder
}

it('the backend of CONTRIBUTING compiles elsewhere and passes the contract', async () => {
  const files = filesOf(readFileSync(join(root, 'CONTRIBUTING.md'), 'utf8'))
  expect([...files.keys()]).toEqual(['loop-backend.ts', 'loop-backend.test.ts'])
  for (const text of files.values()) {
    const imported = Array.from(text.matchAll(/ from '([^']+)'/g), ([, name]) => name)
    expect(['node:os', 'node:test', 'tutti', 'tutti/testing', './loop-backend.ts']).toEqual(
      expect.arrayContaining(imported),
    )
  }
  const folder = createProject(files)
  const compiler = join(root, 'node_modules/typescript/bin/tsc')
  await run(process.execPath, [compiler, '-p', folder], { cwd: folder })
  const test = ['--test', '--test-reporter=tap', 'out/loop-backend.test.js']
  const { stdout } = await run(process.execPath, test, { cwd: folder })
  expect(stdout).toMatch(/^# pass (?:[1-9]\d)$/m)
  expect(stdout).toMatch(/^# fail 0$/m)
})

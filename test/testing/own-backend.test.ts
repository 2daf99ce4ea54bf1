import { execFile } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, it } from 'vitest'
import { compileOutside } from '../compile-outside.ts'

const root = fileURLToPath(new URL('../../', import.meta.url))
const run = promisify(execFile)

/** The code blocks of the recipe by the file name in their first line. */
function filesOf(markdown: string): ReadonlyMap<string, string> {
  const recipe = markdown.slice(markdown.indexOf('## Add a backend'))
  const blocks = recipe.matchAll(/^```ts\n\/\/ (\S+\.ts)\n(.*?)^```$/gms)
  return new Map(Array.from(blocks, ([, name = '', text = '']) => [name, text]))
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
  const folder = await compileOutside(files)
  const test = ['--test', '--test-reporter=tap', 'out/loop-backend.test.js']
  const { stdout } = await run(process.execPath, test, { cwd: folder })
  expect(stdout).toMatch(/^# pass (?:[1-9]\d)$/m)
  expect(stdout).toMatch(/^# fail 0$/m)
})

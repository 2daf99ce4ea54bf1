/** The setup script in a folder that looks like a clone, with programs that do next to nothing. */

import { execFileSync } from 'node:child_process'
import { cpSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, it, onTestFinished } from 'vitest'

const root = fileURLToPath(new URL('..', import.meta.url))

function createClone(): string {
  const folder = mkdtempSync(join(tmpdir(), 'tutti-setup-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  const write = (path: string, text: string): void => {
    mkdirSync(join(folder, path, '..'), { recursive: true })
    writeFileSync(join(folder, path), text, { mode: 0o755 })
  }
  for (const name of ['setup.mjs', 'step-progress.mjs']) {
    cpSync(join(root, 'scripts', name), join(folder, 'scripts', name))
  }
  const major = process.versions.node.split('.')[0]
  const devDependencies = { node: `${major}.0.0`, typescript: '1', rolldown: '1' }
  write('package.json', JSON.stringify({ devDependencies, exports: {} }))
  write('package-lock.json', JSON.stringify({ packages: {} }))
  write('src/index.ts', '')
  write('bin/npm', '#!/bin/sh\nexit 0\n')
  write('node_modules/.bin/tsc', '#!/bin/sh\nexit 0\n')
  symlinkSync(process.execPath, join(folder, 'node_modules/.bin/node'))
  const model = `fs.mkdirSync('.models'); fs.writeFileSync('.models/stories15M.gguf', '')`
  const main = `const fs = require('node:fs'); ${model}`
  write(
    'scripts/bundle.mjs',
    `import { mkdirSync, writeFileSync } from 'node:fs'
     mkdirSync('dist/cli', { recursive: true })
     writeFileSync('dist/cli/main.js', ${JSON.stringify(main)})`,
  )
  return folder
}

it('setup: a second start installs, builds and creates nothing', () => {
  const folder = createClone()
  const setup = (): string =>
    execFileSync('sh', ['-c', `"$0" scripts/setup.mjs --model 2>&1`, process.execPath], {
      cwd: folder,
      encoding: 'utf8',
      env: { ...process.env, PATH: `${join(folder, 'bin')}:${process.env['PATH']}` },
    })
  expect(setup()).toContain('creating the story model')
  expect(setup()).toBe('')
})

/**
 * Writes `docs/reference` from the types and comments of the entry points. With `--check` it writes
 * nothing, and fails if the files are out of date. The generator has its own package.json and lock
 * file, because typedoc needs an older TypeScript.
 */

import { spawnSync } from 'node:child_process'
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const generator = fileURLToPath(new URL('reference', import.meta.url))
const reference = fileURLToPath(new URL('../docs/reference', import.meta.url))

installGenerator()
if (process.argv.includes('--check')) check()
else generate(reference)

function installGenerator() {
  const wanted = readFileSync(join(generator, 'package-lock.json'), 'utf8')
  const stamp = join(generator, 'node_modules', '.installed-lock.json')
  if (existsSync(stamp) && readFileSync(stamp, 'utf8') === wanted) return
  run('npm', ['ci', '--no-audit', '--no-fund', '--silent'])
  writeFileSync(stamp, wanted)
}

function generate(folder) {
  run(process.execPath, [join('node_modules', 'typedoc', 'bin', 'typedoc'), '--out', folder])
}

function check() {
  const folder = mkdtempSync(join(tmpdir(), 'tutti-reference-'))
  try {
    generate(folder)
    const names = new Set([...readdirSync(folder), ...readdirSync(reference)])
    const stale = [...names].filter((name) => textOf(folder, name) !== textOf(reference, name))
    if (stale.length === 0) return
    process.stderr.write(`stale in docs/reference: ${stale.join(', ')}; run: npm run reference\n`)
    process.exitCode = 1
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

function textOf(folder, name) {
  const path = join(folder, name)
  return existsSync(path) ? readFileSync(path, 'utf8') : undefined
}

/** Runs a command. If it fails and has printed its error, exits with its code. */
function run(command, args) {
  const { status } = spawnSync(command, args, {
    cwd: generator,
    stdio: ['ignore', 'inherit', 'inherit'],
  })
  if (status !== 0) process.exit(status ?? 1)
}

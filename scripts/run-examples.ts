/** Runs every example with the built package and compares its output with its last comment. */

import { spawnSync } from 'node:child_process'
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expectedOutput, firstDifference } from './example-output.ts'

const maxRunMs = 120_000

const folder = fileURLToPath(new URL('../examples', import.meta.url))
const examples = readdirSync(folder).filter((name) => name.endsWith('.ts'))
const problems = examples.flatMap((name) => {
  const problem = problemOf(join(folder, name))
  process.stdout.write(`${problem === undefined ? 'ok    ' : 'FAILED'} examples/${name}\n`)
  return problem === undefined ? [] : [`examples/${name}: ${problem}`]
})

process.stdout.write(problems.map((problem) => `\n${problem}\n`).join(''))
process.stdout.write(`${examples.length - problems.length} passed, ${problems.length} failed\n`)
process.exitCode = problems.length === 0 && examples.length > 0 ? 0 : 1

function problemOf(file: string): string | undefined {
  const expected = expectedOutput(readFileSync(file, 'utf8'))
  if (expected === undefined) return 'does not end with an "// Output:" comment'
  // Runs in a temporary folder, so that the files of the example are removed.
  const cwd = mkdtempSync(join(tmpdir(), 'tutti-example-'))
  try {
    const { status, signal, stdout, stderr } = spawnSync(process.execPath, [file], {
      cwd,
      encoding: 'utf8',
      env: { ...process.env, NO_COLOR: '1' },
      stdio: ['ignore', 'pipe', 'pipe'],
      timeout: maxRunMs,
      killSignal: 'SIGKILL',
    })
    const end = signal === null ? `exit code ${status}` : `ended by ${signal}`
    if (status !== 0) return `${end}\n${stdout}${stderr}`
    return firstDifference(expected, stdout)
  } finally {
    rmSync(cwd, { recursive: true, force: true })
  }
}

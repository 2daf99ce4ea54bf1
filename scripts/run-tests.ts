/**
 * `npm run test:quick`: the test files that start no processes, for fast feedback. `npm run
 * test:loaded`: the others, each ten times beside busy processes, to find tests that depend on a
 * fast machine. A loaded run takes hours; it can be stopped and continued, as long as the code does
 * not change. `--fresh` starts over.
 */

import { spawn, spawnSync, type ChildProcess } from 'node:child_process'
import { createHash } from 'node:crypto'
import { appendFileSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import { isQuick, startsSomething, testFiles } from './test-selection.ts'

const rounds = 10
/** Four busy processes per core: eight on two cores, the smallest supported machine. */
const busyProcesses = 4 * Math.max(2, availableParallelism())
const stateFolder = 'node_modules/.cache/tutti'
const vitest = 'node_modules/vitest/vitest.mjs'

interface Result {
  readonly file: string
  readonly isOk: boolean
}

function runQuick(): void {
  const files = testFiles().filter(isQuick)
  process.exitCode =
    spawnSync(process.execPath, [vitest, 'run', '--maxWorkers=100%', ...files], {
      stdio: 'inherit',
    }).status ?? 1
}

function runLoaded(isFresh: boolean): void {
  const results = join(stateFolder, `loaded-${digestOfCode()}.jsonl`)
  mkdirSync(stateFolder, { recursive: true })
  if (isFresh) rmSync(results, { force: true })
  const files = testFiles().filter((file) => startsSomething(file))
  const busy = startBusyProcesses()
  try {
    for (let round = 1; round <= rounds; round++) runRound(round, files, results)
  } finally {
    for (const child of busy) child.kill('SIGKILL')
  }
  const all = readResults(results)
  const failed = all.filter(({ isOk }) => !isOk)
  for (const { file } of failed) process.stdout.write(`failed under load: ${file}\n`)
  process.stdout.write(`${all.length - failed.length} passed, ${failed.length} failed\n`)
  process.exitCode = failed.length === 0 ? 0 : 1
}

/** Runs each file that has fewer than `round` results; the reporter records each result. */
function runRound(round: number, files: readonly string[], results: string): void {
  const runs = Map.groupBy(readResults(results), ({ file }) => file)
  const due = files.filter((file) => (runs.get(file)?.length ?? 0) < round)
  if (due.length === 0) return
  const seed = Math.floor(Math.random() * 2 ** 31)
  const where = `round ${round} of ${rounds}, ${due.length} of ${files.length} files`
  process.stdout.write(
    `\n== ${where}, beside ${busyProcesses} busy processes, TUTTI_SEED=${seed}\n`,
  )
  // With as many files at a time as busy processes, the tests get half of the machine.
  const workers = `--maxWorkers=${busyProcesses}`
  const { signal } = spawnSync(process.execPath, [vitest, 'run', workers, ...due], {
    stdio: 'inherit',
    env: { ...process.env, TUTTI_SEED: String(seed), TUTTI_LOADED_RESULTS: results },
  })
  if (signal !== null) throw new Error(`stopped by ${signal}; run again to continue`)
  // A file without a result, because its vitest worker crashed, counts as failed.
  const ended = Map.groupBy(readResults(results), ({ file }) => file)
  const lost = due.filter((file) => (ended.get(file)?.length ?? 0) < round)
  for (const file of lost) {
    appendFileSync(results, `${JSON.stringify({ file, isOk: false } satisfies Result)}\n`)
  }
}

/** Keeps a core busy, and ends with this process, when its standard input closes. */
const burn = `
process.stdin.resume().on('end', () => process.exit())
setInterval(() => { const until = Date.now() + 50; while (Date.now() < until); }, 1)
`

function startBusyProcesses(): ChildProcess[] {
  return Array.from({ length: busyProcesses }, () =>
    spawn(process.execPath, ['-e', burn], { stdio: ['pipe', 'ignore', 'inherit'] }),
  )
}

function readResults(path: string): Result[] {
  if (!existsSync(path)) return []
  const lines = readFileSync(path, 'utf8').split('\n')
  return lines.filter((line) => line !== '').map((line) => JSON.parse(line) as Result)
}

/** Returns a hash of every file that test results depend on. */
function digestOfCode(): string {
  const hash = createHash('sha256')
  for (const folder of ['src', 'test', 'scripts']) {
    const entries = readdirSync(folder, { recursive: true, withFileTypes: true })
    const paths = entries
      .filter((entry) => entry.isFile())
      .map(({ parentPath, name }) => join(parentPath, name))
    for (const path of [...paths.toSorted(), 'package-lock.json', 'vitest.config.ts']) {
      hash.update(`${path}\0`).update(readFileSync(path)).update('\0')
    }
  }
  return hash.digest('hex').slice(0, 16)
}

const [mode, ...flags] = process.argv.slice(2)
if (mode === 'quick') runQuick()
else if (mode === 'loaded') runLoaded(flags.includes('--fresh'))
else throw new Error(`expected "quick" or "loaded", got "${mode}"`)

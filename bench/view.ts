/**
 * The cost of reading a record: all panels compared with splitting the file and parsing each line,
 * in CPU time and memory, and the same from a snapshot. Every run is a separate process; runs are
 * interleaved and medians compared. The record of a million tasks takes 2.7 GB in the temporary
 * folder while it runs; `TASKS=100000` is enough for the ratio.
 */

import { mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { command, measureProcesses, type Usage } from './command-usage.ts'
import { measureModes, table } from './harness.ts'
import type { modes } from './view-modes.ts'

const runs = Number(process.env['RUNS'] ?? 3)
const tasks = Number((process.env['TASKS'] ??= '1000000'))
const program = new URL('view-modes.ts', import.meta.url)

const folder = mkdtempSync(join(tmpdir(), 'tutti-view-'))
process.env['RECORD_FOLDER'] = folder
try {
  measureModes(program, ['write'], 1)
  reportViews()
  reportCommands()
} finally {
  rmSync(folder, { recursive: true })
}

function reportViews(): void {
  const names: readonly (keyof typeof modes)[] = ['idle', 'parse', 'views', 'bounds', 'again']
  const measured = measureModes(program, names, runs)
  const of = (name: keyof typeof modes, key = 'cpu'): number => measured(name, key)
  const row = (what: string, name: keyof typeof modes) => [
    what,
    of(name).toFixed(2),
    `${(of(name) / of('parse')).toFixed(2)} x`,
    Math.round(of(name, 'rss') - of('idle', 'rss')),
  ]
  table(
    [`a record of ${tasks.toLocaleString('en')} tasks`, 's CPU', 'ratio', 'MB above idle'],
    [
      row('splitting, `JSON.parse` of every line', 'parse'),
      row('all panels', 'views'),
      row('all panels, and what bounded the run', 'bounds'),
      row('all panels from the snapshot', 'again'),
    ],
  )
}

function ratio(one: Usage, base: Usage): string {
  return `${(one.cpu / base.cpu).toFixed(2)} x`
}

/** Measures whole processes, including the start of Node. */
function reportCommands(): void {
  const path = join(folder, readdirSync(folder).find((name) => name.endsWith('.jsonl')) ?? '')
  const idle = reportReaders(path)
  rmSync(`${path}.view`)
  reportOthers(path, idle)
}

/** Measures commands that read a snapshot. Returns the memory of an idle process. */
function reportReaders(path: string): number {
  const view = JSON.stringify(`${path}.view`)
  const { idle, file, read, status, list, failures, explain } = measureProcesses(
    {
      idle: ['-e', '0'],
      file: ['-e', `require('node:fs').readFileSync(${view})`],
      read: [fileURLToPath(new URL('fixtures/read-snapshot.mjs', import.meta.url)), `${path}.view`],
      status: [command, 'status', path],
      list: [command, 'tasks', path, '--state', 'FAILED'],
      failures: [command, 'failures', path],
      explain: [command, 'explain', 'task.000007', path],
    },
    runs,
  )
  const row = (what: string, one: Usage) => [
    what,
    one.cpu.toFixed(2),
    ratio(one, file),
    ratio(one, read),
    Math.round(one.rss - idle.rss),
  ]
  process.stdout.write('\n')
  table(
    ['whole processes', 's CPU', 'ratio to bytes', 'ratio to states', 'MB above idle at most'],
    [
      row('`node` that reads the bytes of the snapshot', file),
      row('`node` that reads the states of the snapshot', read),
      row('`tutti status` with a snapshot', status),
      row('`tutti tasks`', list),
      row('`tutti failures`', failures),
      row('`tutti explain`', explain),
    ],
  )
  return idle.rss
}

function reportOthers(path: string, idle: number): void {
  const parseProgram = fileURLToPath(new URL('view-modes.ts', import.meta.url))
  const whole = measureProcesses(
    {
      parse: [parseProgram, 'parse'],
      report: [command, 'report', path, '-o', join(folder, 'report.html')],
    },
    runs,
  )
  const commander = fileURLToPath(new URL('fixtures/import-commander.mjs', import.meta.url))
  const start = measureProcesses({ commander: [commander], help: [command, '--help'] }, 5 * runs)
  const row = (what: string, one: Usage, base: Usage) => [
    what,
    one.cpu.toFixed(2),
    ratio(one, base),
    Math.round(one.rss - idle),
  ]
  process.stdout.write('\n')
  table(
    ['whole processes', 's CPU', 'ratio', 'MB above idle at most'],
    [
      row('splitting, `JSON.parse` of every line', whole.parse, whole.parse),
      row('`tutti report`', whole.report, whole.parse),
      row('`node` that imports commander', start.commander, start.commander),
      row('`tutti --help`', start.help, start.commander),
    ],
  )
}

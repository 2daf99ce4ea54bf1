/**
 * What does reading a record cost? All panels against splitting the file and parsing each line, in
 * CPU time and memory, and the same from a snapshot. Every run is a process of its own; runs are
 * interleaved and medians compared. The record of a million tasks takes 2.7 GB in the temporary
 * folder while it runs; `TASKS=100000` is enough for the ratio.
 */

import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { measureModes, table } from './harness.ts'
import type { modes } from './view-modes.ts'

const runs = Number(process.env['RUNS'] ?? 3)
const tasks = Number((process.env['TASKS'] ??= '1000000'))
const program = new URL('view-modes.ts', import.meta.url)

const folder = mkdtempSync(join(tmpdir(), 'tutti-view-'))
process.env['RECORD_FOLDER'] = folder
try {
  measureModes(program, ['write'], 1)
  report()
} finally {
  rmSync(folder, { recursive: true })
}

function report(): void {
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

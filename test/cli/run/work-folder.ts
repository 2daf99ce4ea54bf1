/** A folder in which a test runs the command, as a person would. */

import { mkdtempSync, readdirSync, readFileSync, realpathSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { onTestFinished } from 'vitest'
import { type CommandEnd, runHere, startCommandIn } from '../run-command.ts'

/** The build starts in half the CPU time of the sources. */
export const library = new URL('../../../dist/index.js', import.meta.url).href
export const script = fileURLToPath(new URL('../fixtures/resumable-script.ts', import.meta.url))

export function workFolder(): string {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), 'tutti-run-test-')))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  return folder
}

/** Runs the command in a folder, as a person would. */
export const tutti = (cwd: string, ...args: readonly string[]): Promise<CommandEnd> =>
  startCommandIn(cwd, args).ended

/** The same in this process: for commands that start no script and get no signal. */
export const tuttiHere = (cwd: string, ...args: readonly string[]): Promise<CommandEnd> =>
  runHere(cwd, args)

export const linesOf = (file: string): string[] => readFileSync(file, 'utf8').trimEnd().split('\n')

/** The only record in the folder's `telemetry`, or the one of so many that was written last. */
export function recordIn(folder: string): string {
  const names = readdirSync(join(folder, 'telemetry')).filter((name) => name.endsWith('.jsonl'))
  const files = names.map((name) => join(folder, 'telemetry', name))
  const [latest] = files.toSorted((a, b) => statSync(b).mtimeMs - statSync(a).mtimeMs)
  if (latest === undefined) throw new Error('no record')
  return latest
}

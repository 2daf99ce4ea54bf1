/** A folder in which a test runs the command, as a person would. */

import { spawn } from 'node:child_process'
import { mkdtempSync, readdirSync, readFileSync, realpathSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { onTestFinished } from 'vitest'
import { type CommandEnd, watch } from '../run-command.ts'

export const main = fileURLToPath(new URL('../../../src/cli/main.ts', import.meta.url))
export const library = new URL('../../../src/index.ts', import.meta.url).href
export const script = fileURLToPath(new URL('../fixtures/resumable-script.ts', import.meta.url))

export function workFolder(): string {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), 'tutti-run-test-')))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  return folder
}

/** Runs the command in a folder, as a person would. */
export const tutti = (cwd: string, ...args: readonly string[]): Promise<CommandEnd> =>
  watch(spawn(process.execPath, [main, ...args], { cwd })).ended

export const linesOf = (file: string): string[] => readFileSync(file, 'utf8').trimEnd().split('\n')

/** The only record in the folder's `telemetry`, or the one of so many that was written last. */
export function recordIn(folder: string): string {
  const names = readdirSync(join(folder, 'telemetry')).filter((name) => name.endsWith('.jsonl'))
  const files = names.map((name) => join(folder, 'telemetry', name))
  const [latest] = files.toSorted((a, b) => statSync(b).mtimeMs - statSync(a).mtimeMs)
  if (latest === undefined) throw new Error('no record')
  return latest
}

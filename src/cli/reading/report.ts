/** `tutti report`: writes an HTML page about one run, or a comparison of two runs. */

import { spawn } from 'node:child_process'
import { basename, resolve } from 'node:path'
import { parseRecordPath } from '../../checkpoint/record-names.ts'
import { messageOf, ValueError } from '../../foundation/errors.ts'
import { definedFields } from '../../foundation/options.ts'
import { findRecord, isNotARecord, notARecordError } from '../../record/find-record.ts'
import type { RecordViews } from '../../record/record-views.ts'
import { compareRuns, makeReport } from '../../report/report.ts'
import { exitCodes } from '../exit.ts'
import type { Output } from '../output.ts'
import { RecordWriters } from './record-writer.ts'
import { expectNoRecord, isStandardOutput, writeOutputFile } from './output-file.ts'
import { withReadingProgress } from './open-record.ts'

export interface ReportCommandOptions {
  /** The file to write. `-` means standard output. */
  readonly output?: string
  readonly open?: boolean
  readonly scope?: string
}

export async function writeReport(
  source: string,
  other: string | undefined,
  options: ReportCommandOptions,
  output: Output,
): Promise<number> {
  if (options.open === true) expectTerminal(options, output)
  const path = await findRecord(source)
  const second = other === undefined ? null : await findRecord(other)
  const target = options.output ?? defaultPath(path, second)
  const isPrinted = isStandardOutput(target)
  if (!isPrinted) await expectNoRecord(target, second === null ? [path] : [path, second])
  const writers = new RecordWriters()
  const pieces = await withReadingProgress(output, (followed) => {
    const how = { ...followed, writers, expectRecord, ...definedFields({ scope: options.scope }) }
    return second === null ? makeReport(path, how) : compareRuns(path, second, how)
  })
  if (isPrinted) {
    for (const piece of pieces) await output.write(piece)
    return exitCodes.ok
  }
  const bytes = await writeOutputFile(target, pieces)
  output.result({ path: target, bytes }, [`report  ${target}`])
  const problem = options.open === true ? await openFile(resolve(target)) : null
  if (problem !== null) output.problem(`the report is not opened: ${problem}`)
  return exitCodes.ok
}

/**
 * Throws if the file is not a record. Accepts any file with the name of a record, even if no line
 * of it can be read.
 */
function expectRecord(path: string, views: RecordViews): void {
  if (parseRecordPath(path) === null && isNotARecord(path, views)) throw notARecordError(path)
}

function expectTerminal({ output: target }: ReportCommandOptions, output: Output): void {
  const field = '--open'
  if (target === '-') throw new ValueError('--open needs a file, not -o -', { field })
  if (output.isTerminal) return
  throw new ValueError('--open needs a terminal', {
    field,
    hint: 'Without it, the path of the report is printed.',
  })
}

/** Returns a path in the working folder, because the record's folder may be read-only. */
function defaultPath(path: string, second: string | null): string {
  const stem = (file: string): string =>
    basename(file).replace(/(?:\.\d+(?:-\d+)?)?\.telemetry\.jsonl(?:\.zst)?$/, '')
  const name = second === null ? stem(path) : `${stem(path)}-${stem(second)}`
  return `${name}.report.html`
}

function openCommand(path: string): readonly [command: string, ...args: string[]] {
  if (process.platform === 'darwin') return ['open', path]
  // `start` takes the first quoted argument as a window title.
  if (process.platform === 'win32') return ['cmd', '/c', 'start', '""', path]
  return ['xdg-open', path]
}

/** Resolves with `null` when the program has started, or with the reason why it has not. */
function openFile(path: string): Promise<string | null> {
  const [command, ...args] = openCommand(path)
  return new Promise((settle) => {
    const child = spawn(command, args, { stdio: 'ignore', detached: true })
    child.once('error', (error) => settle(`${command}: ${messageOf(error)}`))
    child.once('spawn', () => settle(null))
    child.unref()
  })
}

/** `tutti report`: one page about a run, or about two of them, for a browser and for paper. */

import { type FileHandle, open, rename, rm } from 'node:fs/promises'
import { basename, dirname, join, resolve } from 'node:path'
import { messageOf, TuttiError, ValueError } from '../../foundation/errors.ts'
import { findRecord } from '../../record/find-record.ts'
import { compareRuns, makeReport } from '../../report/report.ts'
import { exitCodes } from '../exit.ts'
import type { Output } from '../output.ts'
import { openFile } from './open-file.ts'

export interface ReportCommandOptions {
  /** `-`: the standard output. */
  readonly output?: string
  /** Shows it in the browser. */
  readonly open?: boolean
}

export async function writeReport(
  what: string,
  other: string | undefined,
  options: ReportCommandOptions,
  output: Output,
): Promise<number> {
  if (options.open === true) expectPerson(options, output)
  const path = await findRecord(what)
  const second = other === undefined ? null : await findRecord(other)
  const signal = output.closed
  const pieces =
    second === null
      ? await makeReport(path, { signal })
      : await compareRuns(path, second, { signal })
  const target = options.output ?? defaultPath(path, second)
  if (target === '-') {
    for (const piece of pieces) await output.write(piece)
    return exitCodes.ok
  }
  const bytes = await writePieces(target, pieces)
  output.result({ path: target, bytes }, [`report  ${target}`])
  const problem = options.open === true ? await openFile(resolve(target)) : null
  if (problem !== null) output.problem(`the report is not opened: ${problem}`)
  return exitCodes.ok
}

/** A browser belongs to somebody who sits there, and needs a file. */
function expectPerson({ output: target }: ReportCommandOptions, output: Output): void {
  const field = '--open'
  if (target === '-') throw new ValueError('--open needs a file, not -o -', { field })
  if (output.isTerminal) return
  throw new ValueError('--open needs a terminal', {
    field,
    hint: 'Without it, the path of the report is printed.',
  })
}

/** In the working folder: that of the record may not be writable. */
function defaultPath(path: string, second: string | null): string {
  const stem = (file: string): string =>
    basename(file).replace(/(?:\.\d+(?:-\d+)?)?\.telemetry\.jsonl(?:\.zst)?$/, '')
  const name = second === null ? stem(path) : `${stem(path)}-${stem(second)}`
  return `${name}.report.html`
}

/** The file appears when it is complete. */
export async function writePieces(
  path: string,
  pieces: Iterable<string | Uint8Array> | AsyncIterable<string | Uint8Array>,
): Promise<number> {
  const draft = join(dirname(path), `.${basename(path)}.${process.pid}.tmp`)
  try {
    const file = await open(draft, 'w')
    let bytes = 0
    try {
      for await (const piece of pieces) bytes += await append(file, piece)
    } finally {
      await file.close()
    }
    await rename(draft, path)
    return bytes
  } catch (error) {
    await rm(draft, { force: true }).catch(() => undefined)
    if (TuttiError.isInstance(error)) throw error
    throw new TuttiError(`cannot write ${path}: ${messageOf(error)}`, {
      code: 'OutputFileError',
      cause: error,
      hint: 'The folder must exist and be writable.',
    })
  }
}

async function append(file: FileHandle, piece: string | Uint8Array): Promise<number> {
  await file.appendFile(piece)
  return Buffer.byteLength(piece)
}

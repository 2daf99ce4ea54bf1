/** The output file of a command (`-o`), which is never an input file or a record. */

import { fstatSync, lstatSync, realpathSync, type Stats } from 'node:fs'
import { type FileHandle, open, rename, rm } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { findChain, readSessionStart } from '../../checkpoint/chain.ts'
import { messageOf, TuttiError, ValueError } from '../../foundation/errors.ts'
import { statOf } from '../../foundation/regular-file.ts'
import { isDiskError } from '../exit.ts'

export type Pieces =
  | Iterable<string | Uint8Array>
  | AsyncIterable<string | Uint8Array, void, undefined>

/** Whether the target is `-` or another name of standard output, such as `/dev/stdout`. */
export function isStandardOutput(target: string): boolean {
  if (target === '-') return true
  const found = statOf(target)
  return found !== null && isSame(found, fstatSync(1))
}

/**
 * Throws a `ValueError` when writing to `target` would destroy one of `records`, which the command
 * reads, or another record. Rejects when one of `records` cannot be read.
 */
export async function expectNoRecord(target: string, records: readonly string[]): Promise<void> {
  const chains = await Promise.all(records.map(async (record) => await findChain(record)))
  const found = statOf(target)
  const read = chains.flatMap(({ files }) => files).map(statOf)
  if (found !== null && read.some((one) => one !== null && isSame(one, found))) {
    throw refusal(target, `${target} is read by this command`)
  }
  const isNamedSo = recordNames.test(basename(found === null ? target : realPathOf(target)))
  if (isNamedSo || recordNames.test(basename(target))) {
    throw refusal(target, `${target} has the name of a record`)
  }
  if (found?.isFile() === true && (await readSessionStart(target)) !== null) {
    throw refusal(target, `${target} is a record`)
  }
}

/** Matches the file names of records, and of their results and commands. */
const recordNames = /\.telemetry\.jsonl(?:\.zst)?$|\.\d+(?:-\d+)?\.(?:results|run)$/

const refusal = (target: string, message: string): ValueError =>
  new ValueError(message, {
    code: 'OutputIsRecordError',
    field: '--output',
    got: target,
    hint: 'Name another file with -o.',
  })

/**
 * Returns the number of bytes written. A regular file is created or replaced only when complete;
 * symbolic links to it are kept. A device or pipe gets each piece immediately.
 */
export async function writePieces(target: string, pieces: Pieces): Promise<number> {
  try {
    if (isWrittenInPlace(target)) return await writeTo(target, pieces)
    return await replace(realPathOf(target), pieces)
  } catch (error) {
    if (TuttiError.isInstance(error)) throw error
    throw new TuttiError(`cannot write ${target}: ${messageOf(error)}`, {
      code: 'OutputFileError',
      cause: error,
      hint: isDiskError(error)
        ? 'Free some space, or name a file on another disk with -o.'
        : 'The folder must exist and be writable.',
    })
  }
}

/** True for anything that exists and is not a regular file, and for a dangling symbolic link. */
function isWrittenInPlace(target: string): boolean {
  const found = statOf(target)
  if (found !== null) return !found.isFile()
  return lstatSync(target, { throwIfNoEntry: false })?.isSymbolicLink() ?? false
}

async function replace(path: string, pieces: Pieces): Promise<number> {
  const draft = join(dirname(path), `.${basename(path)}.${process.pid}.tmp`)
  try {
    const bytes = await writeTo(draft, pieces)
    await rename(draft, path)
    return bytes
  } catch (error) {
    await rm(draft, { force: true }).catch(() => undefined)
    throw error
  }
}

async function writeTo(path: string, pieces: Pieces): Promise<number> {
  const file = await open(path, 'w')
  let bytes = 0
  try {
    for await (const piece of pieces) bytes += await append(file, piece)
  } finally {
    await file.close()
  }
  return bytes
}

async function append(file: FileHandle, piece: string | Uint8Array): Promise<number> {
  await file.appendFile(piece)
  return Buffer.byteLength(piece)
}

const isSame = (a: Stats, b: Stats): boolean => a.dev === b.dev && a.ino === b.ino

/** Returns `path` unchanged if it does not exist. */
function realPathOf(path: string): string {
  try {
    return realpathSync(path)
  } catch {
    return path
  }
}

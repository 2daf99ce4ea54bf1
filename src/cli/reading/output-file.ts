/** The output file of a command (`-o`), which is never an input file or a record. */

import { fstatSync, lstatSync, realpathSync, type Stats } from 'node:fs'
import { open, rename, rm } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { findChain, readSessionStart } from '../../checkpoint/chain.ts'
import { messageOf, TuttiError, ValueError } from '../../foundation/errors.ts'
import { statOf } from '../../foundation/regular-file.ts'
import { isDiskError } from '../exit.ts'

export type Chunks =
  | Iterable<string | Uint8Array>
  | AsyncIterable<string | Uint8Array, void, undefined>

/** Whether the target is `-`, or a path of standard output such as `/dev/stdout`. */
export function isStandardOutput(target: string): boolean {
  if (target === '-') return true
  const found = statOf(target)
  return found !== null && isSameFile(found, fstatSync(1))
}

/** Rejects with a `ValueError` if writing to `target` would destroy a record. */
export async function expectNoRecord(target: string, records: readonly string[]): Promise<void> {
  const chains = await Promise.all(records.map(async (record) => await findChain(record)))
  const found = statOf(target)
  const read = chains.flatMap(({ files }) => files).map(statOf)
  if (found !== null && read.some((one) => one !== null && isSameFile(one, found))) {
    throw outputIsRecordError(target, `${target} is read by this command`)
  }
  const isNamedSo = recordNames.test(basename(found === null ? target : realPathOf(target)))
  if (isNamedSo || recordNames.test(basename(target))) {
    throw outputIsRecordError(target, `${target} has the name of a record`)
  }
  if (found?.isFile() === true && (await readSessionStart(target)) !== null) {
    throw outputIsRecordError(target, `${target} is a record`)
  }
}

const recordNames = /\.telemetry\.jsonl(?:\.zst)?$|\.\d+(?:-\d+)?\.(?:results|run)$/

const outputIsRecordError = (target: string, message: string): ValueError =>
  new ValueError(message, {
    code: 'OutputIsRecordError',
    field: '--output',
    got: target,
    hint: 'Name another file with -o.',
  })

/**
 * Writes the output and resolves with the number of bytes. Replaces a regular file only when
 * everything is written, and keeps symbolic links to it. Writes directly to a device or pipe.
 */
export async function writeOutputFile(target: string, pieces: Chunks): Promise<number> {
  try {
    if (isWrittenInPlace(target)) return await writeChunks(target, pieces)
    return await replaceFile(realPathOf(target), pieces)
  } catch (error) {
    if (TuttiError.isInstance(error)) throw error
    // The path in the message may be that of a temporary file.
    const reason = messageOf(error).replace(/, \w+ '[^]*$/, '')
    throw new TuttiError(`cannot write ${target}: ${reason}`, {
      code: 'OutputFileError',
      cause: error,
      hint: isDiskError(error)
        ? 'Free some space, or name a file on another disk with -o.'
        : statOf(target)?.isDirectory() === true
          ? 'Name a file with -o, not a folder.'
          : 'The folder must exist and be writable.',
    })
  }
}

/** Whether the target is a device or pipe, or a symbolic link to a missing file. */
function isWrittenInPlace(target: string): boolean {
  const found = statOf(target)
  if (found !== null) return !found.isFile()
  return lstatSync(target, { throwIfNoEntry: false })?.isSymbolicLink() ?? false
}

async function replaceFile(path: string, pieces: Chunks): Promise<number> {
  const draft = join(dirname(path), `.${basename(path)}.${process.pid}.tmp`)
  try {
    const bytes = await writeChunks(draft, pieces)
    await rename(draft, path)
    return bytes
  } catch (error) {
    await rm(draft, { force: true }).catch(() => undefined)
    throw error
  }
}

async function writeChunks(path: string, pieces: Chunks): Promise<number> {
  const file = await open(path, 'w')
  let bytes = 0
  try {
    for await (const piece of pieces) {
      await file.appendFile(piece)
      bytes += Buffer.byteLength(piece)
    }
  } finally {
    await file.close()
  }
  return bytes
}

const isSameFile = (a: Stats, b: Stats): boolean => a.dev === b.dev && a.ino === b.ino

function realPathOf(path: string): string {
  try {
    return realpathSync(path)
  } catch {
    return path
  }
}

/** Copies the readable lines of a damaged record into a new file; the record is not changed. */

import { existsSync } from 'node:fs'
import { type FileHandle, lstat, open, rename, rm } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { CheckpointError } from '../foundation/errors.ts'
import { checkpointFailure } from './files.ts'
import { parseLine } from './format.ts'
import { type BadLine, readBatches, type ReadOptions } from './reader.ts'

export interface RepairedRecord {
  readonly path: string
  readonly bytes: number
  /** The number of copied lines. */
  readonly kept: number
  /** The number of copied lines from which leading NUL bytes were removed. */
  readonly mended: number
  /** The number of lines that were left out. */
  readonly dropped: number
  /** The first few dropped lines. */
  readonly problems: readonly BadLine[]
}

const maxProblems = 100
const pieceBytes = 262_144

/**
 * Copies every readable line into `….repaired.telemetry.jsonl` next to the record, unchanged except
 * for leading NUL bytes, which a machine crash may leave. Never overwrites a file. Rejects with
 * `CheckpointError`.
 */
export async function repairRecord(
  path: string,
  options: Pick<ReadOptions, 'signal' | 'onRead'> = {},
): Promise<RepairedRecord> {
  const target = repairedPathOf(path)
  const draft = `${target}.${process.pid}.tmp`
  try {
    const file = await open(draft, 'wx')
    try {
      const found = await copyLines(path, file, options)
      await file.sync()
      await nameIt(draft, target)
      return { path: target, ...found }
    } finally {
      await file.close()
    }
  } catch (error) {
    await rm(draft, { force: true }).catch(() => undefined)
    throw checkpointFailure('repair the record', path, error)
  }
}

/** The repaired copy next to a record; `null` if there is none. */
export function findRepaired(path: string): string | null {
  const copy = repairedPathOf(path)
  return copy !== path && existsSync(copy) ? copy : null
}

function repairedPathOf(path: string): string {
  const stem = basename(path).replace(/(?:\.telemetry)?\.jsonl(?:\.zst)?$/, '')
  return join(dirname(path), `${stem}.repaired.telemetry.jsonl`)
}

async function nameIt(draft: string, target: string): Promise<void> {
  const existing = await lstat(target).catch(() => null)
  if (existing !== null) {
    const hint = 'Remove it first, if it is no longer needed.'
    throw new CheckpointError(`${target} exists already`, { path: target, errno: 'EEXIST', hint })
  }
  await rename(draft, target)
}

async function copyLines(
  path: string,
  file: FileHandle,
  options: Pick<ReadOptions, 'signal' | 'onRead'>,
): Promise<Omit<RepairedRecord, 'path'>> {
  const found = { bytes: 0, kept: 0, mended: 0, dropped: 0, problems: [] as BadLine[] }
  let piece = ''
  const batches = readBatches(path, {
    ...options,
    onText(text, position, problem) {
      const good = problem === null ? text : mend(text)
      if (good !== null) {
        piece += `${good}\n`
        found.kept++
        if (problem !== null) found.mended++
        return
      }
      found.dropped++
      const bad = { ...position, reason: problem ?? '' }
      if (found.problems.length < maxProblems) found.problems.push(bad)
    },
  })
  for await (const _ of batches) {
    if (piece.length < pieceBytes) continue
    await file.appendFile(piece)
    found.bytes += Buffer.byteLength(piece)
    piece = ''
  }
  await file.appendFile(piece)
  found.bytes += Buffer.byteLength(piece)
  return found
}

/** A power loss may leave NUL bytes before a complete line. */
function mend(text: string | null): string | null {
  const rest = text?.replace(/^\0+/, '') ?? ''
  const { kind } = parseLine(rest)
  return kind === 'line' || kind === 'unknown' ? rest : null
}

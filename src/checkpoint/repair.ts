/** Copies the readable lines of a damaged record into a new file. */

import { existsSync } from 'node:fs'
import type { FileHandle } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { writeCopy } from './files.ts'
import { parseLine } from './format.ts'
import { type BadLine, readBatches, type ReadOptions } from './reader.ts'

export interface RepairedRecord {
  readonly path: string
  readonly bytes: number
  readonly kept: number
  /** The number of copied lines from which leading NUL bytes were removed. */
  readonly mended: number
  readonly dropped: number
  /** The first few omitted lines. */
  readonly problems: readonly BadLine[]
}

const maxProblems = 100
const chunkLength = 262_144

/**
 * Copies every readable line into `….repaired.telemetry.jsonl` next to the record. Removes leading
 * NUL bytes, which a crash may leave. Never overwrites a file. Rejects with `CheckpointError`.
 */
export async function repairRecord(
  path: string,
  options: Pick<ReadOptions, 'signal' | 'onRead'> = {},
): Promise<RepairedRecord> {
  const target = repairedPathOf(path)
  return writeCopy({ action: 'repair the record', path, target }, async (file) => ({
    path: target,
    ...(await copyLines(path, file, options)),
  }))
}

/** Returns the repaired copy next to a record; `null` if there is none. */
export function findRepaired(path: string): string | null {
  const copy = repairedPathOf(path)
  return copy !== path && existsSync(copy) ? copy : null
}

function repairedPathOf(path: string): string {
  const stem = basename(path).replace(/(?:\.telemetry)?\.jsonl(?:\.zst)?$/, '')
  return join(dirname(path), `${stem}.repaired.telemetry.jsonl`)
}

async function copyLines(
  path: string,
  file: FileHandle,
  options: Pick<ReadOptions, 'signal' | 'onRead'>,
): Promise<Omit<RepairedRecord, 'path'>> {
  const found = { bytes: 0, kept: 0, mended: 0, dropped: 0, problems: [] as BadLine[] }
  let chunk = ''
  const flush = async (): Promise<void> => {
    await file.appendFile(chunk)
    found.bytes += Buffer.byteLength(chunk)
    chunk = ''
  }
  const batches = readBatches(path, {
    ...options,
    onText(text, position, problem) {
      const readableText = problem === null ? text : removeNulBytes(text)
      if (readableText !== null) {
        chunk += `${readableText}\n`
        found.kept++
        if (problem !== null) found.mended++
        return
      }
      found.dropped++
      const badLine = { ...position, reason: problem ?? '' }
      if (found.problems.length < maxProblems) found.problems.push(badLine)
    },
  })
  for await (const _ of batches) {
    if (chunk.length >= chunkLength) await flush()
  }
  await flush()
  return found
}

/** Removes the NUL bytes that a power loss may leave before a complete line. */
function removeNulBytes(text: string | null): string | null {
  const rest = text?.replace(/^\0+/, '') ?? ''
  const { kind } = parseLine(rest)
  return kind === 'line' || kind === 'unknown' ? rest : null
}

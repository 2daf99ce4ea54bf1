/** Shows how much of a long record has been read. */

import { basename } from 'node:path'
import { isCompressed } from '../../checkpoint/compressed.ts'
import type { ReadOptions } from '../../checkpoint/reader.ts'
import { type Clock, systemClock } from '../../foundation/clock.ts'
import { statOf } from '../../foundation/regular-file.ts'
import { numberText } from '../../views/readable.ts'
import type { Output } from '../output.ts'

/** Progress is shown only if reading takes longer than this. */
const initialDelayMs = 1000
const updateIntervalMs = 250

/** Options that stop a reader, and report its position. */
export type ReadingHooks = Required<Pick<ReadOptions, 'signal' | 'onRead'>>

/** Shows progress while `read` runs, and removes the progress line afterwards. */
export async function withReadingProgress<Result>(
  output: Output,
  read: (followed: ReadingHooks) => Promise<Result>,
  clock: Pick<Clock, 'monotonicMs'> = systemClock,
): Promise<Result> {
  const signal = output.closed
  if (output.terminal?.isTTY !== true) return await read({ signal, onRead() {} })
  let nextAt = clock.monotonicMs() + initialDelayMs
  let isDrawn = false
  const onRead = (bytes: number, path: string): void => {
    const now = clock.monotonicMs()
    if (now < nextAt) return
    nextAt = now + updateIntervalMs
    isDrawn = true
    output.progress([`reading ${basename(path)}  ${describe(bytes, path)}`])
  }
  try {
    return await read({ signal, onRead })
  } finally {
    if (isDrawn) output.progress([])
  }
}

/**
 * Describes the position in a file. For a compressed file, the total number of bytes is unknown.
 */
function describe(bytes: number, path: string): string {
  const size = isCompressed(path) ? 0 : (statOf(path)?.size ?? 0)
  if (size < bytes) return megabytes(bytes)
  return `${Math.floor((100 * bytes) / size)} % of ${megabytes(size)}`
}

const megabytes = (bytes: number): string => `${numberText(Math.round(bytes / 1e6))} MB`

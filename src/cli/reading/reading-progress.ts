/** Tells a person who waits for a long record how far it is read. */

import { statSync } from 'node:fs'
import { basename } from 'node:path'
import { isCompressed } from '../../checkpoint/compressed.ts'
import type { ReadOptions } from '../../checkpoint/reader.ts'
import { type Clock, systemClock } from '../../foundation/clock.ts'
import type { Output } from '../output.ts'

/** Shorter readings tell nothing. */
const firstMs = 1000
const intervalMs = 250

/** What readers need to be ended and to tell how far they are. */
export type Followed = Required<Pick<ReadOptions, 'signal' | 'onRead'>>

/** Calls `read` with it. The line goes when that has ended. */
export async function withReadingProgress<Result>(
  output: Output,
  read: (followed: Followed) => Promise<Result>,
  clock: Pick<Clock, 'monotonicMs'> = systemClock,
): Promise<Result> {
  const signal = output.closed
  if (output.terminal?.isTTY !== true) return await read({ signal, onRead() {} })
  let nextAt = clock.monotonicMs() + firstMs
  let isDrawn = false
  const onRead = (bytes: number, path: string): void => {
    const now = clock.monotonicMs()
    if (now < nextAt) return
    nextAt = now + intervalMs
    isDrawn = true
    output.progress([`reading ${basename(path)}  ${describe(bytes, path)}`])
  }
  try {
    return await read({ signal, onRead })
  } finally {
    if (isDrawn) output.progress([])
  }
}

/** The bytes of a compressed file are those of the record in it, whose size is not known. */
function describe(bytes: number, path: string): string {
  const size = isCompressed(path) ? 0 : (statSync(path, { throwIfNoEntry: false })?.size ?? 0)
  if (size < bytes) return megabytes(bytes)
  return `${Math.floor((100 * bytes) / size)} % of ${megabytes(size)}`
}

const megabytes = (bytes: number): string => `${Math.round(bytes / 1e6).toLocaleString('en')} MB`

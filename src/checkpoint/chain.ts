/** A run may be a chain of files: each resumed one names its forerunner, which lies beside it. */

import { realpathSync, statSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { CheckpointError } from '../foundation/errors.ts'
import { checkpointFailure } from './files.ts'
import type { EventLine } from './format.ts'
import { readBatches } from './reader.ts'

/** The attribute of SessionStarted with the file name of the record that was resumed. */
export const resumedFrom = 'resumed_from'

export interface RecordChain {
  /** Absolute paths, the oldest first; the last one is the file that was asked for. */
  readonly files: readonly string[]
  /** A forerunner that is named but not there: the chain begins after it. */
  readonly missing: string | null
}

/**
 * The files of the run that ends with this one. Reads only the head of each. Rejects with
 * `CheckpointError` when the file itself cannot be read, or when files name each other in a ring.
 */
export async function findChain(path: string): Promise<RecordChain> {
  let file = absolutePath(path)
  const files = [file]
  for (;;) {
    const name = (await readSessionStart(file))?.attributes[resumedFrom]
    if (typeof name !== 'string') return { files, missing: null }
    const before = join(dirname(file), name)
    if (basename(name) !== name || !isFile(before)) return { files, missing: name }
    if (files.includes(before)) {
      throw new CheckpointError(`${before} is its own forerunner`, { path: before })
    }
    files.unshift(before)
    file = before
  }
}

/** The event that opens a record; `null` when its first lines do not have it. */
export async function readSessionStart(path: string): Promise<EventLine | null> {
  for await (const batch of readBatches(path)) {
    for (const line of batch) {
      if (line.section === 'event' && line.event_type === 'SessionStarted') return line
    }
    return null
  }
  return null
}

/** Links are resolved: forerunners lie beside the file itself. */
function absolutePath(path: string): string {
  try {
    return realpathSync(path)
  } catch (error) {
    throw checkpointFailure('read the checkpoint', path, error)
  }
}

function isFile(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isFile() ?? false
}

/** Packs completed functions into columns: V8 serializes them several times faster than objects. */

import { joinUids, packIndexes, packTimes, RareColumn, splitUids } from './columns.ts'

/** A completed function. Times are by the clock of the agent's machine. */
export interface WireCompletion {
  readonly index: number
  readonly uid: string
  readonly attempt: number
  readonly beganMs: number
  readonly atMs: number
  readonly workerId: string
  readonly value: unknown
}

export interface WireCompletions {
  readonly indexes: ArrayLike<number>
  readonly uids: string
  /** `null` if all are first attempts. */
  readonly attempts: readonly number[] | null
  /** Two times per completion: when it began and when it ended. */
  readonly times: ArrayLike<number>
  /** The distinct ids. `workers` has the index of each row's id; `null` if there is only one id. */
  readonly workerIds: readonly string[]
  readonly workers: readonly number[] | null
  /** `null` if all values are `undefined`. */
  readonly values: readonly unknown[] | null
}

export function packCompletions(completions: readonly WireCompletion[]): WireCompletions {
  const indexes: number[] = []
  const times: number[] = []
  const uids: string[] = []
  const attempts = new RareColumn(1)
  const workerIds: string[] = []
  const workers = new RareColumn(0)
  const values = new RareColumn<unknown>(undefined)
  let lastId: string | null = null
  let last = -1
  for (const { index, uid, attempt, beganMs, atMs, workerId, value } of completions) {
    if (workerId !== lastId) {
      lastId = workerId
      last = workerIds.indexOf(workerId)
      if (last === -1) last = workerIds.push(workerId) - 1
    }
    indexes.push(index)
    times.push(beganMs, atMs)
    uids.push(uid)
    attempts.add(attempt)
    workers.add(last)
    values.add(value)
  }
  return {
    indexes: packIndexes(indexes),
    uids: joinUids(uids),
    attempts: attempts.values,
    times: packTimes(times),
    workerIds,
    workers: workers.values,
    values: values.values,
  }
}

export function unpackCompletions(columns: WireCompletions): WireCompletion[] {
  const { indexes, attempts, times, workerIds, workers, values } = columns
  return splitUids(columns.uids, indexes.length).map((uid, row) => ({
    index: indexes[row] ?? 0,
    uid,
    attempt: attempts?.[row] ?? 1,
    beganMs: times[row * 2] ?? 0,
    atMs: times[row * 2 + 1] ?? 0,
    workerId: workerIds[workers?.[row] ?? 0] ?? '',
    value: values?.[row],
  }))
}

/**
 * Completed functions of the common kind. A message has them as columns: an array of numbers or
 * texts is written and read several times faster than an object for each end.
 */

/** One of them; times are those of the agent's machine. */
export interface WireCompletion {
  /** Where the driver keeps the job, as it was told with the job. */
  readonly index: number
  readonly uid: string
  readonly attempt: number
  readonly beganMs: number
  readonly atMs: number
  readonly workerId: string
  readonly value: unknown
}

export interface WireCompletions {
  readonly indexes: readonly number[]
  readonly uids: readonly string[]
  readonly attempts: readonly number[]
  readonly beganMs: readonly number[]
  readonly atMs: readonly number[]
  /** The ids that occur, and for each completion its id among them. */
  readonly workerIds: readonly string[]
  readonly workers: readonly number[]
  /** `null`: all are `undefined`. */
  readonly values: readonly unknown[] | null
}

export function packCompletions(completions: readonly WireCompletion[]): WireCompletions {
  const workerIds: string[] = []
  const workers: number[] = []
  let lastId: string | null = null
  let last = -1
  let hasValue = false
  for (const { workerId, value } of completions) {
    if (workerId !== lastId) {
      lastId = workerId
      last = workerIds.indexOf(workerId)
      if (last === -1) last = workerIds.push(workerId) - 1
    }
    workers.push(last)
    if (value !== undefined) hasValue = true
  }
  return {
    indexes: completions.map(({ index }) => index),
    uids: completions.map(({ uid }) => uid),
    attempts: completions.map(({ attempt }) => attempt),
    beganMs: completions.map(({ beganMs }) => beganMs),
    atMs: completions.map(({ atMs }) => atMs),
    workerIds,
    workers,
    values: hasValue ? completions.map(({ value }) => value) : null,
  }
}

export function unpackCompletions(columns: WireCompletions): WireCompletion[] {
  const { indexes, attempts, beganMs, atMs, workerIds, workers, values } = columns
  return columns.uids.map((uid, at) => ({
    index: indexes[at] ?? 0,
    uid,
    attempt: attempts[at] ?? 0,
    beganMs: beganMs[at] ?? 0,
    atMs: atMs[at] ?? 0,
    workerId: workerIds[workers[at] ?? 0] ?? '',
    value: values?.[at],
  }))
}

/** Decides from the past allocations of a kind whether more may be requested. Pure. */

import type { WaitingWork } from '../../cluster/protocol/placement/placement-state.ts'
import { backOffDelay } from '../../runtime/retry.ts'

export interface PilotHistory {
  readonly submitted: number
  /** Consecutive requests that were refused or led to short-lived allocations. */
  readonly failures: number
  /** When the last request failed, in seconds since the epoch. */
  readonly failedAt: number
  readonly reason: string
  /** When the scheduler last gave no answer, in seconds since the epoch. */
  readonly silentAt: number
  /** Work that did not run although allocations were requested for it, by `workKey`. */
  readonly failedWork: ReadonlyMap<string, { readonly count: number; readonly at: number }>
}

const maxFailures = 3
/** An allocation that ends sooner has failed, unless it was released or used up its time. */
export const minUsefulSeconds = 60
const firstDelaySeconds = 10
const maxDelaySeconds = 600
/** Failures that are further apart than this do not count as consecutive. */
const maxStreakGapSeconds = 3600

export const emptyHistory: PilotHistory = {
  submitted: 0,
  failures: 0,
  failedAt: -Infinity,
  reason: '',
  silentAt: -Infinity,
  failedWork: new Map(),
}

export interface PilotEnd {
  /**
   * `given back`: a plan released it. `lived`: it was useful. `failed`: it was refused or
   * short-lived. `unanswered`: the scheduler did not answer.
   */
  readonly kind: 'given back' | 'lived' | 'failed' | 'unanswered'
  readonly hasRun: boolean
  /** The keys (`workKey`) of the requested work that still waits. */
  readonly missed: readonly string[]
  readonly submittedAt: number
  readonly at: number
  readonly reason: string
}

/**
 * Classifies the end of an allocation. A short one has failed, unless its time limit ended it and
 * it had run tasks or was not needed.
 */
export function classifyEnd(
  age: number,
  cause: 'limit' | 'loss',
  { hasRun, readyAt, missed }: PilotOutcome,
): PilotEnd['kind'] {
  if (age >= minUsefulSeconds) return 'lived'
  // Whether the allocation was requested only for `min`, or other nodes ran its work.
  const isSpare = readyAt !== null && missed.length === 0 && age >= firstDelaySeconds
  return cause === 'limit' && (hasRun || isSpare) ? 'lived' : 'failed'
}

interface PilotOutcome extends Pick<PilotEnd, 'hasRun' | 'missed'> {
  readonly readyAt: number | null
}

/**
 * Adds the end of an allocation. Failed requests count as one failure if all of them were made
 * before the first one failed.
 */
export function noteEnd(history: PilotHistory, end: PilotEnd): PilotHistory {
  const { kind, hasRun, submittedAt, at, reason } = end
  if (kind === 'unanswered') {
    return { ...history, silentAt: at, submitted: history.submitted - 1 }
  }
  if (kind === 'failed') {
    const { failures, failedAt } = history
    if (failures > 0 && submittedAt < failedAt) return history
    const previousFailures = at - failedAt > maxStreakGapSeconds ? 0 : failures
    return { ...history, failures: previousFailures + 1, failedAt: at, reason }
  }
  return hasRun ? resetFailures(history) : noteFailedWork(history, end)
}

/** Forgets earlier failures. Called when an allocation has run tasks and was not short-lived. */
export const resetFailures = (history: PilotHistory): PilotHistory =>
  history.failures === 0 ? history : { ...history, failures: 0, reason: '' }

function noteFailedWork(
  history: PilotHistory,
  { missed, submittedAt, at }: PilotEnd,
): PilotHistory {
  if (missed.length === 0) return history
  const failedWork = new Map(history.failedWork)
  for (const key of missed) {
    const known = failedWork.get(key)
    if (known !== undefined && submittedAt < known.at) continue
    const previousCount =
      known === undefined || at - known.at > maxStreakGapSeconds ? 0 : known.count
    failedWork.set(key, { count: previousCount + 1, at })
  }
  return { ...history, failedWork }
}

/** Whether failures have stopped the requests; `false` while an allocation works. */
export const hasStopped = ({ failures }: PilotHistory, hasWorking: boolean): boolean =>
  failures >= maxFailures && !hasWorking

/** The earliest time of the next request, in seconds since the epoch. */
export const nextRequestAt = ({ failures, failedAt, silentAt }: PilotHistory): number =>
  Math.max(failedAt + delaySeconds(failures), silentAt + firstDelaySeconds)

const delaySeconds = (failures: number): number =>
  backOffDelay(failures, { first: firstDelaySeconds, max: maxDelaySeconds })

/**
 * How many allocations were requested for this work and did not run it; `null` if more may be
 * requested.
 */
export function countFailedRequests({ failedWork }: PilotHistory, key: string): number | null {
  const count = failedWork.get(key)?.count ?? 0
  return count >= maxFailures ? count : null
}

export function mayRequestFor(history: PilotHistory, key: string, now: number): boolean {
  const known = history.failedWork.get(key)
  if (known === undefined) return true
  return known.count < maxFailures && now >= known.at + delaySeconds(known.count)
}

/** The key of jobs that were sent to busy nodes and wait there. */
export const sentKey = 'sent'

/** Returns the same key for work that the same allocations can run. Rounds memory and time. */
export function workKey({ resources, isSent = false }: Omit<WaitingWork, 'count'>): string {
  if (isSent) return sentKey
  const { cores, gpus, ranks, ranksPerNode, labels = {}, seconds } = resources
  const magnitude = seconds === undefined ? null : Math.ceil(Math.log2(seconds))
  const memory = resources.memoryMb === 0 ? null : Math.ceil(8 * Math.log2(resources.memoryMb))
  const sorted = Object.entries(labels).toSorted(([a], [b]) => (a < b ? -1 : 1))
  return JSON.stringify([cores, gpus, memory, ranks, ranksPerNode ?? null, sorted, magnitude])
}

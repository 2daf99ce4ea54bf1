/** The history of the allocations of one kind, and whether more may be requested. Pure. */

import type { WaitingWork } from '../../cluster/driver/placement/placement-state.ts'
import { backOffDelay } from '../../runtime/retry.ts'

export interface PilotHistory {
  /** The number of requested allocations. */
  readonly submitted: number
  /** The number of consecutive requests that were refused or led to short-lived allocations. */
  readonly failures: number
  /** When the last request failed; `reason` is the scheduler's message. */
  readonly failedAt: number
  readonly reason: string
  /** When the scheduler last failed to answer. */
  readonly silentAt: number
  /** Work for which allocations were started, but that none of them ran, by `workKey`. */
  readonly unfit: ReadonlyMap<string, UnfitWork>
}

interface UnfitWork {
  /** The number of consecutive allocations that did not run the work. */
  readonly count: number
  /** When the last of these allocations ended. */
  readonly at: number
}

/** After this many consecutive failures, no more allocations are requested. */
const maxFailures = 3
/**
 * An allocation with a shorter life counts as failed, unless it was released or used up its time.
 */
export const minUsefulSeconds = 60
const firstDelaySeconds = 10
const maxDelaySeconds = 600
/** Failures with more time between them do not count as consecutive. */
const forgetSeconds = 3600

export const noHistory: PilotHistory = {
  submitted: 0,
  failures: 0,
  failedAt: -Infinity,
  reason: '',
  silentAt: -Infinity,
  unfit: new Map(),
}

/** How an allocation, or the request for one, ended. */
export interface PilotEnd {
  /**
   * `given back`: released by a plan. `lived`: ended by the scheduler after a useful life.
   * `failed`: refused or short-lived. `unanswered`: the scheduler did not answer the request.
   */
  readonly kind: 'given back' | 'lived' | 'failed' | 'unanswered'
  /** Whether the allocation ran a task. */
  readonly hasRun: boolean
  /**
   * Work that the allocation was requested for, but did not run, and that still waits, by
   * `workKey`.
   */
  readonly missed: readonly string[]
  readonly submittedAt: number
  readonly at: number
  readonly reason: string
}

/**
 * Classifies an allocation that the scheduler ended. If its time was over immediately, it counts as
 * failed, because its successor would end in the same second.
 */
export function judgeEnd(
  age: number,
  cause: 'limit' | 'loss',
  { hasRun, readyAt, missed }: JudgedPilot,
): PilotEnd['kind'] {
  if (age >= minUsefulSeconds) return 'lived'
  // The allocation was only for `min`, or others ran its work, so this is no failure.
  const isSpare = readyAt !== null && missed.length === 0 && age >= firstDelaySeconds
  return cause === 'limit' && (hasRun || isSpare) ? 'lived' : 'failed'
}

interface JudgedPilot extends Pick<PilotEnd, 'hasRun' | 'missed'> {
  /** `null` if the nodes were never ready for work. */
  readonly readyAt: number | null
}

/** Simultaneous failures count once, because all were requested before the first one failed. */
export function noteEnd(history: PilotHistory, end: PilotEnd): PilotHistory {
  const { kind, hasRun, submittedAt, at, reason } = end
  // A controller that does not answer has not refused anything.
  if (kind === 'unanswered') {
    return { ...history, silentAt: at, submitted: history.submitted - 1 }
  }
  if (kind === 'failed') {
    const { failures, failedAt } = history
    if (failures > 0 && submittedAt < failedAt) return history
    const before = at - failedAt > forgetSeconds ? 0 : failures
    return { ...history, failures: before + 1, failedAt: at, reason }
  }
  return hasRun ? noteGood(history) : noteMissed(history, end)
}

/** Called when an allocation has run tasks and was not short-lived. */
export const noteGood = (history: PilotHistory): PilotHistory =>
  history.failures === 0 ? history : { ...history, failures: 0, reason: '' }

function noteMissed(history: PilotHistory, { missed, submittedAt, at }: PilotEnd): PilotHistory {
  if (missed.length === 0) return history
  const unfit = new Map(history.unfit)
  for (const key of missed) {
    const known = unfit.get(key)
    if (known !== undefined && submittedAt < known.at) continue
    const before = known === undefined || at - known.at > forgetSeconds ? 0 : known.count
    unfit.set(key, { count: before + 1, at })
  }
  return { ...history, unfit }
}

/**
 * Whether no more allocations of this kind are requested, after three consecutive failures. While a
 * working allocation exists, requests continue with growing delays.
 */
export const hasStopped = ({ failures }: PilotHistory, hasGood: boolean): boolean =>
  failures >= maxFailures && !hasGood

/** The earliest time of the next request. */
export const nextTryAt = ({ failures, failedAt, silentAt }: PilotHistory): number =>
  Math.max(failedAt + delaySeconds(failures), silentAt + firstDelaySeconds)

const delaySeconds = (failures: number): number =>
  backOffDelay(failures, { first: firstDelaySeconds, max: maxDelaySeconds })

/**
 * The number of allocations that were started for such work, but did not run it; `null` while there
 * are too few to stop requesting.
 */
export function failedRequests({ unfit }: PilotHistory, key: string): number | null {
  const count = unfit.get(key)?.count ?? 0
  return count >= maxFailures ? count : null
}

/** Whether an allocation may be requested for such work now. */
export function mayAskFor(history: PilotHistory, key: string, now: number): boolean {
  const known = history.unfit.get(key)
  if (known === undefined) return true
  return known.count < maxFailures && now >= known.at + delaySeconds(known.count)
}

/** The key of jobs that were already sent to busy nodes, which may keep them. */
export const sentKey = 'sent'

/**
 * A key that is equal for work that the same allocations can run. Memory is rounded to classes and
 * time to powers of two, so that there are few keys, regardless of the requests.
 */
export function workKey({ resources, isSent = false }: Omit<WaitingWork, 'count'>): string {
  if (isSent) return sentKey
  const { cores, gpus, ranks, ranksPerNode, labels = {}, seconds } = resources
  const magnitude = seconds === undefined ? null : Math.ceil(Math.log2(seconds))
  const memory = resources.memoryMb === 0 ? null : Math.ceil(8 * Math.log2(resources.memoryMb))
  const sorted = Object.entries(labels).toSorted(([a], [b]) => (a < b ? -1 : 1))
  return JSON.stringify([cores, gpus, memory, ranks, ranksPerNode ?? null, sorted, magnitude])
}

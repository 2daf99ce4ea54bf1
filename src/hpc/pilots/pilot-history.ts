/** What became of the allocations of a kind, and whether others may be asked for. Pure. */

import type { WaitingWork } from '../../cluster/driver/placement/placement-state.ts'
import { backOffDelay } from '../../runtime/back-off.ts'

export interface PilotHistory {
  /** How many were asked for. */
  readonly submitted: number
  /** Refused submissions and allocations that died young, in a row. */
  readonly failures: number
  /** When the last of them failed, and the scheduler's words. */
  readonly failedAt: number
  readonly reason: string
  /** When the scheduler did not answer, the last time. */
  readonly silentAt: number
  /** By `workKey`: work that allocations came for, and that none of them has begun. */
  readonly unfit: ReadonlyMap<string, UnfitWork>
}

interface UnfitWork {
  /** Such allocations, in a row. */
  readonly count: number
  /** When the last of them ended. */
  readonly at: number
}

/** After that many failures in a row no more are asked for. */
const mostFailures = 3
/** One that lives for less has failed, unless it was given back or has used its time. */
export const youngSeconds = 60
const firstDelaySeconds = 10
const longestDelaySeconds = 600
/** Failures that are further apart are not in a row. */
const forgetSeconds = 3600

export const noHistory: PilotHistory = {
  submitted: 0,
  failures: 0,
  failedAt: -Infinity,
  reason: '',
  silentAt: -Infinity,
  unfit: new Map(),
}

/** How an allocation, or the request for one, has ended. */
export interface PilotEnd {
  /** `given back`: by a plan. `lived`: by the scheduler, in its time. `unanswered`: by nobody. */
  readonly kind: 'given back' | 'lived' | 'failed' | 'unanswered'
  /** Whether it has run a task. */
  readonly hasRun: boolean
  /** By `workKey`: what it was asked for, has run nothing of, and still waits. */
  readonly missed: readonly string[]
  readonly submittedAt: number
  readonly at: number
  /** The scheduler's words. */
  readonly reason: string
}

/**
 * How one has ended that the scheduler has ended. One whose time is over at once is of no use: the
 * next would follow it in the same second.
 */
export function judgeEnd(
  age: number,
  cause: 'limit' | 'loss',
  { hasRun, readyAt, missed }: JudgedPilot,
): PilotEnd['kind'] {
  if (age >= youngSeconds) return 'lived'
  // One of `min`, or one whose work others have run, has done what it could.
  const isSpare = readyAt !== null && missed.length === 0 && age >= firstDelaySeconds
  return cause === 'limit' && (hasRun || isSpare) ? 'lived' : 'failed'
}

interface JudgedPilot extends Pick<PilotEnd, 'hasRun' | 'missed'> {
  /** `null` if its nodes could never take work. */
  readonly readyAt: number | null
}

/** Those that fail together count once: all had been asked for before the first of them failed. */
export function noteEnd(history: PilotHistory, end: PilotEnd): PilotHistory {
  const { kind, hasRun, submittedAt, at, reason } = end
  // A controller that is away has refused nothing.
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

/** One of them has run tasks, and has not died young. */
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
 * Whether no more of this kind are asked for: after three failures in a row. While a good one is
 * there, others are tried again and again, ever later.
 */
export const hasStopped = ({ failures }: PilotHistory, hasGood: boolean): boolean =>
  failures >= mostFailures && !hasGood

/** From when on another one may be tried. */
export const nextTryAt = ({ failures, failedAt, silentAt }: PilotHistory): number =>
  Math.max(failedAt + delaySeconds(failures), silentAt + firstDelaySeconds)

const delaySeconds = (failures: number): number =>
  backOffDelay(failures, { first: firstDelaySeconds, max: longestDelaySeconds })

/** How many have come for such work in vain, if that were enough to ask for no more. */
export function countInVain({ unfit }: PilotHistory, key: string): number | null {
  const count = unfit.get(key)?.count ?? 0
  return count >= mostFailures ? count : null
}

/** Whether one may be asked for such work now. */
export function mayAskFor(history: PilotHistory, key: string, now: number): boolean {
  const known = history.unfit.get(key)
  if (known === undefined) return true
  return known.count < mostFailures && now >= known.at + delaySeconds(known.count)
}

/** That of what is sent to busy nodes: those may keep it. */
export const sentKey = 'sent'

/**
 * The same for work that the same allocations can run. Amounts of memory count by classes and times
 * by their magnitude, so that there are few keys, whatever tasks ask for.
 */
export function workKey({ resources, isSent = false }: Omit<WaitingWork, 'count'>): string {
  if (isSent) return sentKey
  const { cores, gpus, ranks, ranksPerNode, labels = {}, seconds } = resources
  const magnitude = seconds === undefined ? null : Math.ceil(Math.log2(seconds))
  const memory = resources.memoryMb === 0 ? null : Math.ceil(8 * Math.log2(resources.memoryMb))
  const sorted = Object.entries(labels).toSorted(([a], [b]) => (a < b ? -1 : 1))
  return JSON.stringify([cores, gpus, memory, ranks, ranksPerNode ?? null, sorted, magnitude])
}

/**
 * Decides which allocations to ask for and which to give back, from the work that waits, the
 * allocations that there are, and the time. Pure: a queue can be simulated around it.
 */

import { roomIn } from '../../cluster/driver/placement/job-group.ts'
import type { WaitingWork } from '../../cluster/driver/placement/placement-state.ts'
import type { ResourceRequest } from '../../tasks/resources.ts'

/** What a node has that an allocation may get. */
export interface PilotCandidate {
  readonly cores: number
  readonly gpus: number
  readonly memoryMb: number
  readonly labels: Readonly<Record<string, string>>
}

/** Allocations that are asked for in the same way. */
export interface PilotKind {
  /** Of each allocation. */
  readonly nodes: number
  /** How many there are at least, also without work. */
  readonly min: number
  /** How many there are at most at the same time. */
  readonly max: number
  /** How many of them wait in the scheduler's queue at most. */
  readonly backlog: number
  /** One that has run nothing for that long is given back. */
  readonly idleSeconds: number
  /** How long tasks can run in one; `Infinity` without a limit. */
  readonly usableSeconds: number
  /** How many are asked for at most, over the whole run. */
  readonly maxTotal: number
  /** The different nodes that it may get. */
  readonly candidates: readonly PilotCandidate[]
}

/** An allocation that was asked for and has not ended. */
export interface Pilot {
  readonly id: string
  /** The number of its kind. */
  readonly kind: number
  /** Seconds since the epoch; `null` while it waits in the queue. */
  readonly startedAt: number | null
  /** It takes no more work. */
  readonly isEnding: boolean
  /** Seconds since the epoch from which on it has run nothing; `null` while it runs something. */
  readonly idleSince: number | null
}

/** What became of the allocations of a kind so far. */
export interface PilotHistory {
  /** How many were asked for. */
  readonly submitted: number
  /** Refused submissions and allocations that died young, in a row. */
  readonly failures: number
  /** When the last of them failed, and the scheduler's words. */
  readonly failedAt: number
  readonly reason: string
}

export interface PilotSituation {
  readonly kinds: readonly PilotKind[]
  readonly work: readonly WaitingWork[]
  readonly pilots: readonly Pilot[]
  /** Of each kind. */
  readonly histories: readonly PilotHistory[]
  /** Seconds since the epoch. */
  readonly now: number
}

export interface PilotPlan {
  /** Kinds of which one more is to be asked for. The next plan comes when that was answered. */
  readonly submit: readonly number[]
  /** Ids of those to give back. */
  readonly end: readonly string[]
}

/** After that many failures in a row no more are asked for. */
const mostFailures = 3
/** One that lives for less has failed, unless it was given back. */
export const youngSeconds = 60
const firstDelaySeconds = 10
/** How long one that has started may take to get its share of what waits. */
const settleSeconds = 5

export const noHistory: PilotHistory = {
  submitted: 0,
  failures: 0,
  failedAt: -Infinity,
  reason: '',
}

/** No more of this kind are asked for, in this run. */
export const hasStopped = ({ failures }: PilotHistory): boolean => failures >= mostFailures

export function planPilots(situation: PilotSituation): PilotPlan {
  const { kinds, pilots } = situation
  const wanted = countWanted(situation)
  const submit: number[] = []
  const end: string[] = []
  for (const [at, kind] of kinds.entries()) {
    const own = pilots.filter((pilot) => pilot.kind === at)
    const queued = own.filter(({ startedAt, isEnding }) => startedAt === null && !isEnding)
    const running = own.filter(({ startedAt, isEnding }) => startedAt !== null && !isEnding)
    const settled = running.filter((pilot) => situation.now - startOf(pilot) >= settleSeconds)
    const needed = Math.max(wanted[at] ?? 0, kind.min - running.length, 0)
    // The youngest would begin last.
    end.push(...queued.slice(needed).map(({ id }) => id))
    // New ones may not have taken all of the work yet that they will.
    const fresh = Math.min(running.length - settled.length, wanted[at] ?? 0)
    const isMissing = needed > queued.length + fresh
    if (isMissing && mayAsk(situation, at, queued.length, own.length)) submit.push(at)
    const spare = running.length - kind.min
    end.push(...idleOnes(kind, settled, situation.now).slice(0, Math.max(0, spare)))
  }
  return { submit, end }
}

/** How many allocations of each kind would begin all work that waits. */
function countWanted({ kinds, work, histories }: PilotSituation): number[] {
  const shares = kinds.map(() => 0)
  for (const { resources, count } of work) {
    const isOpen = (_: PilotKind, at: number): boolean => !hasStopped(histories[at] ?? noHistory)
    const able = kinds.filter(isOpen).find((kind) => roomOf(kind, resources) > 0)
    if (able === undefined) continue
    const at = kinds.indexOf(able)
    shares[at] = (shares[at] ?? 0) + count / roomOf(able, resources)
  }
  return shares.map((share) => Math.ceil(share))
}

function mayAsk(
  { kinds, histories, now }: PilotSituation,
  at: number,
  queued: number,
  alive: number,
): boolean {
  const { max, backlog, maxTotal } = kinds[at] as PilotKind
  const history = histories[at] ?? noHistory
  if (hasStopped(history) || history.submitted >= maxTotal) return false
  if (alive >= max || queued >= backlog) return false
  const { failures, failedAt } = history
  // After a failure one is tried, and no other before that one has lived.
  if (failures > 0) return alive === 0 && now >= failedAt + delaySeconds(failures)
  return true
}

const delaySeconds = (failures: number): number => firstDelaySeconds * 2 ** (failures - 1)

const startOf = ({ startedAt }: Pilot): number => startedAt ?? Infinity

/** Those that have been idle for too long, the longest first; what waits is not for them. */
function idleOnes({ idleSeconds }: PilotKind, pilots: readonly Pilot[], now: number): string[] {
  const since = ({ idleSince }: Pilot): number => idleSince ?? Infinity
  return pilots
    .filter((pilot) => now - since(pilot) >= idleSeconds)
    .toSorted((a, b) => since(a) - since(b))
    .map(({ id }) => id)
}

/** How many such tasks run at the same time in one allocation of this kind, at least. */
export function roomOf(kind: PilotKind, resources: ResourceRequest): number {
  if ((resources.seconds ?? 0) > kind.usableSeconds) return 0
  const rooms = kind.candidates
    .map((node) => (isLabelled(node, resources) ? roomIn(node, resources) : 0))
    .filter((room) => room >= (resources.ranksPerNode ?? 1))
  if (rooms.length === 0) return 0
  const perNode = Math.min(...rooms, resources.ranksPerNode ?? Infinity)
  return Math.floor((perNode * kind.nodes) / resources.ranks)
}

const isLabelled = ({ labels }: PilotCandidate, resources: ResourceRequest): boolean =>
  Object.entries(resources.labels ?? {}).every(([key, value]) => labels[key] === value)

/** How an allocation, or the request for one, has ended. */
export interface PilotEnd {
  /** `given back`: by a plan. `lived`: by the scheduler, after it was of use. */
  readonly kind: 'given back' | 'lived' | 'failed'
  readonly submittedAt: number
  readonly at: number
  /** The scheduler's words. */
  readonly reason: string
}

/** Those that fail together count once: all had been asked for before the first of them failed. */
export function noteEnd(history: PilotHistory, end: PilotEnd): PilotHistory {
  const { kind, submittedAt, at, reason } = end
  if (kind === 'given back') return history
  if (kind === 'lived') return { ...history, failures: 0, reason: '' }
  if (history.failures > 0 && submittedAt < history.failedAt) return history
  return { ...history, failures: history.failures + 1, failedAt: at, reason }
}

/**
 * Decides which allocations to request and which to release, from the waiting work, the existing
 * allocations, and the time. Pure, so that a queue can be simulated around it.
 */

import type { WaitingWork } from '../../cluster/driver/placement/placement-state.ts'
import { type NodeResources, ranksIn } from '../../tasks/resource-fit.ts'
import type { ResourceRequest } from '../../tasks/resources.ts'
import {
  hasStopped,
  mayAskFor,
  nextTryAt,
  noHistory,
  sentKey,
  type PilotHistory,
  workKey,
  minUsefulSeconds,
} from './pilot-history.ts'
import type { AllocationsOptions } from './pilot-options.ts'

/** Allocations that are requested with the same options. */
export interface PilotKind extends Pick<
  Required<AllocationsOptions>,
  'nodes' | 'min' | 'max' | 'backlog' | 'idleSeconds' | 'maxTotal'
> {
  readonly nodes: number
  /** How long a task can run in an allocation; `Infinity` without a limit. */
  readonly usableSeconds: number
  /** The distinct types of nodes that an allocation may get. */
  readonly candidates: readonly NodeResources[]
}

/** An allocation that was requested and has not ended. */
export interface Pilot {
  readonly id: string
  /** The index of the allocation's kind. */
  readonly kind: number
  /** Seconds since the epoch. */
  readonly submittedAt: number
  /** Seconds since the epoch; `null` while the allocation waits in the queue. */
  readonly startedAt: number | null
  /** When all nodes were ready for work; `null` before. */
  readonly readyAt: number | null
  /** Whether the allocation accepts no more work. */
  readonly isEnding: boolean
  /** The work that the allocation was requested for, by `workKey`. */
  readonly work: readonly string[]
  /** Whether the allocation has run a task. */
  readonly hasRun: boolean
  /** Since when the allocation is idle, in seconds since the epoch; `null` while it is busy. */
  readonly idleSince: number | null
}

export interface PilotSituation {
  readonly kinds: readonly PilotKind[]
  readonly work: readonly WaitingWork[]
  readonly pilots: readonly Pilot[]
  /** One history per kind. */
  readonly histories: readonly PilotHistory[]
  /** Seconds since the epoch. */
  readonly now: number
}

/** A request for one more allocation. */
export interface PilotOrder {
  readonly kind: number
  /** The work that the allocation is for, by `workKey`; empty if it is only needed for `min`. */
  readonly work: readonly string[]
  /** The minimum cores per node, if some nodes of this kind have fewer; `null` for any node. */
  readonly minCores: number | null
  /** The minimum memory per node, if some nodes of this kind have less; `null` for any node. */
  readonly minMemoryMb: number | null
}

export interface PilotPlan {
  /** Contains no more than one per kind. The next plan follows the scheduler's answer. */
  readonly submit: readonly PilotOrder[]
  /** The ids of the allocations to release. */
  readonly end: readonly string[]
}

/** Tolerance, because sums of fractions of allocations are not exact. */
const rounding = 1e-6
const roundUp = (sum: number): number => Math.max(0, Math.ceil(sum - rounding))
/** How long an allocation that is ready may take to get its share of the waiting work. */
const settleSeconds = 5

export function planPilots(situation: PilotSituation): PilotPlan {
  const { kinds, now } = situation
  const states = kinds.map((_, at) => stateOf(situation, at))
  const shares = shareOut(situation, states)
  const submit: PilotOrder[] = []
  const end: string[] = []
  for (const [at, kind] of kinds.entries()) {
    const { queued, running, settled } = states[at] as KindState
    const { allocations, useful, work, cores, memoryMb } = shares[at] as Share
    const wanted = roundUp(allocations)
    const missing = Math.max(0, kind.min - running.length)
    const needed = Math.max(wanted, missing)
    // Queued allocations that may still be useful keep their position. The newest would start last.
    const kept = Math.max(roundUp(useful), missing)
    end.push(...queued.slice(kept).map(({ id }) => id))
    // Allocations that just became ready may not have received all of their work yet.
    const fresh = Math.min(running.length - settled.length, wanted)
    const isMissing = needed > queued.length + fresh
    if (isMissing && mayAskNow(situation, at, states)) {
      const minMemoryMb = minMemoryOf(kind, memoryMb)
      submit.push({ kind: at, work: [...work], minCores: minOf(kind, cores), minMemoryMb })
    }
    const spare = running.length - kind.min
    end.push(...idleOnes(kind, settled, now).slice(0, Math.max(0, spare)))
  }
  return { submit, end }
}

/** The allocations of one kind. */
interface KindState {
  readonly own: readonly Pilot[]
  readonly queued: readonly Pilot[]
  readonly running: readonly Pilot[]
  /** Running allocations that have received as much of the waiting work as they can. */
  readonly settled: readonly Pilot[]
  readonly more: number
  /** Work for which idle allocations were requested, but that they have not run, by `workKey`. */
  readonly missed: ReadonlySet<string>
}

function stateOf({ kinds, pilots, histories, now }: PilotSituation, at: number): KindState {
  const { max, maxTotal } = kinds[at] as PilotKind
  const history = histories[at] ?? noHistory
  const own = pilots.filter((pilot) => pilot.kind === at)
  const alive = own.filter(({ isEnding }) => !isEnding)
  const running = alive.filter(({ startedAt }) => startedAt !== null)
  const isSettled = ({ readyAt }: Pilot): boolean => now - (readyAt ?? Infinity) >= settleSeconds
  const settled = running.filter(isSettled)
  const allowed = Math.min(max - own.length, maxTotal - history.submitted)
  const isProven = own.some((pilot) => provesKind(pilot, now))
  return {
    own,
    queued: alive.filter(({ startedAt }) => startedAt === null),
    running,
    settled,
    more: hasStopped(history, isProven)
      ? 0
      : Math.max(0, Math.min(allowed, mayTry(history, own, now))),
    missed: new Set(settled.flatMap(({ hasRun, work }) => (hasRun ? [] : work))),
  }
}

/** The part of the waiting work that is assigned to one kind. */
interface Share {
  /** The number of allocations that this work would fill. */
  allocations: number
  /** The number of allocations that all suitable work would fill, even work assigned elsewhere. */
  useful: number
  readonly work: Set<string>
  /** The maximum that a task, or its ranks on one node, needs. */
  cores: number
  memoryMb: number
}

/**
 * Assigns work to the first suitable kind; work beyond the limits of that kind may go to the next
 * one. Work with fewer suitable kinds is assigned first.
 */
function shareOut(situation: PilotSituation, states: readonly KindState[]): readonly Share[] {
  const { kinds, histories } = situation
  const shares = kinds.map((): Share => ({ ...nothing, work: new Set() }))
  const choices = groupWork(situation).map((group) => ({
    ...group,
    able: group.rooms.flatMap((room, at) =>
      room > 0 && !isUselessRequest(situation, states, at, group.key) ? [{ at, room }] : [],
    ),
  }))
  for (const choice of choices.toSorted((a, b) => a.able.length - b.able.length)) {
    const { key, count, able } = choice
    let left = count
    for (const { at, room } of able) {
      const { queued, running, settled, more } = states[at] as KindState
      const share = shares[at] as Share
      const free = queued.length + running.length - settled.length + more - share.allocations
      // After an allocation that did not run the work, only one more is requested as a trial.
      const max = histories[at]?.unfit.has(key) === true ? 1 : Infinity
      share.useful += Math.min(count / room, max)
      const taken = Math.min(left, Math.floor(Math.min(free, max) * room + rounding))
      if (taken <= 0) continue
      share.allocations += taken / room
      share.work.add(key)
      share.cores = Math.max(share.cores, choice.cores)
      share.memoryMb = Math.max(share.memoryMb, choice.memoryMb)
      left -= taken
    }
  }
  return shares
}

const nothing = { allocations: 0, useful: 0, cores: 0, memoryMb: 0 }

/** Work that a plan treats alike. */
interface WorkGroup {
  readonly key: string
  /** The number of these tasks that fit into an allocation of each kind. */
  readonly rooms: readonly number[]
  /** The maximum that a task, or its ranks on one node, needs. */
  readonly cores: number
  memoryMb: number
  count: number
}

/** Groups work, because there may be as many different requests as tasks. */
function groupWork({ kinds, work }: PilotSituation): readonly WorkGroup[] {
  const groups = new Map<string, WorkGroup>()
  for (const { resources, count, isSent = false } of work) {
    const judged = judge(kinds, resources)
    const key = isSent ? sentKey : judged.key
    const id = isSent ? sentKey : judged.id
    const known = groups.get(id)
    if (known === undefined) {
      const { rooms, cores, memoryMb } = judged
      groups.set(id, { key, rooms, cores, memoryMb, count })
      continue
    }
    known.count += count
    known.memoryMb = Math.max(known.memoryMb, judged.memoryMb)
  }
  return [...groups.values()]
}

interface JudgedRequest extends Omit<WorkGroup, 'count'> {
  /** Equal for requests of the same group. */
  readonly id: string
}

/** Caches assessments, because a request may wait for thousands of plans. */
const judgedRequests = new WeakMap<readonly PilotKind[], WeakMap<ResourceRequest, JudgedRequest>>()

function judge(kinds: readonly PilotKind[], resources: ResourceRequest): JudgedRequest {
  const all = judgedRequests.get(kinds) ?? new WeakMap<ResourceRequest, JudgedRequest>()
  judgedRequests.set(kinds, all)
  const known = all.get(resources)
  if (known !== undefined) return known
  const { cores, memoryMb, ranksPerNode = 1 } = resources
  const key = workKey({ resources })
  const rooms = kinds.map((kind) => roomOf(kind, resources))
  const max = { cores: cores * ranksPerNode, memoryMb: memoryMb * ranksPerNode }
  const judged = { key, id: `${key} ${rooms.join()}`, rooms, ...max }
  all.set(resources, judged)
  return judged
}

/**
 * The memory of as many such tasks as fit into the smallest sufficient node, so that the scheduler
 * assigns no smaller node. Does not request all memory of that node, because the system may need a
 * part of it.
 */
function minMemoryOf({ candidates }: PilotKind, memoryMb: number): number | null {
  const sizes = candidates.map((node) => node.memoryMb)
  const enough = sizes.filter((size) => size >= memoryMb)
  if (memoryMb === 0 || enough.length === 0 || enough.length === sizes.length) return null
  return Math.ceil(Math.floor(Math.min(...enough) / memoryMb) * memoryMb)
}

/** Only needed if nodes differ, to get nodes with enough cores. */
const minOf = ({ candidates }: PilotKind, cores: number): number | null =>
  candidates.some((node) => node.cores < cores) ? cores : null

/** Whether an allocation requested for such work now would probably not run it. */
function isUselessRequest(
  { histories, now }: PilotSituation,
  states: readonly KindState[],
  at: number,
  key: string,
): boolean {
  if (states[at]?.missed.has(key) === true) return true
  return !mayAskFor(histories[at] ?? noHistory, key, now)
}

function mayAskNow({ kinds }: PilotSituation, at: number, states: readonly KindState[]): boolean {
  const { queued, more } = states[at] as KindState
  return more > 0 && queued.length < (kinds[at]?.backlog ?? 0)
}

/** How many more allocations may be requested, judging by earlier ones. */
function mayTry(history: PilotHistory, own: readonly Pilot[], now: number): number {
  if (now < nextTryAt(history)) return 0
  if (history.failures === 0) return Infinity
  // After a failure, one pilot is requested as a trial, and no others until it has succeeded.
  const isTried = own.some(
    (pilot) =>
      pilot.submittedAt >= history.failedAt &&
      !pilot.hasRun &&
      now - startOf(pilot) < minUsefulSeconds,
  )
  return isTried ? 0 : 1
}

/** Whether the allocation proves that its kind works. */
export const provesKind = (pilot: Pick<Pilot, 'hasRun' | 'startedAt'>, now: number): boolean =>
  pilot.hasRun && now - startOf(pilot) >= minUsefulSeconds

const startOf = ({ startedAt }: Pick<Pilot, 'startedAt'>): number => startedAt ?? Infinity

/** The ids of allocations that have been idle for too long, the longest idle first. */
function idleOnes({ idleSeconds }: PilotKind, pilots: readonly Pilot[], now: number): string[] {
  const since = ({ idleSince }: Pilot): number => idleSince ?? Infinity
  return pilots
    .filter((pilot) => now - since(pilot) >= idleSeconds)
    .toSorted((a, b) => since(a) - since(b))
    .map(({ id }) => id)
}

/** The minimum number of such tasks that run concurrently in one allocation of this kind. */
export function roomOf(kind: PilotKind, resources: ResourceRequest): number {
  if ((resources.seconds ?? 0) > kind.usableSeconds) return 0
  const rooms = kind.candidates.map((node) => ranksIn(node, resources)).filter((room) => room > 0)
  if (rooms.length === 0) return 0
  return Math.floor((Math.min(...rooms) * kind.nodes) / resources.ranks)
}

/** Decides which allocations to request and to release. Pure, so that tests can simulate it. */

import type { WaitingWork } from '../../cluster/protocol/placement/placement-state.ts'
import { type NodeResources, maxRanks } from '../../tasks/resource-fit.ts'
import type { ResourceRequest } from '../../tasks/resources.ts'
import {
  hasStopped,
  mayRequestFor,
  nextRequestAt,
  emptyHistory,
  sentKey,
  type PilotHistory,
  workKey,
  minUsefulSeconds,
} from './pilot-history.ts'
import type { AllocationsOptions } from './pilot-options.ts'

export interface PilotKind extends Pick<
  Required<AllocationsOptions>,
  'nodes' | 'min' | 'max' | 'backlog' | 'idleSeconds' | 'maxTotal'
> {
  readonly nodes: number
  /** How long a task can run in an allocation of this kind; `Infinity` without a limit. */
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
  readonly isEnding: boolean
  /** The keys (`workKey`) of the work that the allocation was requested for. */
  readonly work: readonly string[]
  readonly hasRun: boolean
  /** When the allocation became idle, in seconds since the epoch; `null` while it is busy. */
  readonly idleSince: number | null
}

export interface PilotSituation {
  readonly kinds: readonly PilotKind[]
  readonly work: readonly WaitingWork[]
  readonly pilots: readonly Pilot[]
  /** One history per kind. */
  readonly histories: readonly PilotHistory[]
  readonly now: number
}

export interface PilotOrder {
  readonly kind: number
  /** Keys from `workKey`. Empty if the allocation is only needed for `min`. */
  readonly work: readonly string[]
  /** The minimum cores per node; `null` if all nodes of this kind have enough. */
  readonly minCores: number | null
  readonly minMemoryMb: number | null
}

export interface PilotPlan {
  /** At most one request per kind. The next plan is made after the scheduler's answer. */
  readonly submit: readonly PilotOrder[]
  readonly end: readonly string[]
}

/** The tolerated error of sums of fractions, which are not exact. */
const roundingTolerance = 1e-6
const roundUp = (sum: number): number => Math.max(0, Math.ceil(sum - roundingTolerance))
/** How long a ready allocation may take to receive its share of the work. */
const settleSeconds = 5

export function planPilots(situation: PilotSituation): PilotPlan {
  const { kinds, now } = situation
  const states = kinds.map((_, at) => findKindState(situation, at))
  const shares = assignWork(situation, states)
  const submit: PilotOrder[] = []
  const end: string[] = []
  for (const [at, kind] of kinds.entries()) {
    const { queued, running, settled, allowedCount } = states[at] as KindState
    const { allocations, useful, work, cores, memoryMb } = shares[at] as WorkShare
    const wanted = roundUp(allocations)
    const missing = Math.max(0, kind.min - running.length)
    const needed = Math.max(wanted, missing)
    // Keeps the oldest queued allocations, which start first.
    const kept = Math.max(roundUp(useful), missing)
    end.push(...queued.slice(kept).map(({ id }) => id))
    // Allocations that just became ready may not have received all of their work yet.
    const freshCount = Math.min(running.length - settled.length, wanted)
    const isMoreNeeded = needed > queued.length + freshCount
    if (isMoreNeeded && allowedCount > 0 && queued.length < kind.backlog) {
      const minMemoryMb = findMinMemory(kind, memoryMb)
      submit.push({ kind: at, work: [...work], minCores: minCoresOf(kind, cores), minMemoryMb })
    }
    const spareCount = running.length - kind.min
    end.push(...findIdle(kind, settled, now).slice(0, Math.max(0, spareCount)))
  }
  return { submit, end }
}

interface KindState {
  readonly members: readonly Pilot[]
  readonly queued: readonly Pilot[]
  readonly running: readonly Pilot[]
  readonly settled: readonly Pilot[]
  readonly allowedCount: number
  /** The keys (`workKey`) of work that was not run by the allocations requested for it. */
  readonly missed: ReadonlySet<string>
}

function findKindState({ kinds, pilots, histories, now }: PilotSituation, at: number): KindState {
  const { max, maxTotal } = kinds[at] as PilotKind
  const history = histories[at] ?? emptyHistory
  const members = pilots.filter((pilot) => pilot.kind === at)
  const alive = members.filter(({ isEnding }) => !isEnding)
  const running = alive.filter(({ startedAt }) => startedAt !== null)
  const isSettled = ({ readyAt }: Pilot): boolean => now - (readyAt ?? Infinity) >= settleSeconds
  const settled = running.filter(isSettled)
  const allowed = Math.min(max - members.length, maxTotal - history.submitted)
  const isProven = members.some((pilot) => provesKind(pilot, now))
  return {
    members,
    queued: alive.filter(({ startedAt }) => startedAt === null),
    running,
    settled,
    allowedCount: hasStopped(history, isProven)
      ? 0
      : Math.max(0, Math.min(allowed, countTrials(history, members, now))),
    missed: new Set(settled.flatMap(({ hasRun, work }) => (hasRun ? [] : work))),
  }
}

interface WorkShare {
  /** The number of allocations that this work would fill. */
  allocations: number
  /** Like `allocations`, for all suitable work, even if it is assigned to other kinds. */
  useful: number
  readonly work: Set<string>
  /** The most cores that a task, or all its ranks on one node, needs. */
  cores: number
  /** Like `cores`, for memory. */
  memoryMb: number
}

/**
 * Assigns work to the first suitable kind, and the part that exceeds this kind's limits to the
 * next.
 */
function assignWork(situation: PilotSituation, states: readonly KindState[]): readonly WorkShare[] {
  const { kinds, histories } = situation
  const shares = kinds.map((): WorkShare => ({ ...emptyShare, work: new Set() }))
  const choices = groupWork(situation).map((group) => ({
    ...group,
    suitable: group.capacities.flatMap((capacity, at) =>
      capacity > 0 && !isUselessRequest(situation, states, at, group.key) ? [{ at, capacity }] : [],
    ),
  }))
  for (const choice of choices.toSorted((a, b) => a.suitable.length - b.suitable.length)) {
    const { key, count, suitable } = choice
    let left = count
    for (const { at, capacity } of suitable) {
      const { queued, running, settled, allowedCount } = states[at] as KindState
      const share = shares[at] as WorkShare
      const free =
        queued.length + running.length - settled.length + allowedCount - share.allocations
      // If an allocation did not run the work, requests only one more, as a trial.
      const max = histories[at]?.failedWork.has(key) === true ? 1 : Infinity
      share.useful += Math.min(count / capacity, max)
      const taken = Math.min(left, Math.floor(Math.min(free, max) * capacity + roundingTolerance))
      if (taken <= 0) continue
      share.allocations += taken / capacity
      share.work.add(key)
      share.cores = Math.max(share.cores, choice.cores)
      share.memoryMb = Math.max(share.memoryMb, choice.memoryMb)
      left -= taken
    }
  }
  return shares
}

const emptyShare = { allocations: 0, useful: 0, cores: 0, memoryMb: 0 }

interface WorkGroup {
  readonly key: string
  /** How many of these tasks fit into an allocation of each kind. */
  readonly capacities: readonly number[]
  readonly cores: number
  memoryMb: number
  count: number
}

function groupWork({ kinds, work }: PilotSituation): readonly WorkGroup[] {
  const groups = new Map<string, WorkGroup>()
  for (const { resources, count, isSent = false } of work) {
    const assessed = assessRequest(kinds, resources)
    const key = isSent ? sentKey : assessed.key
    const id = isSent ? sentKey : assessed.id
    const known = groups.get(id)
    if (known === undefined) {
      const { capacities, cores, memoryMb } = assessed
      groups.set(id, { key, capacities, cores, memoryMb, count })
      continue
    }
    known.count += count
    known.memoryMb = Math.max(known.memoryMb, assessed.memoryMb)
  }
  return [...groups.values()]
}

interface AssessedRequest extends Omit<WorkGroup, 'count'> {
  /** The same for all requests of a group. */
  readonly id: string
}

/** Cached, because a request may wait during thousands of plans. */
const assessments = new WeakMap<readonly PilotKind[], WeakMap<ResourceRequest, AssessedRequest>>()

function assessRequest(kinds: readonly PilotKind[], resources: ResourceRequest): AssessedRequest {
  const byRequest = assessments.get(kinds) ?? new WeakMap<ResourceRequest, AssessedRequest>()
  assessments.set(kinds, byRequest)
  const known = byRequest.get(resources)
  if (known !== undefined) return known
  const { cores, memoryMb, ranksPerNode = 1 } = resources
  const key = workKey({ resources })
  const capacities = kinds.map((kind) => countCapacity(kind, resources))
  const max = { cores: cores * ranksPerNode, memoryMb: memoryMb * ranksPerNode }
  const assessed = { key, id: `${key} ${capacities.join()}`, capacities, ...max }
  byRequest.set(resources, assessed)
  return assessed
}

/**
 * Returns the memory to request per node; `null` if all nodes have enough. Covers the tasks that
 * fit on the smallest sufficient node. The rest of that node's memory is left to the system.
 */
function findMinMemory({ candidates }: PilotKind, memoryMb: number): number | null {
  const sizes = candidates.map((node) => node.memoryMb)
  const sufficientSizes = sizes.filter((size) => size >= memoryMb)
  if (memoryMb === 0 || sufficientSizes.length === 0 || sufficientSizes.length === sizes.length)
    return null
  return Math.ceil(Math.floor(Math.min(...sufficientSizes) / memoryMb) * memoryMb)
}

const minCoresOf = ({ candidates }: PilotKind, cores: number): number | null =>
  candidates.some((node) => node.cores < cores) ? cores : null

function isUselessRequest(
  { histories, now }: PilotSituation,
  states: readonly KindState[],
  at: number,
  key: string,
): boolean {
  if (states[at]?.missed.has(key) === true) return true
  return !mayRequestFor(histories[at] ?? emptyHistory, key, now)
}

function countTrials(history: PilotHistory, members: readonly Pilot[], now: number): number {
  if (now < nextRequestAt(history)) return 0
  if (history.failures === 0) return Infinity
  // After a failure, only one allocation is requested until it has succeeded.
  const isTrialRunning = members.some(
    (pilot) =>
      pilot.submittedAt >= history.failedAt &&
      !pilot.hasRun &&
      now - startTimeOf(pilot) < minUsefulSeconds,
  )
  return isTrialRunning ? 0 : 1
}

/** Whether the allocation has run tasks and existed for long enough to show that its kind works. */
export const provesKind = (pilot: Pick<Pilot, 'hasRun' | 'startedAt'>, now: number): boolean =>
  pilot.hasRun && now - startTimeOf(pilot) >= minUsefulSeconds

const startTimeOf = ({ startedAt }: Pick<Pilot, 'startedAt'>): number => startedAt ?? Infinity

/** Returns the ids of allocations that were idle for too long, longest first. */
function findIdle({ idleSeconds }: PilotKind, pilots: readonly Pilot[], now: number): string[] {
  const since = ({ idleSince }: Pilot): number => idleSince ?? Infinity
  return pilots
    .filter((pilot) => now - since(pilot) >= idleSeconds)
    .toSorted((a, b) => since(a) - since(b))
    .map(({ id }) => id)
}

/** Returns how many such tasks any allocation of this kind can run concurrently. */
export function countCapacity(kind: PilotKind, resources: ResourceRequest): number {
  if ((resources.seconds ?? 0) > kind.usableSeconds) return 0
  const capacities = kind.candidates
    .map((node) => maxRanks(node, resources))
    .filter((capacity) => capacity > 0)
  if (capacities.length === 0) return 0
  return Math.floor((Math.min(...capacities) * kind.nodes) / resources.ranks)
}

/** Why a task that could run does not: the tasks before it, and what is short. */

import type { RunPass } from './all-panels.ts'
import { type HeldResource, oneCore, type SlotNode, type SlotRequest } from './bounds/slots.ts'
import type { SlotResource } from './bounds/slots.ts'
import { storyOf } from './bounds/task-times.ts'
import { textAt, valueAt } from './columns.ts'
import { hasEnded, hasStarted, stages } from './lifecycle.ts'
import { isInterrupted, stagesOf } from './panels/counts.ts'
import { outcomes } from './panels/lanes.ts'

/** Tasks that ask for the same, wait as well, and have a higher priority or were ready earlier. */
export interface TasksAhead {
  readonly count: number
  /** The first of them to run, by their numbers in the pass. */
  readonly first: readonly number[]
}

/** What the free slots of the backend have too little of. */
export interface Shortage {
  /** `nodes`: none is there. */
  readonly resource: SlotResource | 'nodes'
  /** Of each rank; 0 for labels and nodes. */
  readonly asked: number
  /** On the node that has most of it free, and on the largest one. */
  readonly free: number
  readonly total: number
}

/** Whether it was handed to a backend and has not begun. */
export function isWaiting({ counts }: RunPass, task: number): boolean {
  const passed = stagesOf(counts, task)
  const isReady = (passed & stages.submitted) !== 0 && !isInterrupted(counts, task)
  return isReady && !hasStarted(passed) && !hasEnded(passed)
}

const mostNamed = 3

export function findAhead(pass: RunPass, task: number): TasksAhead {
  const { counts, states } = pass
  const { times, requestOfTask } = states.bounds
  const readyAt = (one: number): number =>
    storyOf(times, one, stagesOf(counts, one)).ready ?? Infinity
  const request = valueAt(requestOfTask, task)
  const toWaiting = (one: number): WaitingTask => ({
    task: one,
    priority: valueAt(states.bounds.priorityOfTask, one),
    ready: readyAt(one),
  })
  const own = toWaiting(task)
  let count = 0
  const first: WaitingTask[] = []
  for (let other = 0; other < counts.index.names.size; other++) {
    if (other === task || !isWaiting(pass, other)) continue
    if (valueAt(requestOfTask, other) !== request) continue
    const waiting = toWaiting(other)
    if (!isBefore(waiting, own)) continue
    count++
    const at = first.findIndex((one) => isBefore(waiting, one))
    first.splice(at === -1 ? first.length : at, 0, waiting)
    first.length = Math.min(first.length, mostNamed)
  }
  return { count, first: first.map((one) => one.task) }
}

interface WaitingTask {
  readonly task: number
  readonly priority: number
  readonly ready: number
}

function isBefore(a: WaitingTask, b: WaitingTask): boolean {
  if (a.priority !== b.priority) return a.priority > b.priority
  return a.ready === b.ready ? a.task < b.task : a.ready < b.ready
}

/** When the next attempt of a task may begin whose latest one failed; `null` for any other task. */
export function retryTimeOf({ counts, states: { lanes } }: RunPass, task: number): number | null {
  const segment = valueAt(lanes.latestOfTask, task) - 1
  const isOver = hasEnded(stagesOf(counts, task)) || isInterrupted(counts, task)
  if (isOver || segment < lanes.first) return null
  if (valueAt(lanes.outcome, segment) !== outcomes.indexOf('retried')) return null
  const end = valueAt(lanes.start, segment) + valueAt(lanes.seconds, segment)
  return end + valueAt(lanes.retryDelay, segment)
}

/** `null` where a slot would fit, or where the record does not tell of nodes. */
export function findShortage(pass: RunPass, task: number): Shortage | null {
  const { bounds } = pass.states
  const request = bounds.requests[valueAt(bounds.requestOfTask, task)]
  if (request === undefined || bounds.nodes.length === 0) return null
  const isHere = ({ backend, changes }: SlotNode): boolean =>
    backend === request.backend && changes.length % 2 === 1
  const here = bounds.nodes.filter(isHere)
  const none = { asked: 0, free: 0, total: 0 }
  if (here.length === 0) return { resource: 'nodes', ...none }
  const labels = Object.entries(request.labels)
  const fitting = here.filter((node) => labels.every(([key, value]) => node.labels[key] === value))
  if (fitting.length === 0) return { resource: 'labels', ...none }
  return scarcestIn(fitting, usedByNode(pass), request)
}

type Amounts = Readonly<Record<HeldResource, number>>

const sizeOf = ({ cores, gpus, memoryMb, workers, processes }: SlotNode): Amounts => ({
  cores,
  gpus,
  memory: memoryMb,
  workers,
  processes,
})

type Asking = Pick<SlotRequest, 'cores' | 'gpus' | 'memoryMb' | 'limit'>

const askedOf = ({ cores, gpus, memoryMb, limit }: Asking): Amounts => ({
  cores,
  gpus,
  memory: memoryMb,
  workers: limit === 'workers' ? 1 : 0,
  processes: limit === 'processes' ? 1 : 0,
})

const kinds = ['gpus', 'memory', 'cores', 'workers', 'processes'] as const
/** A node that does not tell how much it has of these counts as having enough. */
const maybeUntold: ReadonlySet<HeldResource> = new Set(['memory', 'workers', 'processes'])

function scarcestIn(
  nodes: readonly SlotNode[],
  used: ReadonlyMap<string, Amounts>,
  request: SlotRequest,
): Shortage | null {
  const asked = askedOf(request)
  const free = nodes.map((node) => {
    const all = sizeOf(node)
    const taken = used.get(keyOf(node.backend, node.nodeId))
    return mapAmounts((kind) =>
      maybeUntold.has(kind) && all[kind] === 0 ? Infinity : all[kind] - (taken?.[kind] ?? 0),
    )
  })
  const isEnough = (at: number, kind: HeldResource): boolean =>
    (free[at]?.[kind] ?? 0) >= asked[kind]
  if (free.some((_, at) => kinds.every((kind) => isEnough(at, kind)))) return null
  const resource = kinds.find((kind) => !free.some((_, at) => isEnough(at, kind))) ?? 'cores'
  return {
    resource,
    asked: asked[resource],
    free: Math.max(...free.map((one) => one[resource])),
    total: Math.max(...nodes.map((node) => sizeOf(node)[resource])),
  }
}

const mapAmounts = (amount: (kind: HeldResource) => number): Amounts => ({
  cores: amount('cores'),
  gpus: amount('gpus'),
  memory: amount('memory'),
  workers: amount('workers'),
  processes: amount('processes'),
})

const keyOf = (backend: string, nodeId: string): string => JSON.stringify([backend, nodeId])

/** What the tasks that run hold, by backend and node. */
function usedByNode({ states: { lanes, bounds } }: RunPass): Map<string, Amounts> {
  const used = new Map<string, Amounts>()
  const running = outcomes.indexOf('running')
  for (let segment = lanes.first; segment < lanes.size; segment++) {
    if (valueAt(lanes.outcome, segment) !== running) continue
    const node = textAt(lanes.nodes, valueAt(lanes.nodeOfLane, valueAt(lanes.lane, segment)))
    const number = valueAt(bounds.requestOfTask, valueAt(lanes.task, segment))
    const request = bounds.requests[number] ?? oneCore
    const before = used.get(node)
    const held = askedOf(request)
    const taken = (kind: HeldResource): number => (before?.[kind] ?? 0) + held[kind] * request.ranks
    used.set(node, mapAmounts(taken))
  }
  return used
}

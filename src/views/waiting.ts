/** Why a task that could run does not: the tasks before it, and the resource that is short. */

import type { RunPass } from './all-panels.ts'
import type { SlotNode, SlotRequest, SlotResource } from './bounds/slots.ts'
import { storyOf } from './bounds/task-times.ts'
import { textAt, valueAt } from './columns.ts'
import { hasEnded, hasStarted, stages } from './lifecycle.ts'
import { isInterrupted, stagesOf } from './panels/counts.ts'
import { outcomes } from './panels/lanes.ts'

/** Tasks that ask for the same, were ready earlier, and wait as well. */
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
  const own = readyAt(task)
  let count = 0
  const first: { readonly other: number; readonly ready: number }[] = []
  for (let other = 0; other < counts.index.names.size; other++) {
    if (other === task || !isWaiting(pass, other)) continue
    if (valueAt(requestOfTask, other) !== request) continue
    const ready = readyAt(other)
    if (ready > own || (ready === own && other > task)) continue
    count++
    const at = first.findIndex((one) => ready < one.ready)
    first.splice(at === -1 ? first.length : at, 0, { other, ready })
    first.length = Math.min(first.length, mostNamed)
  }
  return { count, first: first.map(({ other }) => other) }
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

type Amounts = Readonly<Record<'cores' | 'gpus' | 'memory', number>>

const amountsOf = (one: { cores: number; gpus: number; memoryMb: number }): Amounts => ({
  cores: one.cores,
  gpus: one.gpus,
  memory: one.memoryMb,
})

function scarcestIn(
  nodes: readonly SlotNode[],
  used: ReadonlyMap<string, Amounts>,
  request: SlotRequest,
): Shortage | null {
  const asked = amountsOf(request)
  const free = nodes.map((node) => {
    const [all, taken] = [amountsOf(node), used.get(keyOf(node.backend, node.nodeId))]
    const left = (kind: keyof Amounts): number => all[kind] - (taken?.[kind] ?? 0)
    return { cores: left('cores'), gpus: left('gpus'), memory: left('memory') }
  })
  const kinds = ['gpus', 'memory', 'cores'] as const
  // A node that does not tell its memory counts as having enough.
  const isEnough = (at: number, kind: keyof Amounts): boolean =>
    (kind === 'memory' && nodes[at]?.memoryMb === 0) || (free[at]?.[kind] ?? 0) >= asked[kind]
  if (free.some((_, at) => kinds.every((kind) => isEnough(at, kind)))) return null
  const resource = kinds.find((kind) => !free.some((_, at) => isEnough(at, kind))) ?? 'cores'
  return {
    resource,
    asked: asked[resource],
    free: Math.max(...free.map((one) => one[resource])),
    total: Math.max(...nodes.map((node) => amountsOf(node)[resource])),
  }
}

const keyOf = (backend: string, nodeId: string): string => JSON.stringify([backend, nodeId])

/** What the tasks that run hold, by backend and node. */
function usedByNode({ states: { lanes, bounds } }: RunPass): Map<string, Amounts> {
  const used = new Map<string, Amounts>()
  const running = outcomes.indexOf('running')
  for (let segment = lanes.first; segment < lanes.size; segment++) {
    if (valueAt(lanes.outcome, segment) !== running) continue
    const node = textAt(lanes.nodes, valueAt(lanes.nodeOfLane, valueAt(lanes.lane, segment)))
    const number = valueAt(bounds.requestOfTask, valueAt(lanes.task, segment))
    const request = bounds.requests[number] ?? { cores: 1, gpus: 0, memoryMb: 0, ranks: 1 }
    const before = used.get(node) ?? { cores: 0, gpus: 0, memory: 0 }
    const held = amountsOf(request)
    used.set(node, {
      cores: before.cores + held.cores * request.ranks,
      gpus: before.gpus + held.gpus * request.ranks,
      memory: before.memory + held.memory * request.ranks,
    })
  }
  return used
}

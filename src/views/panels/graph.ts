/**
 * Graph: the dependencies between tasks. In runs with dependencies, 4 bytes per task and 4 bytes
 * per dependency, up to a limit.
 */

import { type Column, createColumn, setValue, textAt, valueAt } from '../columns.ts'
import { stages } from '../lifecycle.ts'
import type { Panel } from '../panel.ts'
import type { NamesState } from './names.ts'

export interface GraphState {
  /** The index of the task's entry in `edges`, plus 1. An entry is a count and that many tasks. */
  readonly entryOfTask: Column
  readonly edges: Column
  size: number
  tasks: number
  /** The number of dependencies that were not kept, because there were too many. */
  dropped: number
}

export interface GraphQuery {
  readonly names: NamesState
  /** The maximum number of names and of edges, those with the most tasks first. */
  readonly limit: number
}

export interface GraphNode {
  readonly name: string
  readonly tasks: number
  readonly completed: number
  readonly failed: number
  readonly running: number
}

/** `count` tasks named `to` depend on a task named `from`; both are indexes into `nodes`. */
export interface GraphEdge {
  readonly from: number
  readonly to: number
  readonly count: number
}

export interface GraphView {
  readonly nodes: readonly GraphNode[]
  readonly edges: readonly GraphEdge[]
  readonly otherNodes: number
  /** The number of edges between shown names that are not shown themselves. */
  readonly otherEdges: number
  /** The number of dependencies missing from `edges`, because there were too many. */
  readonly dropped: number
}

const maxEdges = 10_000_000

export const graph: Panel<GraphState, GraphQuery, GraphView> = {
  create: () => ({
    entryOfTask: createColumn('u32'),
    edges: createColumn('u32'),
    size: 0,
    tasks: 0,
    dropped: 0,
  }),

  take(state, _event, { stage, before, after, task, dependencies }) {
    if (stage !== stages.created || after === before || dependencies.length === 0) return
    if (state.size + dependencies.length >= maxEdges) {
      state.dropped += dependencies.length
      return
    }
    setValue(state.entryOfTask, task, state.size + 1)
    state.tasks = Math.max(state.tasks, task + 1)
    setValue(state.edges, state.size++, dependencies.length)
    for (const dependency of dependencies) setValue(state.edges, state.size++, dependency)
  },

  show(state, { names, limit }) {
    const order = namesByTotal(names)
    const rank = new Map(order.slice(0, limit).map((name, at) => [name, at]))
    const edges = edgesByName(state, names, rank)
    const shown = edges.toSorted((a, b) => b.count - a.count).slice(0, limit)
    return {
      nodes: [...rank.keys()].map((name) => toNode(names, name)),
      edges: shown,
      otherNodes: order.length - rank.size,
      otherEdges: edges.length - shown.length,
      dropped: state.dropped,
    }
  },
}

/** The numbers of the tasks that this task depends on. */
export function dependenciesOf({ entryOfTask, edges }: GraphState, task: number): number[] {
  const entry = valueAt(entryOfTask, task) - 1
  if (entry === -1) return []
  const count = valueAt(edges, entry)
  return Array.from({ length: count }, (_, at) => valueAt(edges, entry + 1 + at))
}

function namesByTotal({ names, total }: NamesState): number[] {
  return Array.from({ length: names.size }, (_, name) => name)
    .filter((name) => valueAt(total, name) > 0)
    .toSorted((a, b) => valueAt(total, b) - valueAt(total, a))
}

/** Counts edges between names that have a rank; the result refers to ranks. */
function edgesByName(
  state: GraphState,
  names: NamesState,
  rank: ReadonlyMap<number, number>,
): GraphEdge[] {
  const counted = new Map<number, number>()
  const width = rank.size
  for (let task = 0; task < state.tasks; task++) {
    const to = rank.get(valueAt(names.nameOfTask, task))
    if (to === undefined) continue
    for (const dependency of dependenciesOf(state, task)) {
      const from = rank.get(valueAt(names.nameOfTask, dependency))
      if (from === undefined) continue
      const pair = from * width + to
      counted.set(pair, (counted.get(pair) ?? 0) + 1)
    }
  }
  return Array.from(counted, ([pair, count]) => ({
    from: Math.floor(pair / width),
    to: pair % width,
    count,
  }))
}

const toNode = (state: NamesState, name: number): GraphNode => ({
  name: textAt(state.names, name),
  tasks: valueAt(state.total, name),
  completed: valueAt(state.completed, name),
  failed: valueAt(state.failed, name),
  running: valueAt(state.running, name),
})

/**
 * Graph: the dependencies between tasks. In runs with dependencies, uses 4 bytes per task and 4
 * bytes per dependency, up to a limit.
 */

import { createColumn, setValue, textAt, valueAt } from '../columns.ts'
import { stages } from '../lifecycle.ts'
import type { Panel } from '../panel.ts'
import type { NamesState } from './names.ts'

const createGraph = () => ({
  /** The index of each task's entry in `edges`, plus 1; 0 for a task without dependencies. */
  entryOfTask: createColumn('u32'),
  /** For each entry, the number of dependencies, followed by the number of each dependency. */
  edges: createColumn('u32'),
  size: 0,
  tasks: 0,
  /** The number of dependencies that were not kept, because there were too many. */
  dropped: 0,
})

export type GraphState = ReturnType<typeof createGraph>

export interface GraphQuery {
  readonly names: NamesState
  /** The maximum number of names, and of edges. Those with the most tasks come first. */
  readonly limit: number
}

export interface GraphNode {
  readonly name: string
  readonly tasks: number
  readonly completed: number
  readonly failed: number
  readonly running: number
}

/**
 * An edge between two names: `count` tasks of the name `to` depend on a task of the name `from`.
 * Both are indexes into `nodes`.
 */
export interface GraphEdge {
  readonly from: number
  readonly to: number
  readonly count: number
}

export interface GraphView {
  readonly nodes: readonly GraphNode[]
  readonly edges: readonly GraphEdge[]
  readonly otherNodes: number
  /** The number of edges that are not shown although both of their names are shown. */
  readonly otherEdges: number
  readonly dropped: number
}

const maxEdges = 10_000_000

export const graph: Panel<GraphState, GraphQuery, GraphView> = {
  create: createGraph,

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

/** Counts the edges between the names in `rank`. The result contains ranks instead of names. */
function edgesByName(
  state: GraphState,
  names: NamesState,
  rank: ReadonlyMap<number, number>,
): GraphEdge[] {
  const taskCounts = new Map<number, number>()
  const width = rank.size
  for (let task = 0; task < state.tasks; task++) {
    const to = rank.get(valueAt(names.nameOfTask, task))
    if (to === undefined) continue
    for (const dependency of dependenciesOf(state, task)) {
      const from = rank.get(valueAt(names.nameOfTask, dependency))
      if (from === undefined) continue
      const pair = from * width + to
      taskCounts.set(pair, (taskCounts.get(pair) ?? 0) + 1)
    }
  }
  return Array.from(taskCounts, ([pair, count]) => ({
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

/**
 * Returns the depth of each node, which is the length of the longest path to it. The number of
 * rounds is limited, because there may be cycles.
 */
export function assignDepths(count: number, edges: GraphView['edges']): number[] {
  const depth = Array.from({ length: count }, () => 0)
  for (let round = 0; round < count; round++) {
    let isDone = true
    for (const { from, to } of edges) {
      const next = (depth[from] ?? 0) + 1
      if (from === to || next <= (depth[to] ?? 0) || next >= count) continue
      depth[to] = next
      isDone = false
    }
    if (isDone) break
  }
  return depth
}

/** The dependencies of tasks, with the critical path. */

import type { CriticalPath } from '../../views/bounds/critical-path.ts'
import { textAt, valueAt } from '../../views/columns.ts'
import { assignDepths, dependenciesOf, graph } from '../../views/panels/graph.ts'
import type { Filter, GraphPanelView } from '../protocol.ts'
import type { RunMoment } from './run-moment.ts'
import { createTaskFilter } from './selection.ts'
import { createStateReader, type ShownState } from './tasks/task-fields.ts'
import { describeNotShown, nameOfTask, shownText, shownUid } from './shown-texts.ts'

type GraphPanelNode = GraphPanelView['nodes'][number]
type GraphPanelEdge = GraphPanelView['edges'][number]

const maxNodes = 200
const maxEdges = 2000

/** Single tasks if the filter selects at most 200 of them, otherwise the names of the whole run. */
export function showGraph(moment: RunMoment, filter: Filter, path: CriticalPath): GraphPanelView {
  const criticalSeconds = path.length === 0 ? null : path.seconds
  if (moment.pass.states.graph.size === 0) {
    return { isCollapsed: false, nodes: [], edges: [], criticalSeconds, notShown: '' }
  }
  const tasks = selectTasks(moment, filter)
  const shown = tasks.length > maxNodes ? showNames(moment, path) : showTasks(moment, tasks, path)
  const isSelection = filter.name !== undefined || filter.from !== undefined
  const whole = shown.isCollapsed && isSelection ? 'The names are those of the whole run.' : ''
  const notShown = [shown.notShown, whole].filter((part) => part !== '').join(' ')
  return { ...shown, criticalSeconds, notShown }
}

type Shown = Omit<GraphPanelView, 'criticalSeconds'>

/** Returns at most one task more than is shown. */
function selectTasks(moment: RunMoment, filter: Filter): number[] {
  const isSelected = createTaskFilter(moment, filter)
  const { tasks, passed } = moment.columns
  const found: number[] = []
  for (let task = 0; task < tasks && found.length <= maxNodes; task++) {
    if (passed[task] !== 0 && isSelected?.(task) !== false) found.push(task)
  }
  return found
}

function showTasks(moment: RunMoment, tasks: readonly number[], path: CriticalPath): Shown {
  const { graph: state } = moment.pass.states
  const at = new Map(tasks.map((task, number) => [task, number]))
  const critical = new Set(path.tasks.map(({ task }) => task))
  const next = new Map(path.tasks.map(({ task }, step) => [task, path.tasks[step + 1]?.task]))
  const allEdges = tasks.flatMap((task, to) =>
    dependenciesOf(state, task).map((dependency) => ({
      dependency,
      from: at.get(dependency),
      to,
      task,
    })),
  )
  const pairs = allEdges.flatMap(({ from, to, dependency, task }) =>
    from === undefined ? [] : [{ from, to, count: 1, isCritical: next.get(dependency) === task }],
  )
  const depths = assignDepths(tasks.length, pairs)
  const stateOf = createStateReader(moment)
  const nodes = tasks.map((task, number) => ({
    ...countTask(stateOf(task)),
    id: shownUid(moment, task),
    label: nameOfTask(moment, task),
    isCritical: critical.has(task),
    depth: depths[number] ?? 0,
  }))
  const outside = allEdges.length - pairs.length
  const others = ['dependency on other tasks', 'dependencies on other tasks'] as const
  const notShown = describeNotShown([outside, ...others])
  return { isCollapsed: false, nodes, edges: toEdges(nodes, pairs), notShown }
}

const countTask = (
  state: ShownState,
): Pick<GraphPanelNode, 'state' | 'tasks' | 'done' | 'failed' | 'running'> => ({
  state,
  tasks: 1,
  done: state === 'DONE' ? 1 : 0,
  failed: state === 'FAILED' ? 1 : 0,
  running: state === 'RUNNING' ? 1 : 0,
})

function showNames(moment: RunMoment, path: CriticalPath): Shown {
  const { names, pass, isRunning } = moment
  const view = graph.show(pass.states.graph, { names, limit: maxNodes })
  const onPath = path.tasks.map(({ task }) => textAt(names.names, valueAt(names.nameOfTask, task)))
  const critical = new Set(onPath)
  const steps = new Set(onPath.map((name, step) => JSON.stringify([name, onPath[step + 1]])))
  const pairs = view.edges.slice(0, maxEdges).map((edge) => {
    const ends = [view.nodes[edge.from]?.name, view.nodes[edge.to]?.name]
    return { ...edge, isCritical: steps.has(JSON.stringify(ends)) }
  })
  const depths = assignDepths(view.nodes.length, pairs)
  const nodes = view.nodes.map(({ name, tasks, completed, failed, running }, number) => ({
    id: shownText(name),
    label: shownText(name),
    state: null,
    tasks,
    done: completed,
    failed,
    running: isRunning ? running : 0,
    isCritical: critical.has(name),
    depth: depths[number] ?? 0,
  }))
  const { otherNodes, otherEdges, dropped } = view
  const notShown = describeNotShown(
    [otherNodes, 'name'],
    [otherEdges, 'pair of names', 'pairs of names'],
    [dropped, 'dependency', 'dependencies'],
  )
  return { isCollapsed: true, nodes, edges: toEdges(nodes, pairs), notShown }
}

interface Pair {
  readonly from: number
  readonly to: number
  readonly count: number
  readonly isCritical: boolean
}

const toEdges = (nodes: readonly GraphPanelNode[], pairs: readonly Pair[]): GraphPanelEdge[] =>
  pairs.map(({ from, to, count, isCritical }) => ({
    from: nodes[from]?.id ?? '',
    to: nodes[to]?.id ?? '',
    count,
    isCritical,
  }))

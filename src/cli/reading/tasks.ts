/** `tutti tasks`: the tasks of a run, filtered by state, name and node. */

import { countText, secondsText, shortName, timeText } from '../../views/readable.ts'
import { ValueError } from '../../foundation/errors.ts'
import { definedFields, didYouMean } from '../../foundation/options.ts'
import { type TaskState, taskStates } from '../../tasks/lifecycle.ts'
import { findTasks, knownWords, type TaskOrder, type TasksQuery } from '../../views/tasks.ts'
import type { TaskView } from '../../views/tasks.ts'
import type { Output } from '../output.ts'
import { type OpenRecord, recordFields, recordNotes, showRecord } from './open-record.ts'
import { type Column, nameColumn, tableLines } from './text.ts'

export interface TasksCommandOptions {
  readonly state?: string
  readonly name?: string
  readonly node?: string
  readonly scope?: string
  readonly sort?: TaskOrder
  readonly limit: number
}

export async function listTasks(
  what: string,
  options: TasksCommandOptions,
  output: Output,
): Promise<number> {
  const { name, node: nodeId, sort: order, limit } = options
  const state = options.state === undefined ? undefined : toState(options.state)
  const query = { limit, ...definedFields({ state, name, nodeId, order }) }
  return await showRecord(what, output, (record) => show(record, query, output), options.scope)
}

function show(record: OpenRecord, query: TasksQuery, output: Output): void {
  const { tasks: found, total } = findTasks(record.pass, { ...query, now: record.now })
  // After a session has ended, nothing is running.
  const isOver = record.state !== 'running'
  const tasks = isOver ? found.map((task) => ({ ...task, runningFor: null })) : found
  if (total === 0 && record.state !== 'running') expectKnown(record, query)
  const isCut = total > tasks.length
  output.result({ ...recordFields(record), total, tasks: tasks.map(taskFields) }, [
    ...(total === 0 ? ['no such task'] : tableLines(columnsFor(tasks), tasks, output.width)),
    ...(isCut ? [`${tasks.length} of ${countText(total, 'task')}; --limit shows more`] : []),
    ...recordNotes(record),
  ])
}

/** Throws for a name or node that no task has. */
function expectKnown({ pass }: OpenRecord, { name, nodeId }: TasksQuery): void {
  const { names, nodes } = knownWords(pass)
  const isNamed = (known: string): boolean => known === name || shortName(known) === name
  if (name !== undefined && !names.some(isNamed)) {
    throw notThere('--name', name, [...names, ...names.map(shortName)])
  }
  if (nodeId !== undefined && !nodes.includes(nodeId)) throw notThere('--node', nodeId, nodes)
}

const notThere = (field: string, text: string, known: readonly string[]): ValueError =>
  new ValueError(`${field}: no task of the record has "${text}"${didYouMean(text, known)}`, {
    field,
  })

function toState(text: string): TaskState {
  const found = taskStates.find((state) => state === text.toUpperCase())
  if (found !== undefined) return found
  const near = didYouMean(text.toUpperCase(), taskStates)
  throw new ValueError(`--state: there is no state "${text}"${near}`, {
    field: '--state',
    hint: `States are ${taskStates.join(', ')}.`,
  })
}

/** A task as JSON; times are wall-clock seconds. */
export const taskFields = (task: TaskView): object => ({
  uid: task.uid,
  name: task.name,
  scope: task.scope === '' ? null : task.scope,
  state: task.state,
  is_interrupted: task.isInterrupted,
  node_id: task.nodeId === '' ? null : task.nodeId,
  worker_id: task.workerId === '' ? null : task.workerId,
  created: task.story.created,
  ready: task.story.ready,
  submitted: task.story.submitted,
  queued: task.story.queued,
  started: task.story.started,
  ended: task.story.ended,
  waited_seconds: task.waited,
  duration_seconds: task.seconds,
  ran_seconds: task.ran,
  running_seconds: task.runningFor,
  progress: task.progress,
  error_type: task.errorType === '' ? null : task.errorType,
})

/** The total running time, or the time so far of a running task. */
const ranText = ({ ran, runningFor }: TaskView): string =>
  runningFor === null ? secondsText(ran) : `${secondsText(runningFor)} so far`

const columnsFor = (tasks: readonly TaskView[]): readonly Column<TaskView>[] => [
  { head: 'task', cell: ({ uid }) => uid, narrowest: 28 },
  { head: 'state', cell: stateText, dispensable: 1 },
  nameColumn(tasks, { dispensable: 2, narrowest: 12 }),
  ...(tasks.some(({ scope }) => scope !== '') ? [scopeColumn] : []),
  {
    head: 'waited',
    cell: ({ waited }) => secondsText(waited),
    isNumber: true,
    dispensable: 5,
  },
  { head: 'ran', cell: ranText, isNumber: true, dispensable: 3 },
  { head: 'worker', cell: ({ workerId }) => workerId || '-', dispensable: 4, narrowest: 12 },
  { head: 'created', cell: ({ story }) => timeText(story.created), dispensable: 6 },
]

const scopeColumn: Column<TaskView> = {
  head: 'scope',
  cell: ({ scope }) => scope || '-',
  dispensable: 7,
  narrowest: 8,
}

export function stateText({ state, isInterrupted }: TaskView): string {
  return isInterrupted ? `${state} (interrupted)` : state
}

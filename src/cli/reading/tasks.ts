/** `tutti tasks`: lists the tasks of a run by state, name or node. */

import { countText, secondsText, shortName, timeText } from '../../views/readable.ts'
import { ValueError } from '../../foundation/errors.ts'
import { definedFields, didYouMean } from '../../foundation/options.ts'
import { type TaskState, taskStates } from '../../tasks/lifecycle.ts'
import { findTasks, listNamesAndNodes, type TaskOrder, type TasksQuery } from '../../views/tasks.ts'
import type { TaskView } from '../../views/tasks.ts'
import { stateText } from '../../views/texts/task-story.ts'
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
  source: string,
  options: TasksCommandOptions,
  output: Output,
): Promise<number> {
  const { name, node: nodeId, sort: order, limit } = options
  const state = options.state === undefined ? undefined : parseState(options.state)
  const query = { limit, ...definedFields({ state, name, nodeId, order }) }
  return await showRecord(source, output, (record) => show(record, query, output), options.scope)
}

function show(record: OpenRecord, query: TasksQuery, output: Output): void {
  const { tasks: found, total } = findTasks(record.pass, { ...query, now: record.now })
  // After the end of a session, no task is running.
  const isOver = record.state !== 'running'
  const tasks = isOver ? found.map((task) => ({ ...task, runningFor: null })) : found
  if (total === 0 && record.state !== 'running') expectKnownFilters(record, query)
  const isCut = total > tasks.length
  output.result({ ...recordFields(record), total, tasks: tasks.map(taskFields) }, [
    ...(total === 0 ? ['no such task'] : tableLines(columnsFor(tasks), tasks, output.width)),
    ...(isCut ? [`${tasks.length} of ${countText(total, 'task')}; --limit shows more`] : []),
    ...recordNotes(record),
  ])
}

function expectKnownFilters({ pass }: OpenRecord, { name, nodeId }: TasksQuery): void {
  const { names, nodes } = listNamesAndNodes(pass)
  const isNamed = (known: string): boolean => known === name || shortName(known) === name
  if (name !== undefined && !names.some(isNamed)) {
    throw unknownValueError('--name', name, [...names, ...names.map(shortName)])
  }
  if (nodeId !== undefined && !nodes.includes(nodeId))
    throw unknownValueError('--node', nodeId, nodes)
}

const unknownValueError = (field: string, text: string, known: readonly string[]): ValueError =>
  new ValueError(`${field}: no task of the record has "${text}"${didYouMean(text, known)}`, {
    field,
  })

function parseState(text: string): TaskState {
  const found = taskStates.find((state) => state === text.toUpperCase())
  if (found !== undefined) return found
  const near = didYouMean(text.toUpperCase(), taskStates)
  throw new ValueError(`--state: there is no state "${text}"${near}`, {
    field: '--state',
    hint: `States are ${taskStates.join(', ')}.`,
  })
}

/** Times are in wall-clock seconds. */
export const taskFields = (task: TaskView): object => ({
  uid: task.uid,
  name: task.name,
  scope: task.scope || null,
  state: task.state,
  is_interrupted: task.isInterrupted,
  node_id: task.nodeId || null,
  worker_id: task.workerId || null,
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
  error_type: task.errorType || null,
})

const ranText = ({ ran, runningFor }: TaskView): string =>
  runningFor === null ? secondsText(ran) : `${secondsText(runningFor)} so far`

const columnsFor = (tasks: readonly TaskView[]): readonly Column<TaskView>[] => [
  { head: 'task', cell: ({ uid }) => uid, minWidth: 28 },
  { head: 'state', cell: stateText, dropOrder: 1 },
  nameColumn(tasks, { dropOrder: 2, minWidth: 12 }),
  ...(tasks.some(({ scope }) => scope !== '') ? [scopeColumn] : []),
  {
    head: 'waited',
    cell: ({ waited }) => secondsText(waited),
    isNumber: true,
    dropOrder: 5,
  },
  { head: 'ran', cell: ranText, isNumber: true, dropOrder: 3 },
  workerColumn,
  { head: 'created', cell: ({ story }) => timeText(story.created), dropOrder: 6 },
]

export const workerColumn: Column<TaskView> = {
  head: 'worker',
  cell: ({ workerId }) => workerId || '-',
  dropOrder: 4,
  minWidth: 12,
}

const scopeColumn: Column<TaskView> = {
  head: 'scope',
  cell: ({ scope }) => scope || '-',
  dropOrder: 7,
  minWidth: 8,
}

/** Selects the tasks that match a query. */

import { eachText, type TextIndex, toArray } from '../../../views/columns.ts'
import { stages } from '../../../views/lifecycle.ts'
import { listLanes } from '../../../views/panels/lanes.ts'
import { shortName } from '../../../views/readable.ts'
import { uidOf } from '../../../views/task-index.ts'
import type { RunMoment } from '../run-moment.ts'
import type { TaskFilter } from '../selection.ts'
import type { ParsedQuery, TextCondition, TextMatch } from './query-language.ts'
import { createLaneFinder, createRunReader, createStateReader } from './task-fields.ts'
import { createWaitReader, shownStates } from './task-fields.ts'

/** Returns `null` if the query selects all tasks. */
export function createTaskQuery(moment: RunMoment, query: ParsedQuery): TaskFilter | null {
  const filters = [
    ...query.numbers.map(({ key, matches }): TaskFilter => {
      const secondsOf = key === 'waited' ? createWaitReader(moment) : createRunReader(moment)
      return (task) => matches(secondsOf(task))
    }),
    ...query.texts.map((condition) => toFilter(moment, condition)),
  ]
  if (filters.length === 0) return null
  return (task) => filters.every((isSelected) => isSelected(task))
}

function toFilter(moment: RunMoment, { key, isNegated, matches }: TextCondition): TaskFilter {
  const isSelected = key === null ? anyFilter(moment, matches) : fields[key](moment, matches)
  return isNegated ? (task) => !isSelected(task) : isSelected
}

/** Searches the name, the uid and the worker of a task for a word that has no key. */
function anyFilter(moment: RunMoment, matches: TextMatch): TaskFilter {
  const parts = [
    fields.name(moment, matches),
    fields.task(moment, matches),
    fields.worker(moment, matches),
  ]
  return (task) => parts.some((isSelected) => isSelected(task))
}

type FieldFilter = (moment: RunMoment, matches: TextMatch) => TaskFilter

/** Each distinct text is compared once, because many tasks have the same name or worker. */
const fields: Readonly<Record<NonNullable<TextCondition['key']>, FieldFilter>> = {
  task: ({ pass: { counts }, columns }, matches) => {
    const { index } = counts
    if (index.file === 1) return selectRows(index.names, matches, (task) => task)
    const found = Uint8Array.from({ length: columns.tasks }, (_, task) =>
      matches(uidOf(index, task)) ? 1 : 0,
    )
    return (task) => found[task] === 1
  },

  name: ({ names, columns }, matches) => {
    const isNamed = (text: string): boolean => matches(text) || matches(shortName(text))
    return selectRows(names.names, isNamed, (task) => columns.name[task] ?? 0)
  },

  scope: ({ pass: { states }, columns }, matches) => {
    const scopeOf = toArray(states.scopes.scopeOfTask, columns.tasks)
    return selectRows(states.scopes.ids, matches, (task) => (scopeOf[task] ?? 0) - 1)
  },

  node: (moment, matches) => {
    const lanes = listLanes(moment.pass.states.lanes)
    const found = lanes.map(({ nodeId }) => matches(nodeId))
    const laneOf = createLaneFinder(moment)
    return (task) => found[laneOf(task)] === true
  },

  worker: (moment, matches) =>
    selectRows(moment.pass.states.lanes.lanes, matches, createLaneFinder(moment)),

  state: (moment, matches) => {
    const found = new Set(shownStates.filter(matches))
    const stateOf = createStateReader(moment)
    return (task) => found.has(stateOf(task))
  },

  // Selects tasks that have an event of a matching type.
  type: ({ columns }, matches) => {
    const found = Object.entries(eventTypes).filter(([, type]) => matches(type))
    const mask = found.reduce((all, [stage]) => all | stages[stage as keyof typeof stages], 0)
    return (task) => ((columns.passed[task] ?? 0) & mask) !== 0
  },
}

const eventTypes: Readonly<Record<keyof typeof stages, string>> = {
  created: 'TaskCreated',
  submitted: 'TaskSubmitted',
  queued: 'TaskQueued',
  started: 'TaskStarted',
  completed: 'TaskCompleted',
  failed: 'TaskFailed',
  canceled: 'TaskCanceled',
}

function selectRows(
  index: TextIndex,
  matches: TextMatch,
  rowOf: (task: number) => number,
): TaskFilter {
  const found = new Uint8Array(index.size)
  eachText(index, (text, row) => {
    if (matches(text)) found[row] = 1
  })
  return (task) => found[rowOf(task)] === 1
}

/**
 * Identifies the task of an event across all files of a run. A uid chosen by the caller is the same
 * task in every file. A generated uid is a different task in each file, unless its TaskCreated
 * names the earlier task that it continues (`origin_uid`, `origin_files_back`).
 */

import { generatedNumber, uidOfNumber } from '../foundation/ids.ts'
import { type Column, createColumn, createTextIndex, findText, indexOf } from './columns.ts'
import { setValue, textAt, type TextIndex, valueAt } from './columns.ts'
import { numberOf, textOf, type ViewEvent } from './panel.ts'

export interface TaskIndex {
  /**
   * A task's number is the index of its name in this list. The name is the uid; for a generated uid
   * in a later file, the number of that file is appended.
   */
  readonly names: TextIndex
  /** The number of the current file, from 1. */
  file: number
  /** In files after the first, the task plus 1 by the number in its generated uid. */
  ofNumber: Column
  /** For a task that is in `ofNumber`, the number in its latest uid plus 1. */
  readonly latest: Column
}

/** Limits memory: columns have no gaps. Larger generated uids are new tasks in each file. */
const maxNumbers = 2 ** 24
const separator = '\0'

export const createTaskIndex = (): TaskIndex => ({
  names: createTextIndex(),
  file: 1,
  ofNumber: createColumn('u32'),
  latest: createColumn('u32'),
})

/** Call this when the next file of the run begins. */
export function beginFile(index: TaskIndex): void {
  index.file++
  index.ofNumber = createColumn('u32')
}

/** The number of the event's task; adds a task that is unknown. */
export function taskOf(index: TaskIndex, uid: string, event: ViewEvent): number {
  if (index.file === 1) return indexOf(index.names, uid)
  const number = generatedNumber(uid)
  if (number === null) return indexOf(index.names, uid)
  if (number >= maxNumbers) return indexOf(index.names, nameOf(uid, index.file))
  const known = valueAt(index.ofNumber, number)
  if (known > 0) return known - 1
  const task = indexOf(index.names, originOf(index, event) ?? nameOf(uid, index.file))
  setValue(index.ofNumber, number, task + 1)
  setValue(index.latest, task, number + 1)
  return task
}

/** The task with this uid in the current file; -1 if there is none. */
export function findHere(index: TaskIndex, uid: string): number {
  const number = index.file === 1 ? null : generatedNumber(uid)
  if (number === null) return findText(index.names, uid)
  if (number >= maxNumbers) return findText(index.names, nameOf(uid, index.file))
  return valueAt(index.ofNumber, number) - 1
}

/** The latest task with this uid in any file; -1 if there is none. */
export function findTask(index: TaskIndex, uid: string): number {
  const here = findHere(index, uid)
  if (here !== -1 || generatedNumber(uid) === null) return here
  for (let file = index.file - 1; file > 0; file--) {
    const task = findText(index.names, nameOf(uid, file))
    if (task !== -1) return task
  }
  return -1
}

/** The latest uid of a task. */
export function uidOf(index: TaskIndex, task: number): string {
  const latest = valueAt(index.latest, task)
  if (latest > 0) return uidOfNumber(latest - 1)
  const name = textAt(index.names, task)
  const end = name.indexOf(separator)
  return end === -1 || generatedNumber(name.slice(0, end)) === null ? name : name.slice(0, end)
}

const nameOf = (uid: string, file: number): string =>
  file === 1 ? uid : `${uid}${separator}${file}`

/** The name of the earlier task that TaskCreated continues, even if its file is missing. */
function originOf({ file }: TaskIndex, { attributes }: ViewEvent): string | null {
  const uid = textOf(attributes['origin_uid'])
  const back = numberOf(attributes['origin_files_back'])
  return uid === '' || back === null ? null : nameOf(uid, file - back)
}

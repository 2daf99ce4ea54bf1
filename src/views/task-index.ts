/**
 * Which task an event is about, over all files of a run. A uid that its caller chose is one task in
 * every file. A generated one proves nothing: in a later file it is another task, unless its
 * TaskCreated says which earlier task it goes on with (`origin_uid`, `origin_files_back`).
 */

import { generatedNumber, uidOfNumber } from '../foundation/ids.ts'
import { type Column, createColumn, createTextIndex, findText, indexOf } from './columns.ts'
import { setValue, textAt, type TextIndex, valueAt } from './columns.ts'
import { numberOf, textOf, type ViewEvent } from './panel.ts'

export interface TaskIndex {
  /**
   * A name for each task, whose number is the task's: its uid. A generated one that appeared in a
   * later file is followed by the number of that file.
   */
  readonly names: TextIndex
  /** The number of the file that is read, from 1. */
  file: number
  /** In files after the first, by the number of a generated uid: its task in this file, plus 1. */
  ofNumber: Column
  /** Of such a task: the number of the latest uid that it had, plus 1. */
  readonly latest: Column
}

/** Columns have no gaps: generated uids with higher numbers are new tasks in each file. */
const mostNumbers = 2 ** 24
const separator = '\0'

export const createTaskIndex = (): TaskIndex => ({
  names: createTextIndex(),
  file: 1,
  ofNumber: createColumn('u32'),
  latest: createColumn('u32'),
})

/** The next file of the run begins. */
export function beginFile(index: TaskIndex): void {
  index.file++
  index.ofNumber = createColumn('u32')
}

/** The number of the event's task, which it gets now if it has none. */
export function taskOf(index: TaskIndex, uid: string, event: ViewEvent): number {
  if (index.file === 1) return indexOf(index.names, uid)
  const number = generatedNumber(uid)
  if (number === null) return indexOf(index.names, uid)
  if (number >= mostNumbers) return indexOf(index.names, nameOf(uid, index.file))
  const known = valueAt(index.ofNumber, number)
  if (known > 0) return known - 1
  const task = indexOf(index.names, originOf(index, event) ?? nameOf(uid, index.file))
  setValue(index.ofNumber, number, task + 1)
  setValue(index.latest, task, number + 1)
  return task
}

/** The task with this uid in the file that is read; -1 if there is none. */
export function findHere(index: TaskIndex, uid: string): number {
  const number = index.file === 1 ? null : generatedNumber(uid)
  if (number === null) return findText(index.names, uid)
  if (number >= mostNumbers) return findText(index.names, nameOf(uid, index.file))
  return valueAt(index.ofNumber, number) - 1
}

/** The task that had this uid last; -1 if there is none. */
export function findTask(index: TaskIndex, uid: string): number {
  const here = findHere(index, uid)
  if (here !== -1 || generatedNumber(uid) === null) return here
  for (let file = index.file - 1; file > 0; file--) {
    const task = findText(index.names, nameOf(uid, file))
    if (task !== -1) return task
  }
  return -1
}

/** The uid that a task had last. */
export function uidOf(index: TaskIndex, task: number): string {
  const latest = valueAt(index.latest, task)
  if (latest > 0) return uidOfNumber(latest - 1)
  const name = textAt(index.names, task)
  const end = name.indexOf(separator)
  return end === -1 || generatedNumber(name.slice(0, end)) === null ? name : name.slice(0, end)
}

const nameOf = (uid: string, file: number): string =>
  file === 1 ? uid : `${uid}${separator}${file}`

/** The name of the task that TaskCreated says it goes on with; its file may be missing. */
function originOf({ file }: TaskIndex, { attributes }: ViewEvent): string | null {
  const uid = textOf(attributes['origin_uid'])
  const back = numberOf(attributes['origin_files_back'])
  return uid === '' || back === null ? null : nameOf(uid, file - back)
}

/**
 * Identifies the task of an event across all files of a run. A uid that the caller chose means the
 * same task in every file. A generated uid means a different task in each file, unless its
 * TaskCreated names the earlier task that it continues (`origin_uid`, `origin_files_back`).
 */

import { parseUidNumber, formatUid } from '../foundation/ids.ts'
import { type Column, createColumn, createTextIndex, findText, indexOf } from './columns.ts'
import { setValue, textAt, type TextIndex, valueAt } from './columns.ts'
import { numberOf, textOf, type ViewEvent } from './panel.ts'

export interface TaskIndex {
  /**
   * The names of tasks; the index of a name is the number of the task. The name is the uid,
   * followed by the number of the file if the uid was generated in a later file.
   */
  readonly names: TextIndex
  /** The number of the current file, counted from 1. */
  file: number
  /**
   * Maps the number in a generated uid of the current file to the task's number plus 1. Not used
   * for the first file.
   */
  ofNumber: Column
  /** Maps a task to the number in its latest uid plus 1. Contains the tasks of `ofNumber`. */
  readonly latest: Column
}

/** Generated uids with larger numbers are new tasks in each file, in order to limit memory. */
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

/** Returns the number of the event's task. Adds the task if it is unknown. */
export function findOrAddTask(index: TaskIndex, uid: string, event: ViewEvent): number {
  if (index.file === 1) return indexOf(index.names, uid)
  const number = parseUidNumber(uid)
  if (number === null) return indexOf(index.names, uid)
  if (number >= maxNumbers) return indexOf(index.names, formatName(uid, index.file))
  const known = valueAt(index.ofNumber, number)
  if (known > 0) return known - 1
  const task = indexOf(index.names, readOriginName(index, event) ?? formatName(uid, index.file))
  setValue(index.ofNumber, number, task + 1)
  setValue(index.latest, task, number + 1)
  return task
}

/** Returns the task with this uid in the current file, or -1 if there is none. */
export function findInFile(index: TaskIndex, uid: string): number {
  const number = index.file === 1 ? null : parseUidNumber(uid)
  if (number === null) return findText(index.names, uid)
  if (number >= maxNumbers) return findText(index.names, formatName(uid, index.file))
  return valueAt(index.ofNumber, number) - 1
}

/** Returns the latest task with this uid in any file, or -1 if there is none. */
export function findTask(index: TaskIndex, uid: string): number {
  const inFile = findInFile(index, uid)
  if (inFile !== -1 || parseUidNumber(uid) === null) return inFile
  for (let file = index.file - 1; file > 0; file--) {
    const task = findText(index.names, formatName(uid, file))
    if (task !== -1) return task
  }
  return -1
}

/** Returns the latest uid of a task. */
export function uidOf(index: TaskIndex, task: number): string {
  const latest = valueAt(index.latest, task)
  if (latest > 0) return formatUid(latest - 1)
  const name = textAt(index.names, task)
  const end = name.indexOf(separator)
  return end === -1 || parseUidNumber(name.slice(0, end)) === null ? name : name.slice(0, end)
}

const formatName = (uid: string, file: number): string =>
  file === 1 ? uid : `${uid}${separator}${file}`

/** Returns the name of the earlier task that a TaskCreated continues; its file may be missing. */
function readOriginName({ file }: TaskIndex, { attributes }: ViewEvent): string | null {
  const uid = textOf(attributes['origin_uid'])
  const back = numberOf(attributes['origin_files_back'])
  return uid === '' || back === null ? null : formatName(uid, file - back)
}

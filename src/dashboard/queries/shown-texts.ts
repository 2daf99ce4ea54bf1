/**
 * Converts texts of a run to the form that the dashboard shows, and finds tasks by that form. Pure.
 */

import { textAt, valueAt } from '../../views/columns.ts'
import { countText, cutMiddle, escapeControls } from '../../views/readable.ts'
import { findTask, uidOf } from '../../views/task-index.ts'
import { stagesOf } from '../../views/panels/counts.ts'
import type { RunMoment } from './run-moment.ts'

const maxTextLength = 200
const maxLineLength = 2000

/** Escapes control and invisible characters, and cuts the middle out of a long text. */
export const shownText = (text: string, max = maxTextLength): string =>
  cutMiddle(escapeControls(shortenText(text)), max)

/** Like `shownText`, with another limit: for a line of a longer text, such as a task's story. */
export const shownLine = (line: string): string => shownText(line, maxLineLength)

/** Cuts a very long text, so that the following steps examine fewer characters. */
const shortenText = (text: string): string =>
  text.length <= 4 * maxLineLength
    ? text
    : `${text.slice(0, 2 * maxLineLength)}${text.slice(-2 * maxLineLength)}`

/** Finds a task by its uid, or by its uid as shown. Returns its number, or -1 if there is none. */
export function findShownTask({ pass: { counts } }: RunMoment, uid: string): number {
  const found = findTask(counts.index, uid)
  if (found !== -1 && stagesOf(counts, found) !== 0) return found
  if (!isChanged(uid)) return -1
  for (let task = 0; task < counts.index.names.size; task++) {
    if (stagesOf(counts, task) !== 0 && shownText(uidOf(counts.index, task)) === uid) return task
  }
  return -1
}

/** Whether the text may have been shortened or escaped by `shownText`. */
const isChanged = (text: string): boolean => text.includes('…') || text.includes('\\u')

/** How much a view leaves out, in words; empty if it leaves out nothing. */
export function describeNotShown(...parts: Parameters<typeof countText>[]): string {
  const texts = parts.filter(([count]) => count > 0).map((part) => countText(...part))
  return texts.length === 0 ? '' : `Not shown: ${texts.join(', ')}.`
}

/** Rounds a time, so that answers with thousands of times are short. */
export const rounded = (seconds: number): number => Math.round(seconds * 1e6) / 1e6

/** The name of a task, escaped and cut. */
export const nameOfTask = ({ names }: RunMoment, task: number): string =>
  shownText(textAt(names.names, valueAt(names.nameOfTask, task)))

export const shownUid = ({ pass: { counts } }: RunMoment, task: number): string =>
  shownText(uidOf(counts.index, task))

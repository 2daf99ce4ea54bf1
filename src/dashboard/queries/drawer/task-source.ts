/** The data of one task that is not in the views: its events, its limit and its output. */

import { closeSync, fstatSync, readSync } from 'node:fs'
import { tryRead } from '../../../foundation/errors.ts'
import { openRegularFileSync } from '../../../foundation/regular-file.ts'
import { type KeptOutput, readNameLimit, type Stream } from '../../../record/task-history.ts'
import type { ViewEvent } from '../../../views/panel.ts'
import { escapeLines } from '../../../views/readable.ts'
import type { TaskLimit } from '../../../views/texts/task-story.ts'
import type { TaskDrawerView } from '../../protocol.ts'
import type { QuerySource } from '../query-source.ts'

export interface TaskSource {
  /** The known events, oldest first. */
  readonly events: readonly ViewEvent[]
  readonly files: readonly string[]
  readonly limit: TaskLimit | null
  readonly kept: KeptOutput | null
  readonly isReading: boolean
  /** Whether later events are left out because an earlier time is shown. */
  readonly isPast: boolean
}

/** Reads the record for the task. Uses the latest events until the record has been read. */
export async function readTask(
  source: QuerySource,
  uid: string,
  name: string,
): Promise<TaskSource> {
  const { files, now } = source
  const limit = await readNameLimit(files, name).catch(() => null)
  const record = await source.readTask(uid)
  const isReading = record?.isReading === true
  const known =
    record === null || isReading
      ? source.events.filter(({ task_id: task }) => task === uid)
      : record.events
  const events = known.filter(({ event_time: time }) => time <= now)
  const isPast = events.length < known.length
  return { events, files, limit, kept: isPast ? null : (record?.kept ?? null), isReading, isPast }
}

type Output = Pick<TaskDrawerView, 'stdout' | 'stderr'>

const maxOutputLength = 20_000

/**
 * The last part of a program's output: from the files of `captureStdio`, or as stored in the
 * record. `tails` are the last parts that were stored with the task's failure.
 */
export function readOutput(
  { events, kept, isPast }: TaskSource,
  tails: Readonly<Record<Stream, string>>,
): Output {
  const read = (stream: Stream): Output['stdout'] => {
    const path = isPast ? '' : lastText(events, `${stream}_path`)
    const isShownAbove = stream === 'stderr' && path === lastText(events, 'stdout_path')
    const file = path === '' ? null : tryRead(() => readEnd(path))
    if (file !== null && file !== undefined) return isShownAbove ? null : toOutput(file)
    if (kept !== null) return toOutput({ text: kept[stream].text, isCut: kept[stream].isTail })
    const text = lastText(events, `${stream}_tail`) || tails[stream]
    return toOutput({ text, isCut: text.length >= minCutLength })
  }
  return { stdout: read('stdout'), stderr: read('stderr') }
}

/**
 * A text of this length was cut: the record keeps only the last 2 KB of an output. Some bytes may
 * be missing, because the cut may be inside a character.
 */
const minCutLength = 2000

function lastText(events: readonly ViewEvent[], key: string): string {
  const value = events.findLast(({ attributes }) => attributes[key] !== undefined)?.attributes[key]
  return typeof value === 'string' ? value : ''
}

interface End {
  readonly text: string
  readonly isCut: boolean
}

/** Throws if there is no such regular file on this machine. */
function readEnd(path: string): End {
  const fd = openRegularFileSync(path)
  try {
    const { size } = fstatSync(fd)
    const from = Math.max(0, size - maxOutputLength)
    const bytes = Buffer.alloc(size - from)
    const length = readSync(fd, bytes, 0, bytes.length, from)
    return { text: bytes.toString('utf8', 0, length), isCut: from > 0 }
  } finally {
    closeSync(fd)
  }
}

function toOutput({ text, isCut }: End): Output['stdout'] {
  if (text === '') return null
  return {
    text: escapeLines(text.slice(-maxOutputLength)),
    isCut: isCut || text.length > maxOutputLength,
  }
}

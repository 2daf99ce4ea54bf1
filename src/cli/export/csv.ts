/** The tasks of a run as CSV: a header, then one row per task. Pure. */

import type { RunPass } from '../../views/all-panels.ts'
import { failures } from '../../views/panels/failures.ts'
import { eachTask, type TaskView } from '../../views/tasks.ts'

type Value = string | number | null

const columns: readonly (readonly [head: string, value: (task: TaskView) => Value])[] = [
  ['uid', ({ uid }) => uid],
  ['name', ({ name }) => name],
  ['state', ({ state }) => state],
  ['node_id', ({ nodeId }) => nodeId],
  ['worker_id', ({ workerId }) => workerId],
  ['created', ({ story }) => story.created],
  ['ready', ({ story }) => story.ready],
  ['submitted', ({ story }) => story.submitted],
  ['queued', ({ story }) => story.queued],
  ['started', ({ story }) => story.started],
  ['ended', ({ story }) => story.ended],
  ['duration_seconds', ({ seconds }) => seconds],
  ['ran_seconds', ({ ran }) => ran],
]

const rowsAtOnce = 1000

/**
 * Yields many rows at a time, in order of creation. Times are wall-clock seconds. Needs the
 * complete pass first: most runs create all tasks first, and the last file of a resumed run may
 * change any row.
 */
export function* csvRows(pass: RunPass): Generator<string> {
  const { groups } = failures.show(pass.states.failures, { limit: Infinity })
  const errorTypes = new Map(groups.map(({ number, errorType }) => [number, errorType]))
  let piece = `${[...columns.map(([head]) => head), 'error_type'].join(',')}\r\n`
  let count = 0
  for (const task of eachTask(pass)) {
    const values = columns.map(([, value]) => value(task))
    const error = errorTypes.get(task.failureGroup) ?? ''
    piece += `${[...values, error].map(cell).join(',')}\r\n`
    if (++count % rowsAtOnce !== 0) continue
    yield piece
    piece = ''
  }
  yield piece
}

/** RFC 4180. A text that a spreadsheet would read as a formula is prefixed with a quote. */
function cell(value: Value): string {
  if (value === null) return ''
  if (typeof value === 'number') return String(value)
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text
}

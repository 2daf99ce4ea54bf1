/** `tutti explain`: shows the history of a task and, while it waits, the reason. */

import { ValueError } from '../../../foundation/errors.ts'
import { didYouMean } from '../../../foundation/options.ts'
import { textAt } from '../../../views/columns.ts'
import { uidOf } from '../../../views/task-index.ts'
import type { FailureExample, FailureGroup } from '../../../views/panels/failures.ts'
import { explainTask, type TaskExplanation } from '../../../views/tasks.ts'
import { readNameLimit, readTaskFailure } from '../../../record/task-history.ts'
import type { Output } from '../../output.ts'
import { waitingSeconds } from '../../../views/texts/task-lines.ts'
import { createTaskStory, taskStoryLines } from '../../../views/texts/task-story.ts'
import { exampleFields } from '../failures.ts'
import { type OpenRecord, recordFields, recordNotes } from '../open-record.ts'
import { recordArgument, showRecord } from '../open-record.ts'
import { taskFields } from '../tasks.ts'

export async function explain(uid: string, source: string, output: Output): Promise<number> {
  return await showRecord(source, output, async (record) => await show(record, uid, output))
}

async function show(record: OpenRecord, uid: string, output: Output): Promise<void> {
  const task = findTask(record, uid)
  const nameLimit = await readNameLimit(record.files, task.name)
  const story = createTaskStory(record, task, nameLimit)
  const { failure, limit, usual, waits } = story
  const ownFailure = task.state === 'FAILED' ? await findFailure(record, task.uid, failure) : null
  const value = {
    ...recordFields(record),
    task: taskFields(record.state === 'running' ? task : { ...task, runningFor: null }),
    waits,
    waiting_seconds: waitingSeconds(record, task),
    begun_before: tasksAheadFields(task),
    attempts: task.attempts.map(({ start, end, seconds, outcome, lane, error, ...one }) => ({
      attempt: one.attempt,
      worker_id: textAt(record.pass.states.lanes.lanes, lane),
      start,
      end: outcome === 'running' ? null : end,
      seconds,
      outcome,
      error: error === '' ? null : error,
      is_earlier: one.isEarlier,
    })),
    cancel_reason: task.cancelReason,
    reused_at: task.reuses.map(({ time }) => time),
    reused_from: task.reuses.map(({ source }) => source),
    moved: task.moved === null ? null : { time: task.moved.time, node_id: task.moved.nodeId },
    dependencies: task.dependencies,
    waits_for: task.waitsFor,
    tasks_ahead: task.ahead,
    behind: task.firstAhead,
    shortage: task.shortage,
    held_up_by: task.heldUpBy,
    limit,
    retry_at: task.retryAt,
    usual_seconds: usual,
    failure: failure === null ? null : failureFields(failure, ownFailure),
  }
  output.result(value, [...taskStoryLines(record, task, story, ownFailure), ...recordNotes(record)])
}

async function findFailure(
  { files }: OpenRecord,
  uid: string,
  group: FailureGroup | null,
): Promise<FailureExample | null> {
  return group?.example.task === uid ? group.example : await readTaskFailure(files, uid)
}

function tasksAheadFields({ earlierStarts }: TaskExplanation): object {
  const { count, larger, lastLarger: last, freedBy } = earlierStarts
  const lastFields = last && {
    uid: last.uid,
    cores: last.cores,
    gpus: last.gpus,
    memory_mb: last.memoryMb,
    freed_by: last.freedBy?.uid ?? null,
  }
  return { count, larger, last_larger: lastFields, freed_by: freedBy?.uid ?? null }
}

/** Returns the explanation of a task. `uid` may be a unique prefix of the task's uid. */
export const findTask = (record: OpenRecord, uid: string): TaskExplanation =>
  explainTask(record.pass, uid, record.now) ?? findByPrefix(record, uid)

function findByPrefix(record: OpenRecord, uid: string): TaskExplanation {
  const { pass, sessionId, now } = record
  const { index } = pass.counts
  const known: string[] = []
  const found: string[] = []
  for (let task = 0; task < index.names.size; task++) {
    const text = uidOf(index, task)
    if (text.startsWith(uid)) found.push(text)
    if (known.length < maxCompared) known.push(text)
  }
  const one = found.length === 1 ? explainTask(pass, found[0] ?? '', now) : null
  if (one !== null) return one
  const sourceText = sessionId === '' ? 'the record' : `session ${sessionId}`
  const problem =
    found.length > 1
      ? `"${uid}" is the beginning of ${found.length} tasks: ${listFirst(found)}`
      : `there is no task "${uid}" in ${sourceText}${didYouMean(uid, known)}`
  throw new ValueError(problem, {
    code: 'TaskNotFoundError',
    hint: `List them with: npx tutti tasks ${recordArgument(record)}`,
  })
}

const maxCompared = 1000

const listFirst = (uids: readonly string[]): string =>
  `${uids.slice(0, 3).join(', ')}${uids.length > 3 ? ', …' : ''}`

/** Without `own`, returns only the fields that all failures of the group share. */
function failureFields(
  { errorType, message, example: { program, ...example } }: FailureGroup,
  own: FailureExample | null,
): object {
  const texts = { message, hint: '', stack: '', stdoutTail: '', stderrTail: '', signal: '' }
  const shared = { ...example, ...texts, program, causes: [], arguments: [], exitCode: null }
  return { error_type: errorType, ...exampleFields(own ?? shared) }
}

/** `tutti explain`: the history of one task and, while it waits, the reason. */

import { countText, firstLine, secondsText, shortName } from '../../../views/readable.ts'
import { ValueError } from '../../../foundation/errors.ts'
import { didYouMean } from '../../../foundation/options.ts'
import { textAt, valueAt } from '../../../views/columns.ts'
import { uidOf } from '../../../views/task-index.ts'
import {
  endText,
  type FailureExample,
  failureOf,
  type FailureGroup,
  failures,
} from '../../../views/panels/failures.ts'
import { durationsByName } from '../../../views/panels/names.ts'
import { statsInPlace } from '../../../views/stats.ts'
import { numberOf } from '../../../views/panel.ts'
import { explainTask, type TaskExplanation } from '../../../views/tasks.ts'
import { isPipe, readSessionStart } from '../../../checkpoint/chain.ts'
import { readBatches } from '../../../checkpoint/reader.ts'
import type { Output } from '../../output.ts'
import { causeFields, exampleLines, maxTitleLength } from '../failures.ts'
import { type OpenRecord, recordFields, recordNotes, recordWord } from '../open-record.ts'
import { showRecord } from '../open-record.ts'
import { stateText, taskFields } from '../tasks.ts'
import { attemptLines, dependencyLines, remarkLines, storyLines } from './story-lines.ts'
import { waitingLines, waitingSeconds, waitsOf } from './story-lines.ts'

export async function explain(uid: string, what: string, output: Output): Promise<number> {
  return await showRecord(what, output, async (record) => await show(record, uid, output))
}

async function show(record: OpenRecord, uid: string, output: Output): Promise<void> {
  const task = findTask(record, uid)
  const waits = waitsOf(task, record.pass.states.bounds.pauses)
  const failure = groupOf(record, task)
  const own = task.state === 'FAILED' ? await failureIn(record, task.uid, failure) : null
  const ofName = await limitOf(record, task)
  const limit = isWaitingForLimit(record, task) ? ofName : null
  const usual = task.runningFor === null ? null : usualSeconds(record, task)
  const value = {
    ...recordFields(record),
    task: taskFields(record.state === 'running' ? task : { ...task, runningFor: null }),
    waits,
    waiting_seconds: waitingSeconds(record, task),
    begun_before: begunFields(task),
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
    behind: task.behind,
    shortage: task.shortage,
    held_up_by: task.heldUpBy,
    limit,
    retry_at: task.retryAt,
    usual_seconds: usual,
    failure: failure === null ? null : failureFields(failure, own),
  }
  output.result(value, [
    `${task.uid}  ${shortName(task.name)}  ${stateText(task)}`,
    ...(shortName(task.name) === task.name || task.name === '' ? [] : [`  ${task.name}`]),
    ...(task.scope === '' ? [] : [`  in scope ${firstLine(task.scope, maxTitleLength)}`]),
    ...storyLines(task, waits, ofName === null ? null : limitText(ofName)),
    ...dependencyLines(task),
    ...attemptLines(record, task),
    ...(usual === null ? [] : [`  usual for its name: ${secondsText(usual)} (median)`]),
    ...remarkLines(task),
    ...(failure === null ? [] : failureLines(failure, own)),
    ...(limit === null ? [] : [`  waits for the limit of its name: ${limitText(limit)}`]),
    ...waitingLines(record, task),
    ...recordNotes(record),
  ])
}

/** The session's limit on tasks with a given name. */
interface Limit {
  readonly concurrent: number | null
  readonly per_second: number | null
}

/** The median duration of tasks with the same name; `null` if none has finished. */
function usualSeconds({ pass }: OpenRecord, { task }: TaskExplanation): number | null {
  const { names } = pass.states
  const durations = durationsByName(names)[valueAt(names.nameOfTask, task)]
  return durations === undefined || durations.length === 0 ? null : statsInPlace(durations).p50
}

/** Whether the task has a backend but is not in its queue, or its next attempt is due. */
function isWaitingForLimit({ state, now }: OpenRecord, task: TaskExplanation): boolean {
  const isDue = task.retryAt !== null && task.retryAt <= now
  return state === 'running' && (task.state === 'SUBMITTED' || isDue)
}

/** The latest session's limit on tasks with this name; `null` if there is none. */
async function limitOf({ files }: OpenRecord, task: TaskExplanation): Promise<Limit | null> {
  const file = files.at(-1) ?? ''
  if (isPipe(file)) return null
  const limits = (await readSessionStart(file))?.attributes['tutti.limits']
  if (typeof limits !== 'object' || limits === null || !Object.hasOwn(limits, task.name))
    return null
  const found = (limits as Record<string, Readonly<Record<string, unknown>> | null>)[task.name]
  const [concurrent, perSecond] = [numberOf(found?.['concurrent']), numberOf(found?.['per_second'])]
  return { concurrent, per_second: perSecond }
}

const limitText = ({ concurrent, per_second: perSecond }: Limit): string =>
  [
    ...(concurrent === null ? [] : [`at most ${concurrent} at a time`]),
    ...(perSecond === null ? [] : [`at most ${perSecond} per second`]),
  ].join(', ')

const begunFields = ({ begunBefore }: TaskExplanation): object => ({
  count: begunBefore.count,
  larger: begunBefore.larger,
  last_larger:
    begunBefore.lastLarger === null
      ? null
      : {
          uid: begunBefore.lastLarger.uid,
          cores: begunBefore.lastLarger.cores,
          gpus: begunBefore.lastLarger.gpus,
          memory_mb: begunBefore.lastLarger.memoryMb,
          freed_by: begunBefore.lastLarger.freedBy?.uid ?? null,
        },
  freed_by: begunBefore.freedBy?.uid ?? null,
})

/** Finds a task by its uid or a unique prefix of the uid. */
export const findTask = (record: OpenRecord, uid: string): TaskExplanation =>
  explainTask(record.pass, uid, record.now) ?? explainShortened(record, uid)

/** Finds a task by a unique prefix of its uid. */
function explainShortened(record: OpenRecord, uid: string): TaskExplanation {
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
  const where = sessionId === '' ? 'the record' : `session ${sessionId}`
  const problem =
    found.length > 1
      ? `"${uid}" is the beginning of ${found.length} tasks: ${found.slice(0, 3).join(', ')}, …`
      : `there is no task "${uid}" in ${where}${didYouMean(uid, known)}`
  throw new ValueError(problem, {
    code: 'TaskNotFoundError',
    hint: `List them with: npx tutti tasks ${recordWord(record)}`,
  })
}

const maxCompared = 1000

function groupOf({ pass }: OpenRecord, { failureGroup }: TaskExplanation): FailureGroup | null {
  if (failureGroup === 0) return null
  const { groups } = failures.show(pass.states.failures, { limit: Infinity })
  return groups.find(({ number }) => number === failureGroup) ?? null
}

/** The views have one failure per group; failures of other tasks are read from the record. */
async function failureIn(
  { files }: OpenRecord,
  uid: string,
  group: FailureGroup | null,
): Promise<FailureExample | null> {
  if (group?.example.task === uid) return group.example
  for (const file of files.toReversed()) {
    if (isPipe(file)) return null
    let found: FailureExample | null = null
    for await (const batch of readBatches(file, { skipSpans: true })) {
      for (const line of batch) {
        const isIt = line.section === 'event' && line.task_id === uid
        if (isIt && line.event_type === 'TaskFailed') found = failureOf(line)
      }
    }
    if (found !== null) return found
  }
  return null
}

const failureFields = (
  { errorType, message, example }: FailureGroup,
  own: FailureExample | null,
) => ({
  error_type: errorType,
  program: (own ?? example).program,
  message: own?.message ?? message,
  hint: own === null || own.hint === '' ? null : own.hint,
  causes: (own?.causes ?? []).map(causeFields),
  stack: own?.stack ?? '',
  stdout_tail: own?.stdoutTail ?? '',
  stderr_tail: own?.stderrTail ?? '',
  arguments: own?.arguments ?? [],
  exit_code: own?.exitCode ?? null,
  signal: own === null || own.signal === '' ? null : own.signal,
})

function failureLines({ errorType, message, count }: FailureGroup, own: FailureExample | null) {
  const end = own === null ? '' : endText(own)
  const title = firstLine(own?.message ?? message, maxTitleLength)
  const others = count > 1 ? ` (${countText(count, 'task')} failed this way)` : ''
  return [
    `  ${errorType} "${title}"${end && `, ${end}`}${others}`,
    ...(own === null ? [] : exampleLines(own)),
  ]
}

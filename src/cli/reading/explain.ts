/** `tutti explain`: the story of one task, and while it waits, what for. */

import { countText, firstLine, secondsText, timeText } from '../../views/readable.ts'
import { ValueError } from '../../foundation/errors.ts'
import { didYouMean } from '../../foundation/options.ts'
import { textAt } from '../../views/columns.ts'
import { uidOf } from '../../views/task-index.ts'
import {
  type FailureExample,
  failureOf,
  type FailureGroup,
  failures,
} from '../../views/panels/failures.ts'
import { explainTask, type TaskExplanation } from '../../views/tasks.ts'
import { isPipe } from '../../checkpoint/chain.ts'
import { readBatches } from '../../checkpoint/reader.ts'
import type { Output } from '../output.ts'
import { endText, exampleLines } from './failures.ts'
import { type OpenRecord, recordFields, recordNotes, showRecord } from './open-record.ts'
import { taskFields } from './tasks.ts'

/** In seconds; `null` for what has not happened. Together they are the life of the task. */
interface Waits {
  /** Until its last dependency had ended. */
  readonly dependencies: number | null
  /** Until a backend was chosen and had it in its queue. */
  readonly routing: number | null
  /** Until its worker was free. */
  readonly queue: number | null
  /** Until it began there. */
  readonly start: number | null
  /** All attempts, with the waits between them. */
  readonly run: number | null
}

export async function explain(uid: string, what: string, output: Output): Promise<number> {
  return await showRecord(what, output, async (record) => await show(record, uid, output))
}

async function show(record: OpenRecord, uid: string, output: Output): Promise<void> {
  const task = explainTask(record.pass, uid) ?? explainShortened(record, uid)
  const waits = waitsOf(task)
  const failure = groupOf(record, task)
  const own = task.state === 'FAILED' ? await failureIn(record, task.uid, failure) : null
  const value = {
    ...recordFields(record),
    task: taskFields(task),
    waits,
    attempts: task.attempts.map(({ start, end, outcome, lane }) => ({
      worker_id: textAt(record.pass.states.lanes.lanes, lane),
      start,
      end: outcome === 'running' ? null : end,
      outcome,
    })),
    waits_for: task.waitsFor,
    tasks_ahead: task.ahead,
    behind: task.behind,
    shortage: task.shortage,
    held_up_by: task.heldUpBy,
    retry_at: task.retryAt,
    failure: failure === null ? null : failureFields(failure, own),
  }
  output.result(value, [
    `${task.uid}  ${task.name}  ${task.state}${task.isInterrupted ? ' (interrupted)' : ''}`,
    ...storyLines(task, waits),
    ...attemptLines(record, task),
    ...(failure === null ? [] : failureLines(failure, own)),
    ...waitingLines(record, task),
    ...recordNotes(record),
  ])
}

/** A uid that is shortened to what is unique. */
function explainShortened({ pass, sessionId }: OpenRecord, uid: string): TaskExplanation {
  const { index } = pass.counts
  const known: string[] = []
  const found: string[] = []
  for (let task = 0; task < index.names.size; task++) {
    const text = uidOf(index, task)
    if (text.startsWith(uid)) found.push(text)
    if (known.length < mostCompared) known.push(text)
  }
  const one = found.length === 1 ? explainTask(pass, found[0] ?? '') : null
  if (one !== null) return one
  const where = sessionId === '' ? 'the record' : `session ${sessionId}`
  const problem =
    found.length > 1
      ? `"${uid}" is the beginning of ${found.length} tasks: ${found.slice(0, 3).join(', ')}, …`
      : `there is no task "${uid}" in ${where}${didYouMean(uid, known)}`
  throw new ValueError(problem, {
    code: 'TaskNotFoundError',
    hint: 'List them with: npx tutti tasks',
  })
}

const mostCompared = 1000

function waitsOf({ story, workerFree }: TaskExplanation): Waits {
  const { created, ready, queued, submitted, started, ended } = story
  const inQueue = queued ?? submitted
  const between = (from: number | null, to: number | null): number | null =>
    from === null || to === null ? null : Math.max(0, to - from)
  const free =
    inQueue === null || started === null
      ? null
      : Math.min(started, Math.max(inQueue, workerFree ?? inQueue))
  return {
    dependencies: between(created, ready),
    routing: between(ready, inQueue),
    queue: between(inQueue, free),
    start: between(free, started),
    run: between(started, ended),
  }
}

function storyLines({ story }: TaskExplanation, waits: Waits): string[] {
  const row = (what: string, seconds: number | null): string[] =>
    seconds === null ? [] : [`  ${secondsText(seconds).padStart(9)}  ${what}`]
  return [
    `  created ${timeText(story.created)}`,
    ...row('waited for dependencies', waits.dependencies),
    ...row('until a backend had it in its queue', waits.routing),
    ...row('waited in the queue for a worker', waits.queue),
    ...row('until it began there', waits.start),
    ...row('ran', waits.run),
    ...(story.ended === null ? [] : [`  ended ${timeText(story.ended, story.created)}`]),
  ]
}

function attemptLines({ pass, state }: OpenRecord, { attempts }: TaskExplanation): string[] {
  return attempts.map(({ lane, start, end, outcome }, at) => {
    const worker = textAt(pass.states.lanes.lanes, lane)
    const seconds = secondsText(end - start)
    // Of an attempt whose process was killed only the begin is known.
    const isKnown = outcome !== 'lost' || end > start
    const ended = isKnown ? `${outcome} after ${seconds}` : `${outcome}, it is not known when`
    // Nothing runs in a session that is over; its last event may be older than the end.
    const open = state === 'running' ? `runs for ${seconds}` : `ran for ${seconds} or longer`
    const how = outcome === 'running' ? open : ended
    return `  attempt ${at + 1} on ${worker}: ${how}`
  })
}

function groupOf({ pass }: OpenRecord, { failureGroup }: TaskExplanation): FailureGroup | null {
  if (failureGroup === 0) return null
  const { groups } = failures.show(pass.states.failures, { limit: Infinity })
  return groups.find(({ number }) => number === failureGroup) ?? null
}

/** The views keep one failure of a group; that of another task is in the record alone. */
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

const failureFields = ({ errorType, message }: FailureGroup, own: FailureExample | null) => ({
  error_type: errorType,
  message: own?.message ?? message,
  hint: own === null || own.hint === '' ? null : own.hint,
  stack: own?.stack ?? '',
  stdout_tail: own?.stdoutTail ?? '',
  stderr_tail: own?.stderrTail ?? '',
  arguments: own?.arguments ?? [],
  exit_code: own?.exitCode ?? null,
  signal: own === null || own.signal === '' ? null : own.signal,
})

function failureLines(
  { errorType, message, count, name }: FailureGroup,
  own: FailureExample | null,
) {
  const end = own === null ? '' : endText(own)
  const others = count > 1 ? ` (${countText(count, 'task')} failed so)` : ''
  return [
    `  ${errorType} "${firstLine(own?.message ?? message, 200)}"${end && `, ${end}`}${others}`,
    ...(own === null ? [] : exampleLines(own, name)),
  ]
}

function waitingLines({ state }: OpenRecord, task: TaskExplanation): string[] {
  const lines: string[] = []
  const { waitsFor, ahead, behind, shortage, heldUpBy } = task
  const isOver = state !== 'running'
  const waits = isOver ? 'waited' : 'waits'
  if (waitsFor.length > 0) {
    const others = waitsFor.length > 5 ? ` and ${waitsFor.length - 5} more` : ''
    lines.push(`  ${waits} for ${waitsFor.slice(0, 5).join(', ')}${others}`)
  }
  if (ahead > 0) {
    const others = ahead > behind.length ? ` and ${ahead - behind.length} more` : ''
    lines.push(`  ${isOver ? 'was ' : ''}behind ${behind.join(', ')}${others}`)
  }
  if (heldUpBy !== null && heldUpBy.shortage.resource !== shortage?.resource) {
    lines.push(`  ${heldUpBy.uid} ${shortageText(heldUpBy.shortage, isOver)}`)
  }
  if (shortage !== null) lines.push(`  ${shortageText(shortage, isOver)}`)
  if (task.retryAt !== null) {
    const next = task.attempts.length + 1
    const begins = isOver ? 'would have begun' : 'begins'
    const when = `which ${begins} at ${timeText(task.retryAt)} or later`
    lines.push(`  ${waits} for attempt ${next}, ${when}`)
  }
  const isOpen = task.story.ended === null && task.story.started === null
  if (isOpen && isOver) lines.push('  it never began: the session is over')
  return lines
}

function shortageText(
  { resource, asked, free, total, labels }: NonNullable<TaskExplanation['shortage']>,
  isOver: boolean,
): string {
  const [waits, run, are, is] = isOver
    ? (['waited', 'ran', 'were', 'was'] as const)
    : (['waits', 'run', 'are', 'is'] as const)
  const wanted = Object.entries(labels).map((pair) => pair.join('='))
  const labelled = wanted.length === 0 ? '' : ` with ${wanted.join(', ')}`
  if (resource === 'nodes') return `${waits} for a node: none of its backend ${is} there`
  if (resource === 'labels') return `${waits} for a node${labelled}: none ${is} there`
  const runs = total > 1 || isOver ? run : 'runs'
  if (resource === 'workers') {
    const busy = total > 1 ? `all ${total} ${run} other functions` : `the only one ${runs} another`
    return `${waits} for a worker: ${busy}`
  }
  if (resource === 'processes') {
    return `${waits} for a program to end: ${total} ${runs}, as many as \`maxProcesses\` allows`
  }
  const unit = resource === 'memory' ? ' MB' : ''
  const what =
    unit === '' ? countText(asked, resource.slice(0, -1), resource) : `${asked}${unit} ${resource}`
  const nodes = labelled === '' ? '' : ` of a node${labelled}`
  if (asked > total) return `asks for ${what}${nodes}, but the largest node has ${total}${unit}`
  const rest = `${free}${unit} of ${total}${unit} ${are} free on the best node`
  return `${waits} for ${what}${nodes}: ${rest}`
}

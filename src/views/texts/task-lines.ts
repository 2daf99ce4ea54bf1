/** Formats the history of one task as lines of text. Used by `tutti explain` and the dashboard. */

import type { RunPass } from '../all-panels.ts'
import { activeTime, type Pause } from '../bounds/bounds-state.ts'
import { textAt } from '../columns.ts'
import type { ProgressReport } from '../panels/names.ts'
import type { RecordState } from '../panels/run.ts'
import { countText, firstLine, numberText, progressText } from '../readable.ts'
import { secondsText, shortName, timeText } from '../readable.ts'
import type { TaskExplanation } from '../tasks.ts'
import type { FreeingAttempt, HeldByTask } from '../turns.ts'

/** The run that a task belongs to. */
export interface RunNow {
  readonly pass: RunPass
  readonly state: RecordState
  /** The current time of a running session, otherwise the time of the last event, in seconds. */
  readonly now: number
}

/** The duration of each phase of a task in seconds; `null` if the task did not reach the phase. */
export interface WaitTimes {
  /** The time until the last dependency ended. */
  readonly dependencies: number | null
  /** The time until the task was in the queue of a backend. */
  readonly routing: number | null
  /** The time until a slot was free. */
  readonly queue: number | null
  /** The time until the worker started the task. */
  readonly start: number | null
  /** The running time of all attempts in the last session of the task. */
  readonly run: number | null
  /** The time between attempts, and in attempts that were lost with an earlier session. */
  readonly retries: number | null
  /** The time between two sessions of the run. */
  readonly away: number
}

export function measureWaits(
  { story, workerFree, ran, attempts, away }: TaskExplanation,
  pauses: readonly Pause[],
): WaitTimes {
  const { created, ready, queued, submitted, started, ended } = story
  // A started task without TaskQueued counts as queued since its submission.
  const inQueue = queued ?? (started === null ? null : submitted)
  const between = (from: number | null, to: number | null): number | null =>
    from === null || to === null
      ? null
      : Math.max(0, activeTime(pauses, to) - activeTime(pauses, from))
  const free =
    inQueue === null || started === null
      ? null
      : Math.min(started, Math.max(inQueue, workerFree ?? inQueue))
  const life = between(started, ended)
  const betweenSeconds = life === null || ran === null ? null : Math.max(0, life - ran)
  return {
    dependencies: between(created, ready),
    routing: between(ready, inQueue),
    queue: between(inQueue, free ?? (started === null ? ended : null)),
    start: between(free, started),
    run: ran,
    // For a single attempt, a small difference is a rounding error.
    retries: countAttempts(attempts, created) > 1 ? betweenSeconds : life === null ? null : 0,
    away,
  }
}

/** Counts the attempts. Ignores attempts before a resumed session created the task again. */
const countAttempts = (attempts: TaskExplanation['attempts'], created: number): number =>
  attempts.filter(({ start }) => start >= created).length

/** The time that the task has waited so far; `null` if it is not waiting. */
export function waitingSeconds(run: RunNow, task: TaskExplanation): number | null {
  const { pauses } = run.pass.states.bounds
  const { created, ready, queued, started, ended } = task.story
  if (ended !== null || task.isInterrupted) return null
  const latest = task.attempts.at(-1)
  const since = started === null ? (queued ?? ready ?? created) : (latest?.end ?? null)
  const isWaiting = started === null || task.retryAt !== null
  if (!isWaiting || since === null) return null
  return Math.max(0, activeTime(pauses, run.now) - activeTime(pauses, since))
}

/** Lists the phases of a task. `limit` describes the limit of its name; `null` if it has none. */
export function historyLines(
  task: TaskExplanation,
  waits: WaitTimes,
  limit: string | null,
): string[] {
  const { story, attempts } = task
  const row = (what: string, seconds: number | null): string[] =>
    seconds === null ? [] : [`  ${secondsText(seconds).padStart(9)}  ${what}`]
  const isLimited = limit !== null && (waits.routing ?? 0) >= minExplainedWait
  const routing = isLimited
    ? `waited for the limit of its name: ${limit}`
    : 'until a backend had it in its queue'
  const isMadeAgain = attempts.some(({ start }) => start < story.created)
  return [
    `  created ${timeText(story.created)}${isMadeAgain ? ', again by a later session' : ''}`,
    ...(waits.dependencies === 0 ? [] : row('waited for dependencies', waits.dependencies)),
    ...row(routing, waits.routing),
    ...row('waited in the queue for its turn and a free slot', waits.queue),
    ...queueLines(task, waits),
    ...row('until its worker began with it', waits.start),
    ...row('ran', waits.run),
    ...(waits.retries === 0 ? [] : row(retriesText(task), waits.retries)),
    ...(waits.away === 0 ? [] : row('while no process of the run was alive', waits.away)),
    ...(story.ended === null ? [] : [`  ended ${timeText(story.ended, story.created)}`]),
  ]
}

const maxDependencies = 5

export function dependencyLines({ dependencies, story }: TaskExplanation): string[] {
  if (dependencies.length === 0) return []
  const shown = dependencies.slice(0, maxDependencies).map(({ uid, name, state }) => {
    const label = name === '' ? '' : `${shortName(name)}, `
    return `${uid} (${label}${state})`
  })
  const others = dependencies.length - shown.length
  // If a dependency fails, the task may end before its other dependencies.
  const until = story.ready ?? story.ended ?? Infinity
  const [last] = dependencies
    .filter(({ ended }) => ended !== null && ended <= until)
    .toSorted((a, b) => (b.ended ?? 0) - (a.ended ?? 0))
  const more = others > 0 ? ` and ${numberText(others)} more` : ''
  const isOpen = dependencies.some(({ ended }) => ended === null)
  const isTold = !isOpen && dependencies.length > 1 && last !== undefined
  const end = isTold ? `; ${last.uid} ended last` : ''
  return [`  depends on ${shown.join(', ')}${more}${end}`]
}

const minExplainedWait = 0.001

function queueLines({ earlierStarts }: TaskExplanation, { queue }: WaitTimes): string[] {
  const { larger, lastLarger, asked, freedBy } = earlierStarts
  if (queue === null || queue < minExplainedWait) return []
  const room = (by: FreeingAttempt | null): string =>
    by === null
      ? ''
      : `, and there was room when ${by.isRetried ? 'the attempt of ' : ''}${by.uid} had ended`
  const lines: string[] = []
  if (lastLarger !== null) {
    const { uid } = lastLarger
    const before =
      larger === 1
        ? `behind ${uid}, which`
        : `behind ${numberText(larger)} larger tasks; the last, ${uid},`
    lines.push(`${before} asked for ${requestText(lastLarger)}${room(lastLarger.freedBy)}`)
  }
  if (asked !== null) lines.push(`it asked for ${requestText(asked)}${room(freedBy)}`)
  return lines.map((line) => ' '.repeat(13) + line)
}

const requestText = ({ cores, gpus, memoryMb }: HeldByTask): string =>
  [
    countText(cores, 'core'),
    ...(gpus > 0 ? [countText(gpus, 'gpu')] : []),
    ...(memoryMb > 0 ? [`${memoryMb} MB memory`] : []),
  ].join(', ')

/** Describes `WaitTimes.retries`. Ignores attempts before the last creation of the task. */
const retriesText = ({ attempts, story }: TaskExplanation): string =>
  attempts.some(({ isEarlier, start }) => isEarlier && start >= story.created)
    ? 'between attempts, and in attempts that ended with an earlier session'
    : 'waited between its attempts'

export function attemptLines({ pass, state }: RunNow, { attempts }: TaskExplanation): string[] {
  return attempts.map((one) => {
    const { lane, start, end, seconds: ran, outcome, error, isEarlier } = one
    const worker = textAt(pass.states.lanes.lanes, lane)
    const seconds = secondsText(ran)
    // If the process was killed, the end of its attempt is not known.
    const isKnown = outcome !== 'lost' || end > start
    const verb = outcome === 'retried' ? 'failed' : outcome
    const endText = isKnown ? `${verb} after ${seconds}` : `${verb}, it is not known when`
    // A session may have continued after its last event.
    const open = state === 'running' ? `runs for ${seconds}` : `ran for ${seconds} or longer`
    const outcomeText = outcome === 'running' ? open : endText
    const errorText = error === '' ? '' : ` (${firstLine(error, 200)})`
    const session = isEarlier ? ', begun by an earlier session' : ''
    return `  attempt ${one.attempt} on ${worker}${session}: ${outcomeText}${errorText}`
  })
}

/** Lists what happened to the task besides its attempts. */
export function remarkLines(task: TaskExplanation): string[] {
  const { attempts, cancelReason, moved, progress, reuses, story } = task
  const againText = attempts.length === 0 ? '' : ' again'
  return [
    ...(progress === null
      ? []
      : [`  reported at ${timeText(progress.time, story.created)}: ${reportText(progress)}`]),
    ...(moved === null
      ? []
      : [`  moved at ${timeText(moved.time, story.created)}: node ${moved.nodeId} was lost`]),
    ...(cancelReason === null || cancelReason === ''
      ? []
      : [`  canceled: ${firstLine(cancelReason, 200)}`]),
    ...reuses.map(({ time, source }) => {
      const from = sourceTexts.get(source) ?? ''
      const at = timeText(time, story.created)
      return `  reused at ${at}: its result was taken${from}, it did not run${againText}`
    }),
  ]
}

const reportText = ({ fraction, text }: ProgressReport): string => progressText(fraction, text, 200)

const sourceTexts: ReadonlyMap<string, string> = new Map([
  ['stored', ' from the cache'],
  ['shared', ' from an equal call'],
  ['record', ' from the record'],
])

export function waitingLines(run: RunNow, task: TaskExplanation): string[] {
  const { state } = run
  const lines: string[] = []
  const { waitsFor, ahead, firstAhead, shortage, heldUpBy } = task
  const isOver = state !== 'running'
  const waits = isOver ? 'waited' : 'waits'
  const seconds = waitingSeconds(run, task)
  if (seconds !== null) {
    const waited = secondsText(seconds)
    lines.push(isOver ? `  had waited for ${waited}` : `  has waited for ${waited} so far`)
  }
  if (waitsFor.length > 0) {
    const others = waitsFor.length > 5 ? ` and ${waitsFor.length - 5} more` : ''
    lines.push(`  ${waits} for ${waitsFor.slice(0, 5).join(', ')}${others}`)
  }
  if (ahead > 0) {
    const others = ahead > firstAhead.length ? ` and ${ahead - firstAhead.length} more` : ''
    lines.push(`  ${isOver ? 'was ' : ''}behind ${firstAhead.join(', ')}${others}`)
  }
  if (heldUpBy !== null && heldUpBy.shortage.resource !== shortage?.resource) {
    lines.push(`  ${heldUpBy.uid} ${shortageText(heldUpBy.shortage, isOver)}`)
  }
  if (shortage !== null) lines.push(`  ${shortageText(shortage, isOver)}`)
  if (task.retryAt !== null) {
    const next = (task.attempts.at(-1)?.attempt ?? 0) + 1
    const begins = isOver ? 'would have begun' : 'begins'
    const retryText = `which ${begins} at ${timeText(task.retryAt)} or later`
    lines.push(`  ${waits} for attempt ${next}, ${retryText}`)
  }
  const isOpen = task.story.ended === null && task.story.started === null
  if (isOpen && isOver) lines.push('  it never began: the session is over')
  return lines
}

function shortageText(
  { resource, asked, free, total, labels, ranks, room }: NonNullable<TaskExplanation['shortage']>,
  isOver: boolean,
): string {
  const [waits, run, are, is] = isOver
    ? (['waited', 'ran', 'were', 'was'] as const)
    : (['waits', 'run', 'are', 'is'] as const)
  const wanted = Object.entries(labels).map((pair) => pair.join('='))
  const labelled = wanted.length === 0 ? '' : ` with ${wanted.join(', ')}`
  if (resource === 'nodes') return `${waits} for a node of its backend: there ${is} none`
  if (resource === 'labels') return `${waits} for a node${labelled}: there ${is} none`
  const runs = total > 1 || isOver ? run : 'runs'
  if (resource === 'backend') {
    return `${waits} for its backend, where ${countText(total, 'other task')} ${runs}`
  }
  if (resource === 'workers') {
    const busy = total > 1 ? `all ${total} ${run} other functions` : `the only one ${runs} another`
    return `${waits} for a worker: ${busy}`
  }
  if (resource === 'processes') {
    return `${waits} for a program to end: ${total} ${runs}, as many as \`maxProcesses\` allows`
  }
  const unit = resource === 'memory' ? ' MB' : ''
  const shortageSubject =
    unit === '' ? countText(asked, resource.slice(0, -1), resource) : `${asked}${unit} ${resource}`
  const nodes = labelled === '' ? '' : ` of a node${labelled}`
  if (asked > total)
    return `asks for ${shortageSubject}${nodes}, but the largest node has ${total}${unit}`
  if (ranks > 1) {
    const fits = isOver ? 'would have fitted' : room > 1 ? 'fit now' : 'fits now'
    const fit = `${room === 0 ? 'none' : room} of them ${fits}`
    return `${waits} for ${ranks} ranks of ${shortageSubject}${nodes}: ${fit}`
  }
  const rest = `${free}${unit} of ${total}${unit} ${are} free on the best node`
  return `${waits} for ${shortageSubject}${nodes}: ${rest}`
}

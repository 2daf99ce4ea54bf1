/** The one fold: what a run looks like now, from its events, live or read from a file. */

/** The part of an event that views read; live events and lines of the file both have it. */
export interface ViewedEvent {
  readonly event_type: string
  readonly event_time: number
  readonly session_id: string
  readonly backend: string
  readonly task_id: string | null
  readonly attributes: { readonly [key: string]: unknown }
  /** Of a batch. */
  readonly size?: number
}

/** Tasks with the same executable. */
export interface NameView {
  readonly name: string
  readonly taskType: string
  total: number
  running: number
  completed: number
  failed: number
  canceled: number
}

/** Failures with the same cause. */
export interface FailureGroup {
  readonly errorType: string
  readonly message: string
  readonly name: string
  /** The first task that failed so. */
  readonly firstTask: string
  count: number
}

interface OpenTask {
  name: NameView
  isRunning: boolean
}

export interface RunView {
  sessionId: string
  startTime: number | null
  endTime: number | null
  lastTime: number
  attempts: number
  workersLost: number
  /** Batches of inference engines, and the requests in them. */
  readonly batches: { count: number; requests: number }
  readonly totals: { created: number; completed: number; failed: number; canceled: number }
  readonly names: Map<string, NameView>
  readonly failures: Map<string, FailureGroup>
  /** Only tasks that have not ended: a view of a long run stays small. */
  readonly open: Map<string, OpenTask>
}

const mostFailureGroups = 1000

export function createView(): RunView {
  return {
    sessionId: '',
    startTime: null,
    endTime: null,
    lastTime: 0,
    attempts: 0,
    workersLost: 0,
    batches: { count: 0, requests: 0 },
    totals: { created: 0, completed: 0, failed: 0, canceled: 0 },
    names: new Map(),
    failures: new Map(),
    open: new Map(),
  }
}

/**
 * Takes one event into the view, in place, and gives the view back. Unknown types change nothing.
 */
export function fold(view: RunView, event: ViewedEvent): RunView {
  view.lastTime = Math.max(view.lastTime, event.event_time)
  switch (event.event_type) {
    case 'SessionStarted':
      view.sessionId = event.session_id
      view.startTime = event.event_time
      break
    case 'SessionEnded':
      view.endTime = event.event_time
      break
    case 'TaskCreated':
    case 'TaskSubmitted':
    case 'TaskQueued':
      openTask(view, event)
      break
    case 'TaskStarted':
      startTask(openTask(view, event))
      break
    case 'TaskCompleted':
      endTask(view, event, 'completed')
      break
    case 'TaskFailed':
      endTask(view, event, 'failed')
      groupFailure(view, event)
      break
    case 'TaskCanceled':
      endTask(view, event, 'canceled')
      break
    case 'tutti.TaskAttempt':
      view.attempts++
      break
    case 'tutti.WorkerLost':
      view.workersLost++
      break
    case 'tutti.Batch':
      view.batches.count++
      view.batches.requests += event.size ?? 0
      break
  }
  return view
}

function openTask(view: RunView, event: ViewedEvent): OpenTask | undefined {
  if (event.task_id === null) return undefined
  const known = view.open.get(event.task_id)
  if (known !== undefined) {
    if (known.name.name === '') rename(known, nameOf(view, event), view)
    return known
  }
  const name = nameOf(view, event)
  name.total++
  view.totals.created++
  const opened = { name, isRunning: false }
  view.open.set(event.task_id, opened)
  return opened
}

/** A prompt's model may be known only after routing. */
function rename(task: OpenTask, name: NameView, view: RunView): void {
  if (task.name === name) return
  task.name.total--
  name.total++
  if (task.name.total === 0) view.names.delete(task.name.name)
  task.name = name
}

function startTask(task: OpenTask | undefined): void {
  if (task === undefined || task.isRunning) return
  task.isRunning = true
  task.name.running++
}

function endTask(
  view: RunView,
  event: ViewedEvent,
  how: 'completed' | 'failed' | 'canceled',
): void {
  const task = openTask(view, event)
  if (task === undefined || event.task_id === null) return
  view.open.delete(event.task_id)
  if (task.isRunning) task.name.running--
  task.name[how]++
  view.totals[how]++
}

function nameOf(view: RunView, event: ViewedEvent): NameView {
  const name = text(event.attributes['executable'])
  let found = view.names.get(name)
  if (found === undefined) {
    const taskType = text(event.attributes['task_type'])
    found = { name, taskType, total: 0, running: 0, completed: 0, failed: 0, canceled: 0 }
    view.names.set(name, found)
  }
  return found
}

function groupFailure(view: RunView, event: ViewedEvent): void {
  const errorType = text(event.attributes['error_type'])
  const message = text(event.attributes['error_message'])
  const name = text(event.attributes['executable'])
  const key = JSON.stringify([name, errorType, message])
  const known = view.failures.get(key)
  if (known !== undefined) known.count++
  else if (view.failures.size < mostFailureGroups) {
    view.failures.set(key, { errorType, message, name, firstTask: event.task_id ?? '', count: 1 })
  }
}

const text = (value: unknown): string => (typeof value === 'string' ? value : '')

/** The task to which the running code belongs. Backends set it; spans read it. */

import { AsyncLocalStorage } from 'node:async_hooks'
import { type Clock, systemClock } from './clock.ts'
import { expectFunction, expectNumber, expectString, invalid } from './options.ts'

/** The interface of a running task to its own code. */
export interface CurrentTask {
  readonly uid: string
  /** The number of the attempt, from 1. */
  readonly attempt: number
  /** Aborted on cancel and time-out. Code that has read it then gets one second to finish. */
  readonly signal: AbortSignal
  /** Reports progress from 0 to 1. Only the last call within each fifth of a second is sent. */
  progress(fraction: number, text?: string): void
  /**
   * Emits an event in the task's session. Create the event with `makeEvent`, from a class of
   * `defineEvent`. Its session, backend, task and node are replaced by those of the task.
   */
  emit(event: { readonly event_type: string }): void
}

/** A report about a task, sent by the code of the task. */
export type TaskUpdate =
  | { readonly kind: 'progress'; readonly fraction: number; readonly text: string | null }
  | { readonly kind: 'event'; readonly event: object }

/** Callbacks of the backend that runs tasks. */
export interface TaskHost<T> {
  readonly clock?: Clock
  /** Called when the code reports progress or emits an event. */
  update?(task: T, update: TaskUpdate): void
  /** Called when the code reads `signal` for the first time. */
  listens?(task: T): void
  /** Called when the code starts to wait for another task, so that its slot may be released. */
  waits?(task: T): void
}

const progressIntervalMs = 200

/** One run of a task's code. The creator must close it when the code has ended. */
export class RunningTask implements CurrentTask {
  readonly uid: string
  readonly attempt: number
  readonly #host: TaskHost<never>
  #controller: AbortController | null = null
  #progress: ProgressThrottle | null = null
  #isClosed = false
  #view: CurrentTask | null = null

  constructor(uid: string, attempt: number, host: TaskHost<never>) {
    this.uid = uid
    this.attempt = attempt
    this.#host = host
  }

  get signal(): AbortSignal {
    if (this.#controller === null) {
      this.#controller = new AbortController()
      if (!this.#isClosed) this.#host.listens?.(this as never)
    }
    return this.#controller.signal
  }

  progress(fraction: number, text?: string): void {
    expectNumber('fraction', fraction, { min: 0, max: 1 })
    if (text !== undefined && text !== '') expectString('text', text)
    if (this.#isClosed) return
    this.#progress ??= new ProgressThrottle(this.#host.clock ?? systemClock, (update) => {
      this.#host.update?.(this as never, update)
    })
    this.#progress.set({ kind: 'progress', fraction, text: text ?? null })
  }

  emit(event: { readonly event_type: string }): void {
    if (!this.#isClosed) this.#host.update?.(this as never, { kind: 'event', event })
  }

  /** The restricted interface for the task's code. `currentTask` always returns the same object. */
  get view(): CurrentTask {
    return (this.#view ??= this.#createView())
  }

  #createView(): CurrentTask {
    const signal = (): AbortSignal => this.signal
    return Object.freeze({
      uid: this.uid,
      attempt: this.attempt,
      get signal() {
        return signal()
      },
      progress: (fraction: number, text?: string) => this.progress(fraction, text),
      emit: (event: { readonly event_type: string }) => this.emit(event),
    })
  }

  /** Aborts the signal. Does nothing if the code has not read it. */
  abort(reason: unknown): void {
    this.#controller?.abort(reason)
  }

  /** Reports to the backend that the code waits for another task, so that it may free the slot. */
  announceWait(): void {
    this.#host.waits?.(this as never)
  }

  /** Sends progress that was held back. Later updates from the code are ignored. */
  close(): void {
    this.#progress?.flush()
    this.#isClosed = true
  }
}

/** Sends the first value immediately, and then the last value of each interval. */
class ProgressThrottle {
  readonly #clock: Clock
  readonly #send: (update: TaskUpdate) => void
  #held: TaskUpdate | null = null
  #sentMs = -Infinity
  #cancelTimer: (() => void) | null = null

  constructor(clock: Clock, send: (update: TaskUpdate) => void) {
    this.#clock = clock
    this.#send = send
  }

  set(update: TaskUpdate): void {
    this.#held = update
    const waitMs = this.#sentMs + progressIntervalMs - this.#clock.monotonicMs()
    // An update that is due is sent without a timer, because timers do not fire while code blocks
    // the event loop.
    if (waitMs <= 0) return this.flush()
    this.#cancelTimer ??= this.#clock.after(waitMs, () => this.flush(), { background: true })
  }

  flush(): void {
    this.#cancelTimer?.()
    this.#cancelTimer = null
    const held = this.#held
    if (held === null) return
    this.#held = null
    this.#sentMs = this.#clock.monotonicMs()
    this.#send(held)
  }
}

/**
 * Shared by all copies of this package in a process, such as the agent's and the project's.
 * The number in the key changes with the interface of `RunningTask`.
 */
const storageKey = Symbol.for('tutti.runningTask.2')
const globalStore = globalThis as { [storageKey]?: AsyncLocalStorage<RunningTask> }
const runningTasks = (globalStore[storageKey] ??= new AsyncLocalStorage<RunningTask>())
const noHost: TaskHost<never> = Object.freeze({})

/**
 * Runs `callback`, and everything that it awaits, as part of a task. If `task` is a uid, `onWait`
 * is called when the code starts to wait for another task, so that its slot can be released.
 */
export function runInTask<T>(
  task: string | RunningTask,
  callback: () => T,
  onWait: (() => void) | null = null,
): T {
  expectFunction('callback', callback)
  if (typeof task !== 'string' && !(task instanceof RunningTask)) {
    throw invalid('task', 'a uid or a RunningTask', task)
  }
  const host = onWait === null ? noHost : { waits: onWait }
  const run = typeof task === 'string' ? new RunningTask(task, 1, host) : task
  if (wrappers.size === 0) return runningTasks.run(run, callback)
  let wrapped = callback
  for (const wrapper of wrappers) {
    const inner = wrapped
    wrapped = () => wrapper(run.uid, inner)
  }
  return runningTasks.run(run, wrapped)
}

/** Calls the code of a task, for example inside a span, and returns its result. */
export type TaskWrapper = <T>(uid: string, callback: () => T) => T

const wrappers = new Set<TaskWrapper>()

/** Wraps the code of tasks that start from now on. The returned function removes the wrapper. */
export function wrapTasks(wrapper: TaskWrapper): () => void {
  wrappers.add(wrapper)
  return () => void wrappers.delete(wrapper)
}

/**
 * The task that the calling code runs in, if any.
 *
 * @example
 * const task = currentTask() // inside a function that runs as a task
 * for (let step = 0; step < 100; step++) {
 *   if (task?.signal.aborted) return
 *   compute(step)
 *   task?.progress(step / 100, `step ${step}`)
 * }
 */
export function currentTask(): CurrentTask | undefined {
  return runningTasks.getStore()?.view
}

/** Must be called before waiting for a task, so that the running task's slot can be released. */
export function announceWait(): void {
  runningTasks.getStore()?.announceWait()
}

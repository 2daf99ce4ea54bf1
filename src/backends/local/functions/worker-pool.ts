/** Runs functions from `defineTask` on a pool of threads or processes. Runs each job once. */

import type { Clock } from '../../../foundation/clock.ts'
import { BackendThrottled } from '../../../events/library-events.ts'
import { messageOf } from '../../../foundation/errors.ts'
import type { Log } from '../../../foundation/log.ts'
import { once } from '../../../foundation/service.ts'
import { type Job, type Refusal, toEventNotice } from '../../backend.ts'
import type { Batch, Executor, ExecutorListener } from '../executor.ts'
import { chooseBatchSize, JobDurations } from './batch-size.ts'
import { bankSize } from './mailbox.ts'
import { ProcessLink } from './process-link.ts'
import { WorkerHandle, type WorkerHandleOptions } from './worker-handle.ts'
import { Restarts } from '../../../runtime/retry.ts'
import { DeadlineTimer } from '../../../runtime/deadlines.ts'
import { siblingProgram } from '../../../runtime/supervised-child.ts'
import { ThreadLink } from './thread-link.ts'

export interface WorkerPoolOptions {
  /** The maximum number of workers. Each worker is started when there is work for it. */
  readonly size: number
  /** Threads are cheaper. Processes also isolate crashes of native code. */
  readonly isolation: 'thread' | 'process'
  readonly nodeId: string
  /** Worker ids are `<idPrefix>/w1` and so on. */
  readonly idPrefix: string
  readonly clock: Clock
  readonly log: Log
  readonly listener: ExecutorListener
  /** Default: Node's limit. */
  readonly maxHeapMb?: number | null
  readonly importTimeoutSeconds?: number
  /** How long a worker may take to begin an assigned job. Default 10,000. */
  readonly beginDeadlineMs?: number
  readonly program?: URL
}

const pollIntervalMs = 20
/** The delays between starts of workers, if workers end before they begin a job. */
const restartPolicy = { firstDelayMs: 1000, maxDelayMs: 30_000, giveUpAfter: 5 }

export class WorkerPool implements Executor {
  readonly #options: WorkerPoolOptions
  readonly #handles: readonly WorkerHandle[]
  readonly #durations = new JobDurations()
  readonly #starts = new Restarts(restartPolicy)
  /** Set while starts are delayed. While it is set, jobs wait in the scheduler. */
  readonly #startTimer: DeadlineTimer
  #ignoredMessages = 0
  #stopPolling: (() => void) | null = null
  #workers = 0
  #hasLostWorkers = false
  #closeReason: string | null = null

  constructor(options: WorkerPoolOptions) {
    this.#options = options
    this.#startTimer = new DeadlineTimer(options.clock, () => this.#resume())
    const {
      nodeId,
      idPrefix,
      clock,
      listener,
      isolation,
      maxHeapMb = null,
      program = siblingProgram(import.meta.url, 'worker-program'),
      importTimeoutSeconds = 60,
      beginDeadlineMs = 10_000,
    } = options
    const Link = isolation === 'thread' ? ThreadLink : ProcessLink
    const handleOptions: WorkerHandleOptions = {
      clock,
      listener,
      nodeId,
      durations: this.#durations,
      importTimeoutSeconds,
      beginDeadlineMs,
      unbegunCounts: new WeakMap(),
      abandoned: { count: 0 },
      starts: this.#starts,
      keepsGpus: isolation === 'process',
      newWorkerId: () => `${idPrefix}/w${++this.#workers}`,
      connect: (workerId, link) =>
        new Link({ workerId, program, maxHeapMb, clock, listener: link }),
      onStartFailed: (round, error) => this.#handleFailedStart(round, error),
      onStarted: () => this.#handleStart(),
      onReplacementReady: () => this.#resume(),
      onEnd: () => {
        this.#hasLostWorkers = true
        this.#resume()
      },
      onIgnoredMessage: () => this.#onIgnoredMessage(),
    }
    this.#handles = Array.from({ length: options.size }, () => new WorkerHandle(handleOptions))
  }

  get freeSlots(): number {
    if (this.#closeReason !== null) return 0
    let free = 0
    for (const handle of this.#handles) if (this.#hasRoom(handle)) free++
    return free
  }

  /**
   * Whether `prepare` can replace ended workers. Replacements are started without a job, because a
   * job would hold its resources while the worker starts.
   */
  get canPrepare(): boolean {
    if (!this.#hasLostWorkers || this.#closeReason !== null || !this.#mayStart) return false
    return this.#handles.some((handle) => handle.isReplaceable)
  }

  get isPreparing(): boolean {
    return this.#hasLostWorkers && this.#handles.some((handle) => handle.isReplacing)
  }

  prepare(batches: number): void {
    let missing = batches
    for (const handle of this.#handles) {
      if (handle.isReplacing || (handle.isIdle && this.#hasRoom(handle))) missing--
    }
    for (const handle of this.#handles) {
      if (missing <= 0 || !this.#mayStart) return
      if (!handle.isReplaceable) continue
      missing--
      handle.start()
      this.#keepPolling()
    }
  }

  batchSize(waiting: number): number {
    if (this.#options.isolation === 'process') return 1
    return chooseBatchSize(waiting, this.#handles.length, this.#durations.meanMs)
  }

  assign(batch: Batch): void {
    const { listener } = this.#options
    if (batch.jobs.length > bankSize) throw new RangeError(`a batch has at most ${bankSize} jobs`)
    if (this.#closeReason !== null) {
      const reason = this.#closeReason
      for (const job of batch.jobs) listener.report(job, { kind: 'cancel', reason })
      return listener.finish(batch)
    }
    const handle = this.#chooseHandle(batch)
    if (handle === undefined) {
      listener.requeue(batch.jobs)
      return listener.finish(batch)
    }
    handle.assign(batch)
    this.#keepPolling()
  }

  cancel(job: Job, reason: string): void {
    this.#handles.some((handle) => handle.cancel(job, reason))
  }

  readonly close = once(async (reason: string): Promise<void> => {
    this.#closeReason = reason
    this.#startTimer.set(Infinity)
    await Promise.all(this.#handles.map((handle) => handle.close(reason)))
    this.#stopPolling?.()
    this.#stopPolling = null
    const ignored = this.#ignoredMessages
    if (ignored > 1) {
      this.#options.log.warn('MessagesIgnored', `${ignored} messages of functions were ignored`)
    }
  })

  /**
   * Returns the reason why functions are refused now: workers fail to start, and the next start is
   * not due yet. Returns `null` if functions are accepted.
   */
  refusal(): Refusal | null {
    if (!this.#starts.hasGivenUp(this.#options.clock.monotonicMs())) return null
    const message = this.#describeFailures()
    return { field: 'function', message, code: 'WorkersDoNotStartError' }
  }

  /**
   * Whether a batch can be assigned to the handle. Processes take one job at a time, because a job
   * that was sent cannot be taken back. Only the first worker of a handle is started with its
   * batch; `prepare` starts later workers.
   */
  #hasRoom(handle: WorkerHandle): boolean {
    if (handle.isReplacing || !(handle.isWarm || (handle.isNew && this.#mayStart))) return false
    return this.#options.isolation === 'process' ? handle.isIdle : handle.canAccept
  }

  /**
   * Prefers an idle worker that can use the GPUs, then a new worker, then an idle worker that must
   * be replaced for the GPUs, then a worker whose batch will end soon.
   */
  #chooseHandle(batch: Batch): WorkerHandle | undefined {
    const idle = this.#handles.filter((handle) => handle.isIdle && this.#hasRoom(handle))
    return (
      idle.find((handle) => handle.isWarm && handle.canUseGpus(batch)) ??
      idle.find((handle) => handle.canUseGpus(batch)) ??
      idle[0] ??
      this.#handles.find((handle) => this.#hasRoom(handle))
    )
  }

  #poll(): void {
    this.#stopPolling = null
    for (const handle of this.#handles) handle.poll()
    if (!this.#handles.every((handle) => handle.isAtRest)) this.#keepPolling()
  }

  #keepPolling(): void {
    if (this.#starts.failures > 0) this.#startTimer.set(this.#starts.nextStartMs)
    const { clock } = this.#options
    this.#stopPolling ??= clock.after(pollIntervalMs, () => this.#poll(), { background: true })
  }

  get #mayStart(): boolean {
    return this.#starts.canStart(() => this.#options.clock.monotonicMs())
  }

  #resume(): void {
    if (this.#closeReason === null) this.#options.listener.requeue([])
  }

  #handleFailedStart(round: number, error: unknown): void {
    if (this.#closeReason !== null) return
    const { clock, listener, nodeId, log } = this.#options
    const nowMs = clock.monotonicMs()
    const isNewDelay = this.#starts.fail(nowMs, error, round) > 0
    if (this.#starts.failures === restartPolicy.giveUpAfter) {
      log.warn('WorkersDoNotStart', this.#describeFailures())
    }
    if (!isNewDelay) return
    const seconds = (this.#starts.nextStartMs - nowMs) / 1000
    const reason = `${this.#describeFailures()}; the next one is started in ${seconds} s`
    const limit = this.#handles.filter((handle) => handle.isWarm).length
    listener.notice(toEventNotice(BackendThrottled, { reason, limit }, { nodeId }))
    this.#startTimer.set(this.#starts.nextStartMs)
  }

  #handleStart(): void {
    if (!this.#starts.succeed()) return
    this.#startTimer.set(Infinity)
    this.#resume()
  }

  #describeFailures(): string {
    const { failures, lastError } = this.#starts
    const workers = failures === 1 ? 'a worker' : `${failures} workers in a row`
    return `${workers} ended before beginning a job; the last: ${messageOf(lastError)}`
  }

  #onIgnoredMessage(): void {
    if (this.#ignoredMessages++ > 0) return
    const text = 'a message that a function sent to the main process was ignored'
    this.#options.log.warn('MessagesIgnored', `${text}; use \`currentTask()\` or return the value`)
  }
}

/** The link to a worker that is a thread of this process. */

import { Worker } from 'node:worker_threads'
import { openEnvelope } from '../../../runtime/channel.ts'
import { newChannelId } from '../../../runtime/supervised-child.ts'
import { toErrorRecord } from '../../../foundation/error-record.ts'
import { busyPollMs, Mailbox } from './mailbox.ts'
import {
  type AbortMessage,
  type BatchMessage,
  packBatch,
  type WorkerLink,
  type WorkerLinkListener,
  type WorkerLinkOptions,
  type WorkerMessage,
} from './protocol.ts'
import type { Clock } from '../../../foundation/clock.ts'
import { machineMs } from '../machine-time.ts'

const passedMessage = { kind: 'passed' } as const

/**
 * The start data of a thread. The thread's messages carry the channel id, which user code does not
 * know.
 */
export interface ThreadData {
  readonly memory: SharedArrayBuffer
  readonly channel: number
}

export class ThreadLink implements WorkerLink {
  readonly mailbox = new Mailbox()
  readonly #worker: Worker
  readonly #busyPoll: BusyPoll
  readonly #channel = newChannelId()
  readonly #listener: WorkerLinkListener
  #failure: { readonly error: unknown } | null = null
  #isBusy = true

  constructor({ workerId, program, maxHeapMb, clock, listener }: WorkerLinkOptions) {
    this.#listener = listener
    const threadData: ThreadData = { memory: this.mailbox.memory, channel: this.#channel }
    // Clears `execArgv`, because a thread with `--input-type` refuses to run a file.
    const hasInputType = process.execArgv.some((option) => option.startsWith('--input-type'))
    this.#worker = new Worker(program, {
      ...(hasInputType ? { execArgv: [] } : {}),
      name: `tutti ${workerId}`,
      workerData: threadData,
      ...(maxHeapMb === null ? {} : { resourceLimits: { maxOldGenerationSizeMb: maxHeapMb } }),
    })
    this.#busyPoll = new BusyPoll(this.mailbox, clock, () => listener.message(passedMessage))
    this.#worker.on('message', (received) => this.#receive(received))
    this.#worker.on('error', (error: unknown) => (this.#failure = { error }))
    this.#worker.on('messageerror', (error) => {
      this.#busyPoll.end()
      listener.message({ kind: 'unreadable', error: toErrorRecord(error) })
    })
    this.#worker.on('exit', (code) => {
      this.#busyPoll.end()
      listener.exit({ code, ...this.#failure })
    })
  }

  post(batch: BatchMessage): void {
    this.#busyPoll.begin(batch.bank, batch.jobs.length / 3)
    this.#worker.postMessage(packBatch(batch))
    this.mailbox.announceBatch()
  }

  abort(message: AbortMessage): void {
    this.#worker.postMessage(message)
  }

  setBusy(isBusy: boolean): void {
    if (isBusy === this.#isBusy) return
    this.#isBusy = isBusy
    if (isBusy) this.#worker.ref()
    else this.#worker.unref()
  }

  kill(): void {
    void this.#worker.terminate()
  }

  /**
   * Receives a message of the thread. The bare channel id announces new results in the mailbox.
   * Messages of user code are ignored.
   */
  #receive(received: unknown): void {
    if (received === this.#channel) {
      this.#busyPoll.end()
      return this.#listener.message(passedMessage)
    }
    try {
      const content = openEnvelope(this.#channel, received)
      if (content === 'ready') return this.#listener.message({ kind: 'ready' })
      if (!Array.isArray(content)) return this.#listener.ignored()
      this.#busyPoll.end()
      for (const message of content as readonly WorkerMessage[]) this.#listener.message(message)
    } catch (error) {
      this.#failure ??= { error }
      this.kill()
    }
  }
}

/** The timing of polls, which tests replace. */
interface PollTiming {
  /** Polling is worthwhile for jobs that end within this time. */
  readonly limitMs: number
  readonly nowMs: () => number
}

/**
 * Polls for the result of a single short job, once per turn of the event loop, because waking the
 * loop by a message takes longer than such a job. Other events are handled between two polls.
 */
export class BusyPoll {
  readonly #mailbox: Mailbox
  readonly #clock: Clock
  readonly #onResult: () => void
  readonly #limitMs: number
  readonly #nowMs: () => number
  readonly #poll = (): void => this.#pollOnce()
  #bank: number | null = null
  #postedAt = 0
  #isScheduled = false
  #isWorthPolling = false

  /**
   * `onResult` is called when the mailbox has the result, or when polling ends after `limitMs`. The
   * worker sends no message about a result that it stores while the pool polls.
   */
  constructor(
    mailbox: Mailbox,
    clock: Clock,
    onResult: () => void,
    { limitMs, nowMs }: PollTiming = { limitMs: busyPollMs, nowMs: machineMs },
  ) {
    this.#mailbox = mailbox
    this.#clock = clock
    this.#onResult = onResult
    this.#limitMs = limitMs
    this.#nowMs = nowMs
  }

  begin(bank: number, jobs: number): void {
    if (this.#bank !== null) return
    this.#postedAt = jobs === 1 ? this.#nowMs() : 0
    if (jobs !== 1 || !this.#isWorthPolling) return
    this.#bank = bank
    this.#mailbox.setPolledBank(bank)
    this.#schedule()
  }

  /** Called when a message has arrived or the worker has ended. */
  end(): void {
    this.#isWorthPolling = this.#nowMs() - this.#postedAt < this.#limitMs
    if (this.#bank !== null) this.#stop()
  }

  /** Schedules a poll. If a poll is already scheduled, it also serves the next job. */
  #schedule(): void {
    if (this.#isScheduled) return
    this.#isScheduled = true
    this.#clock.nextTurn(this.#poll)
  }

  #pollOnce(): void {
    this.#isScheduled = false
    if (this.#bank === null) return
    const isOver = this.#nowMs() - this.#postedAt > this.#limitMs
    if (isOver) this.#isWorthPolling = false
    else if (!this.#mailbox.hasResult(this.#bank)) return this.#schedule()
    this.#stop()
    this.#onResult()
  }

  #stop(): void {
    this.#bank = null
    this.#mailbox.setPolledBank(null)
  }
}

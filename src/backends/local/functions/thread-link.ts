/** The link to a worker that is a thread of this process. */

import { Worker } from 'node:worker_threads'
import { openEnvelope } from '../../../runtime/channel.ts'
import { newChannelId } from '../../../runtime/supervised-child.ts'
import { toErrorRecord } from '../../../foundation/error-record.ts'
import { Mailbox } from './mailbox.ts'
import { type AbortMessage, type BatchMessage, packBatch, type WorkerMessage } from './protocol.ts'
import { BusyPoll } from './busy-poll.ts'
import type { WorkerLink, WorkerLinkListener, WorkerLinkOptions } from './protocol.ts'

const passed = { kind: 'passed' } as const

/** The start data of a thread. Its messages carry the channel id, which user code does not know. */
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
    // Threads inherit `--input-type` and then refuse to run a file.
    const isText = process.execArgv.some((option) => option.startsWith('--input-type'))
    this.#worker = new Worker(program, {
      ...(isText ? { execArgv: [] } : {}),
      name: `tutti ${workerId}`,
      workerData: threadData,
      ...(maxHeapMb === null ? {} : { resourceLimits: { maxOldGenerationSizeMb: maxHeapMb } }),
    })
    this.#busyPoll = new BusyPoll(this.mailbox, clock, () => listener.message(passed))
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
    this.mailbox.ring()
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

  /** The bare channel id means new results in the mailbox. Messages of user code are ignored. */
  #receive(received: unknown): void {
    if (received === this.#channel) {
      this.#busyPoll.end()
      return this.#listener.message(passed)
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

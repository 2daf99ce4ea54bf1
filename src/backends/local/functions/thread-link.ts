/** A worker that is a thread of this process. */

import { Worker } from 'node:worker_threads'
import { toErrorRecord } from './error-record.ts'
import { Mailbox } from './mailbox.ts'
import { type BatchMessage, packBatch, type WorkerMessage } from './protocol.ts'
import { Vigil } from './busy-poll.ts'
import type { WorkerLink, WorkerLinkOptions } from './worker-link.ts'

const passed = { kind: 'passed' } as const

export class ThreadLink implements WorkerLink {
  readonly mailbox = new Mailbox()
  readonly #worker: Worker
  readonly #vigil: Vigil
  #isBusy = true

  constructor({ workerId, program, maxHeapMb, clock, listener }: WorkerLinkOptions) {
    // Threads inherit this option and refuse then to run a file.
    const isText = process.execArgv.some((option) => option.startsWith('--input-type'))
    this.#worker = new Worker(program, {
      ...(isText ? { execArgv: [] } : {}),
      name: `tutti ${workerId}`,
      workerData: { memory: this.mailbox.memory },
      ...(maxHeapMb === null ? {} : { resourceLimits: { maxOldGenerationSizeMb: maxHeapMb } }),
    })
    let failure: { readonly error: unknown } | undefined
    this.#vigil = new Vigil(this.mailbox, clock, () => listener.message(passed))
    this.#worker.on('message', (message: WorkerMessage | null) => {
      this.#vigil.end()
      listener.message(message ?? passed)
    })
    this.#worker.on('error', (error: unknown) => (failure = { error }))
    this.#worker.on('messageerror', (error) => {
      this.#vigil.end()
      listener.message({ kind: 'unreadable', error: toErrorRecord(error) })
    })
    this.#worker.on('exit', (code) => {
      this.#vigil.end()
      listener.exit({ code, ...failure })
    })
  }

  post(batch: BatchMessage): void {
    this.#vigil.begin(batch.bank, batch.jobs.length / 3)
    this.#worker.postMessage(packBatch(batch))
    this.mailbox.ring()
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
}

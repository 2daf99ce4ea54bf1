/** A worker that is a process. Its mailbox here is a copy that follows its messages. */

import { serialize } from 'node:v8'
import { type ChildExit, SupervisedChild } from '../../../runtime/supervised-child.ts'
import { bankSize, Mailbox } from './mailbox.ts'
import type { BatchMessage, WorkerMessage } from './protocol.ts'
import type { WorkerExit, WorkerLink, WorkerLinkListener, WorkerLinkOptions } from './protocol.ts'

/** Options of this process that would make a child do something else than run its program. */
const unfit = /^(?:--(?:input-type|inspect|test|watch|prof|cpu-prof|heap-prof|check)|-[ci]$)/
const unfitWithText = /^(?:-e|-p|-pe|--eval|--print)$/

/** Takes batches of one job. */
export class ProcessLink implements WorkerLink {
  readonly mailbox = new Mailbox()
  readonly #listener: WorkerLinkListener
  readonly #child: SupervisedChild<BatchMessage, WorkerMessage>
  /** Batches that came before the program was ready; their jobs can still be revoked. */
  #held: BatchMessage[] | null = []
  /** The slot of the job that was sent, until the process reports that it began. */
  #sent: number | null = null
  #isKilled = false
  #isBusy = true

  constructor({ program, maxHeapMb, clock, listener }: WorkerLinkOptions) {
    this.#listener = listener
    this.#child = new SupervisedChild({
      program,
      clock,
      readyDeadlineMs: null,
      execArgv: [
        ...inheritedOptions(process.execArgv),
        ...(maxHeapMb === null ? [] : [`--max-old-space-size=${maxHeapMb}`]),
      ],
      onReady: () => this.#sendHeld(),
      onMessages: (messages) => {
        for (const message of messages) this.#receive(message)
      },
      onExit: (exit) => {
        this.#forgetUnbegun()
        listener.exit(toWorkerExit(exit))
      },
    })
    this.#child.ref()
    this.#child.start()
  }

  post(batch: BatchMessage): void {
    try {
      serialize(batch.jobs)
    } catch (error) {
      this.#deliver(withoutJobs(batch))
      throw error
    }
    this.#deliver(batch)
  }

  setBusy(isBusy: boolean): void {
    if (isBusy === this.#isBusy) return
    this.#isBusy = isBusy
    if (isBusy) this.#child.ref()
    else this.#child.unref()
  }

  kill(): void {
    this.#isKilled = true
    this.#child.kill()
  }

  #deliver(batch: BatchMessage): void {
    if (this.#held === null) this.#send(batch)
    else this.#held.push(batch)
  }

  #sendHeld(): void {
    const held = this.#held ?? []
    this.#held = null
    for (const batch of held) this.#send(batch)
  }

  /** What was sent counts as begun, because nobody could take it back. */
  #send(batch: BatchMessage): void {
    if (batch.jobs.length === 0) return this.#child.send(batch)
    const slot = batch.bank * bankSize
    this.mailbox.starts[slot] = Number.NaN
    this.mailbox.rewind()
    if (this.mailbox.begin(slot)) {
      this.#sent = slot
      this.#child.send(batch)
    } else {
      this.mailbox.pass(batch.bank, 1)
      this.#child.send(withoutJobs(batch))
    }
  }

  #receive(message: WorkerMessage): void {
    if (message.kind === 'dying') {
      this.#forgetUnbegun()
    } else if (message.kind === 'began') {
      this.#sent = null
      this.mailbox.starts[message.slot] = message.at
    } else if (message.kind === 'ended') {
      this.#copy(message)
    }
    this.#listener.message(message)
  }

  #copy({ slot, start, end, hasMessage, value }: Extract<WorkerMessage, { kind: 'ended' }>): void {
    this.mailbox.starts[slot] = start
    this.mailbox.ends[slot] = end
    if (hasMessage) this.mailbox.leaveToMessage(slot)
    else this.mailbox.write(slot, value)
    this.mailbox.pass(Math.floor(slot / bankSize), (slot % bankSize) + 1)
  }

  /** A process reports a job before it begins it: without that report, the job has not begun. */
  #forgetUnbegun(): void {
    if (this.#sent !== null && !this.#isKilled) this.mailbox.unbegin(this.#sent)
    this.#sent = null
  }
}

function inheritedOptions(options: readonly string[]): string[] {
  const isTextOf = (option = ''): boolean => unfitWithText.test(option)
  return options.filter((option, at) => {
    return !unfit.test(option) && !isTextOf(option) && !isTextOf(options[at - 1])
  })
}

const toWorkerExit = ({ code, signal, error }: ChildExit): WorkerExit => ({
  ...(code === null ? {} : { code }),
  ...(signal === null ? {} : { signal }),
  ...(error === null ? {} : { error }),
})

/** The definitions must arrive even so: later batches refer to them. */
const withoutJobs = (batch: BatchMessage): BatchMessage => ({ ...batch, jobs: [] })

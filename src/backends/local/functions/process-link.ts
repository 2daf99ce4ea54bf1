/** A worker that is a process. Its mailbox here is a copy that follows its messages. */

import { type ChildProcess, fork } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { serialize } from 'node:v8'
import { bankSize, Mailbox } from './mailbox.ts'
import type { BatchMessage, WorkerMessage } from './protocol.ts'
import type { WorkerLink, WorkerLinkListener, WorkerLinkOptions } from './worker-link.ts'

/** Options of this process that would make a child do something else than run its program. */
const unfit = /^(?:--(?:input-type|inspect|test|watch|prof|cpu-prof|heap-prof|check)|-[ci]$)/
const unfitWithText = /^(?:-e|-p|-pe|--eval|--print)$/

/** Takes batches of one job. */
export class ProcessLink implements WorkerLink {
  readonly mailbox = new Mailbox()
  readonly #listener: WorkerLinkListener
  readonly #child: ChildProcess
  /** Came before the program was ready; these jobs can still be revoked. */
  #held: BatchMessage[] | null = []
  /** The slot of the job that was sent, until the process has told that it began. */
  #sent: number | null = null
  #isKilled = false
  #isBusy = true
  #error: unknown
  #isOver = false

  constructor({ program, maxHeapMb, listener }: WorkerLinkOptions) {
    this.#listener = listener
    this.#child = fork(fileURLToPath(program), [], {
      serialization: 'advanced',
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
      execArgv: [
        ...process.execArgv.filter((option, at, all) => {
          return !unfit.test(option) && !unfitWithText.test(option) && !isTextOf(all[at - 1])
        }),
        ...(maxHeapMb === null ? [] : [`--max-old-space-size=${maxHeapMb}`]),
      ],
    })
    this.#child.on('message', (message) => this.#receive(message as WorkerMessage))
    this.#child.on('exit', () => this.#checkEnd())
    this.#child.on('disconnect', () => this.#checkEnd())
    this.#child.on('error', (error) => {
      this.#error = error
      this.#checkEnd()
    })
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
    const { channel } = this.#child
    if (isBusy) {
      this.#child.ref()
      channel?.ref()
    } else {
      this.#child.unref()
      channel?.unref()
    }
  }

  kill(): void {
    this.#isKilled = true
    this.#child.kill('SIGKILL')
  }

  #deliver(batch: BatchMessage): void {
    if (this.#held === null) this.#send(batch)
    else this.#held.push(batch)
  }

  /** What was sent counts as begun, because nobody could take it back. */
  #send(batch: BatchMessage): void {
    if (batch.jobs.length === 0) return void this.#child.send(batch)
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
    if (message.kind === 'ready') {
      const held = this.#held ?? []
      this.#held = null
      for (const batch of held) this.#send(batch)
    } else if (message.kind === 'dying') {
      this.#forgetUnbegun()
    } else if (message.kind === 'began') {
      this.#sent = null
      this.mailbox.starts[message.slot] = message.at
    } else if (message.kind === 'ended') {
      this.#copy(message)
    }
    this.#listener.message(message)
  }

  #copy({ slot, start, end, isTold, value }: Extract<WorkerMessage, { kind: 'ended' }>): void {
    this.mailbox.starts[slot] = start
    this.mailbox.ends[slot] = end
    if (isTold) this.mailbox.leaveToMessage(slot)
    else this.mailbox.write(slot, value)
    this.mailbox.pass(Math.floor(slot / bankSize), (slot % bankSize) + 1)
  }

  /** A process tells of a job before it begins: without that, at its end, there was none. */
  #forgetUnbegun(): void {
    if (this.#sent !== null && !this.#isKilled) this.mailbox.unbegin(this.#sent)
    this.#sent = null
  }

  /** The last messages may come after the exit: the channel's end is waited for, too. */
  #checkEnd(): void {
    const { connected, exitCode, signalCode, pid } = this.#child
    const hasEnded = exitCode !== null || signalCode !== null || pid === undefined
    if (this.#isOver || connected || !hasEnded) return
    this.#isOver = true
    this.#forgetUnbegun()
    this.#listener.exit({
      ...(exitCode === null ? {} : { code: exitCode }),
      ...(signalCode === null ? {} : { signal: signalCode }),
      ...(this.#error === undefined ? {} : { error: this.#error }),
    })
  }
}

const isTextOf = (option = ''): boolean => unfitWithText.test(option)

/** The definitions must arrive even so: later batches count on them. */
const withoutJobs = (batch: BatchMessage): BatchMessage => ({ ...batch, jobs: [] })

/**
 * The link to a worker process. Its mailbox is a copy, which is updated by the worker's messages.
 */

import { serialize } from 'node:v8'
import { type ChildExit, exitReason, SupervisedChild } from '../../../runtime/supervised-child.ts'
import { bankSize, Mailbox } from './mailbox.ts'
import type { AbortMessage, BatchMessage, WorkerMessage } from './protocol.ts'
import type { WorkerExit, WorkerLink, WorkerLinkListener, WorkerLinkOptions } from './protocol.ts'

/** Node options that would keep a child from running its program. */
const excludedOptions =
  /^(?:--(?:input-type|inspect|test|watch|prof|cpu-prof|heap-prof|check)|-[ci]$)/
const evalOptions = /^(?:-e|-p|-pe|--eval|--print)$/

export class ProcessLink implements WorkerLink {
  readonly mailbox = new Mailbox()
  readonly #listener: WorkerLinkListener
  readonly #child: SupervisedChild<BatchMessage | AbortMessage, WorkerMessage>
  /** Batches posted before the program was ready. `null` once it is ready. */
  #heldBatches: BatchMessage[] | null = []
  #sentSlot: number | null = null
  readonly #errors = new StderrFilter()
  /** Whether the process was killed on purpose. If so, a job that was sent counts as begun. */
  #isKilled = false
  #isBusy = true

  constructor({ program, maxHeapMb, clock, listener }: WorkerLinkOptions) {
    this.#listener = listener
    this.#child = new SupervisedChild({
      program,
      clock,
      execArgv: [
        ...inheritedOptions(process.execArgv),
        ...(maxHeapMb === null ? [] : [`--max-old-space-size=${maxHeapMb}`]),
      ],
      // On a terminal, the output is captured, so that it does not overwrite a progress block.
      stdout: process.stdout.isTTY ? 'capture' : 'inherit',
      onStdout: (text) => forward(text, process.stdout),
      stderr: 'capture',
      onStderr: (text) => this.#errors.add(text),
      onReady: () => {
        this.#errors.release()
        listener.message({ kind: 'ready' })
        this.#sendHeld()
      },
      onIgnored: () => listener.ignored(),
      onMessages: (messages) => {
        for (const message of messages) this.#receive(message)
      },
      onExit: (exit) => {
        this.#unclaimUnconfirmed()
        listener.exit(this.#toWorkerExit(exit))
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

  abort(message: AbortMessage): void {
    this.#child.send(message)
  }

  setBusy(isBusy: boolean): void {
    if (isBusy === this.#isBusy) return
    this.#isBusy = isBusy
    if (isBusy) this.#child.ref()
    else this.#child.unref()
  }

  kill(why?: 'unresponsive'): void {
    if (why !== 'unresponsive') this.#isKilled = true
    this.#child.kill()
  }

  #deliver(batch: BatchMessage): void {
    if (this.#heldBatches === null) this.#send(batch)
    else this.#heldBatches.push(batch)
  }

  #sendHeld(): void {
    const held = this.#heldBatches ?? []
    this.#heldBatches = null
    for (const batch of held) this.#send(batch)
  }

  /**
   * Claims the job of a batch and sends the batch. The claim comes first, because a job that was
   * sent cannot be revoked any more. If the job was already revoked, sends the batch without it.
   */
  #send(batch: BatchMessage): void {
    if (batch.jobs.length === 0) return this.#child.send(batch)
    const slot = batch.bank * bankSize
    this.mailbox.starts[slot] = Number.NaN
    this.mailbox.importStart = 0
    this.mailbox.discardTexts()
    if (this.mailbox.claim(slot)) {
      this.#sentSlot = slot
      this.#child.send(batch)
    } else {
      this.mailbox.setFinishedCount(batch.bank, 1)
      this.#child.send(withoutJobs(batch))
    }
  }

  #receive(message: WorkerMessage): void {
    if (message.kind === 'dying') {
      this.#unclaimUnconfirmed()
    } else if (message.kind === 'importing') {
      this.#sentSlot = null
      this.mailbox.importStart = message.at
    } else if (message.kind === 'began') {
      this.#sentSlot = null
      this.mailbox.starts[message.slot] = message.at
      this.mailbox.importStart = 0
    } else if (message.kind === 'ended') {
      this.#copyResult(message)
    }
    this.#listener.message(message)
  }

  #copyResult({
    slot,
    start,
    end,
    hasMessage,
    value,
  }: Extract<WorkerMessage, { kind: 'ended' }>): void {
    this.mailbox.starts[slot] = start
    this.mailbox.importStart = 0
    this.mailbox.ends[slot] = end
    if (hasMessage) this.mailbox.markAsMessage(slot)
    else this.mailbox.write(slot, value)
    this.mailbox.setFinishedCount(Math.floor(slot / bankSize), (slot % bankSize) + 1)
  }

  #toWorkerExit(exit: ChildExit): WorkerExit {
    const { code, signal, error, output } = exit
    const isAborted = signal === 'SIGABRT' || code === 134
    const outOfMemory = isAborted ? outOfMemoryError(output) : null
    const startError = this.#heldBatches === null || output === '' ? null : toStartError(exit)
    if (outOfMemory === null && startError === null) this.#errors.release()
    const cause = outOfMemory ?? error ?? startError
    return {
      ...(code === null ? {} : { code }),
      ...(signal === null ? {} : { signal }),
      ...(cause === null ? {} : { error: cause }),
    }
  }

  /** Undoes the claim of the sent job unless the process has reported its import or its start. */
  #unclaimUnconfirmed(): void {
    if (this.#sentSlot !== null && !this.#isKilled) this.mailbox.unclaim(this.#sentSlot)
    this.#sentSlot = null
  }
}

function inheritedOptions(options: readonly string[]): string[] {
  const isTextOf = (option = ''): boolean => evalOptions.test(option)
  return options.filter((option, at) => {
    return !excludedOptions.test(option) && !isTextOf(option) && !isTextOf(options[at - 1])
  })
}

const heapReportStart = '<--- Last few GCs --->'

/**
 * Forwards the stderr of a worker. Text that becomes part of an error is not forwarded: the output
 * of a process that exits before it is ready, and V8's report of an exhausted heap.
 */
class StderrFilter {
  #line = ''
  #held: string | null = ''

  add(text: string): void {
    if (this.#held !== null) {
      this.#held += text
      return
    }
    const all = this.#line + text
    const at = all.indexOf(heapReportStart)
    if (at !== -1) {
      this.#held = all.slice(at)
      this.#line = ''
      // The empty line that V8 writes before its report is not forwarded either.
      return forward(all.slice(0, all[at - 1] === '\n' ? at - 1 : at))
    }
    // Holds back the last line if it may be the beginning of `heapReportStart`.
    const lastLine = all.slice(all.lastIndexOf('\n') + 1)
    const mayBeReport = lastLine !== '' && heapReportStart.startsWith(lastLine)
    this.#line = mayBeReport ? lastLine : ''
    forward(mayBeReport ? all.slice(0, -lastLine.length) : all)
  }

  /**
   * Forwards the text that was held back. Called when the text will not become part of an error.
   */
  release(): void {
    const held = this.#line + (this.#held ?? '')
    this.#line = ''
    this.#held = null
    forward(held)
  }
}

/** Writes a text to a stream. Ignores a closed stream, as `console` does. */
function forward(text: string, stream: NodeJS.WriteStream = process.stderr): void {
  if (text === '') return
  const ignore = (): void => {}
  stream.once('error', ignore)
  stream.write(text)
  stream.off('error', ignore)
}

function toStartError(exit: ChildExit): Error {
  const [line] = /^\S*Error.*$/m.exec(exit.output) ?? []
  const error = new Error(`${exitReason(exit)}${line === undefined ? '' : `: ${line}`}`)
  error.stack = `${error.message}\n${exit.output}`
  return error
}

function outOfMemoryError(output: string): Error | null {
  const at = Math.max(0, output.indexOf(heapReportStart))
  const [message] = /FATAL ERROR: .*(?:heap|memory).*/i.exec(output) ?? []
  if (message === undefined) return null
  const error = Object.assign(new Error(message), { code: 'ERR_WORKER_OUT_OF_MEMORY' })
  error.stack = `${message}\n${output.slice(at)}`
  return error
}

/**
 * Returns a batch without its jobs. Such a batch is sent if the job was revoked, because later
 * batches refer to its definitions.
 */
const withoutJobs = (batch: BatchMessage): BatchMessage => ({ ...batch, jobs: [] })

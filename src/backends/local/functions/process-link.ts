/** The link to a worker process. Its mailbox is a copy, updated from the worker's messages. */

import { serialize } from 'node:v8'
import { type ChildExit, exitReason, SupervisedChild } from '../../../runtime/supervised-child.ts'
import { bankSize, Mailbox } from './mailbox.ts'
import type { AbortMessage, BatchMessage, WorkerMessage } from './protocol.ts'
import type { WorkerExit, WorkerLink, WorkerLinkListener, WorkerLinkOptions } from './protocol.ts'

/** Node options of this process with which a child would not run its program normally. */
const unfit = /^(?:--(?:input-type|inspect|test|watch|prof|cpu-prof|heap-prof|check)|-[ci]$)/
const unfitWithText = /^(?:-e|-p|-pe|--eval|--print)$/

/** Accepts batches of a single job. */
export class ProcessLink implements WorkerLink {
  readonly mailbox = new Mailbox()
  readonly #listener: WorkerLinkListener
  readonly #child: SupervisedChild<BatchMessage | AbortMessage, WorkerMessage>
  /** Batches posted before the program was ready; their jobs can still be revoked. */
  #held: BatchMessage[] | null = []
  /** The slot of the job that was sent, until the process reports the job's start. */
  #sent: number | null = null
  readonly #errors = new ErrorOutput()
  /** Whether the process was ended on purpose; a job that was sent then counts as begun. */
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
      // On a terminal, output is captured, so that it does not overwrite a progress block.
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
        this.#forgetUnbegun()
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
    if (this.#held === null) this.#send(batch)
    else this.#held.push(batch)
  }

  #sendHeld(): void {
    const held = this.#held ?? []
    this.#held = null
    for (const batch of held) this.#send(batch)
  }

  /** A job counts as begun once it is sent, because it cannot be taken back. */
  #send(batch: BatchMessage): void {
    if (batch.jobs.length === 0) return this.#child.send(batch)
    const slot = batch.bank * bankSize
    this.mailbox.starts[slot] = Number.NaN
    this.mailbox.importingSince = 0
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
    } else if (message.kind === 'importing') {
      this.#sent = null
      this.mailbox.importingSince = message.at
    } else if (message.kind === 'began') {
      this.#sent = null
      this.mailbox.starts[message.slot] = message.at
      this.mailbox.importingSince = 0
    } else if (message.kind === 'ended') {
      this.#copy(message)
    }
    this.#listener.message(message)
  }

  #copy({ slot, start, end, hasMessage, value }: Extract<WorkerMessage, { kind: 'ended' }>): void {
    this.mailbox.starts[slot] = start
    this.mailbox.importingSince = 0
    this.mailbox.ends[slot] = end
    if (hasMessage) this.mailbox.leaveToMessage(slot)
    else this.mailbox.write(slot, value)
    this.mailbox.pass(Math.floor(slot / bankSize), (slot % bankSize) + 1)
  }

  #toWorkerExit(exit: ChildExit): WorkerExit {
    const { code, signal, error, output } = exit
    const isAborted = signal === 'SIGABRT' || code === 134
    const outOfMemory = isAborted ? outOfMemoryError(output) : null
    const startError = this.#held === null || output === '' ? null : toStartError(exit)
    if (outOfMemory === null && startError === null) this.#errors.release()
    const cause = outOfMemory ?? error ?? startError
    return {
      ...(code === null ? {} : { code }),
      ...(signal === null ? {} : { signal }),
      ...(cause === null ? {} : { error: cause }),
    }
  }

  /** A process reports a job before beginning it, so a job without that report has not begun. */
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

/** The first line of V8's report of a fatal error. */
const reportStart = '<--- Last few GCs --->'

/**
 * Forwards a worker's stderr to this process's, except text that becomes part of an error: output
 * of a process that exits before it is ready, and V8's report of an exhausted heap.
 */
class ErrorOutput {
  #line = ''
  #held: string | null = ''

  add(text: string): void {
    if (this.#held !== null) {
      this.#held += text
      return
    }
    const all = this.#line + text
    const at = all.indexOf(reportStart)
    if (at !== -1) {
      this.#held = all.slice(at)
      this.#line = ''
      // V8 writes an empty line before its report.
      return forward(all.slice(0, all[at - 1] === '\n' ? at - 1 : at))
    }
    // Holds back a last line only if it may be the beginning of `reportStart`.
    const lastLine = all.slice(all.lastIndexOf('\n') + 1)
    const mayBeReport = lastLine !== '' && reportStart.startsWith(lastLine)
    this.#line = mayBeReport ? lastLine : ''
    forward(mayBeReport ? all.slice(0, -lastLine.length) : all)
  }

  /** Forwards the held text, which belongs to no error. */
  release(): void {
    const held = this.#line + (this.#held ?? '')
    this.#line = ''
    this.#held = null
    forward(held)
  }
}

/** Ignores a closed stream, as `console` does. */
function forward(text: string, stream: NodeJS.WriteStream = process.stderr): void {
  if (text === '') return
  const ignore = (): void => {}
  stream.once('error', ignore)
  stream.write(text)
  stream.off('error', ignore)
}

/** Why the process could not start, with the first error line of its output. */
function toStartError(exit: ChildExit): Error {
  const [line] = /^\S*Error.*$/m.exec(exit.output) ?? []
  const error = new Error(`${exitReason(exit)}${line === undefined ? '' : `: ${line}`}`)
  error.stack = `${error.message}\n${exit.output}`
  return error
}

function outOfMemoryError(output: string): Error | null {
  const at = Math.max(0, output.indexOf(reportStart))
  const [message] = /FATAL ERROR: .*(?:heap|memory).*/i.exec(output) ?? []
  if (message === undefined) return null
  const error = Object.assign(new Error(message), { code: 'ERR_WORKER_OUT_OF_MEMORY' })
  error.stack = `${message}\n${output.slice(at)}`
  return error
}

/** Sent if the job was revoked, because later batches refer to the definitions of this batch. */
const withoutJobs = (batch: BatchMessage): BatchMessage => ({ ...batch, jobs: [] })

/** A model's process: how it is started, what its exit means, and how its updates are passed on. */

import type { Clock } from '../../../foundation/clock.ts'
import { messageOf } from '../../../foundation/errors.ts'
import { maskSecrets } from '../../../foundation/secrets.ts'
import {
  type ChildExit,
  nodeVariables,
  siblingProgram,
  SupervisedChild,
} from '../../../runtime/supervised-child.ts'
import type {
  GenerationEnd,
  GenerationListener,
  GenerationRequest,
} from '../../generation/inference-engine.ts'
import { inferenceError, inferenceStatus } from '../../generation/inference-errors.ts'
import type { FromLlama, RequestUpdate, PlainEnd, ToLlama } from './protocol.ts'

export type LlamaProcess = SupervisedChild<ToLlama, FromLlama>

export interface LlamaProcessOptions {
  readonly clock: Clock
  onMessages(messages: readonly FromLlama[]): void
  onExit(exit: ChildExit): void
}

/** Starts the process. It keeps this process alive until it is closed. */
export function startLlamaProcess(options: LlamaProcessOptions): LlamaProcess {
  const child: LlamaProcess = new SupervisedChild({
    ...options,
    program: siblingProgram(import.meta.url, 'llama-program'),
    // A small young generation: objects are few and short-lived, but V8 would let it grow to 100
    // MB.
    execArgv: ['--no-warnings', '--max-semi-space-size=8'],
    env: ownEnvironment(),
    isDetached: true,
    stdout: 'ignore',
    stderr: 'capture',
  })
  child.ref()
  child.start()
  return child
}

const secretName = /TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|PRIVATE_KEY|ACCESS_KEY|CREDENTIAL/i
/** The library fails to load if `CI` has a value that is not a boolean. */
const removedNames: ReadonlySet<string> = new Set(['CI', ...nodeVariables])

/**
 * One heap for all threads. By default, glibc gives each thread its own and does not reuse freed
 * memory across threads, so under load the heaps grow for a long time.
 */
const singleArena = { MALLOC_ARENA_MAX: '1' }

/** This process's environment without secrets and without Node's own variables. */
function ownEnvironment(): NodeJS.ProcessEnv {
  const isKept = ([name]: [string, unknown]): boolean =>
    !removedNames.has(name) && !secretName.test(name)
  return { ...singleArena, ...Object.fromEntries(Object.entries(process.env).filter(isKept)) }
}

const unfitGpu = /PTX was compiled with an unsupported toolchain|no kernel image is available/i
const maxLineLength = 300

/** Describes in one line how the process exited, and the last error that it printed. */
export function describeExit({ code, signal, error, output }: ChildExit): string {
  if (error !== null) return `the model's process failed: ${messageOf(error)}`
  const how = signal === null ? `ended with exit code ${code}` : `was ended by ${signal}`
  const line = lastErrorLine(output)
  return `the model's process ${how}${line === '' ? '' : `: ${line}`}`
}

/** A hint for people; `undefined` if the cause is unknown. */
export function hintForExit({ signal, output }: ChildExit): string | undefined {
  if (unfitGpu.test(output)) {
    return (
      'the prebuilt binaries do not fit this GPU: build node-llama-cpp from source, or use the ' +
      'process or openai engine with a GPU server such as vLLM or llama-server'
    )
  }
  return signal === 'SIGKILL' ? 'the system may have killed it because memory ran out' : undefined
}

/** An aborting process prints its reason in one line, possibly followed by a stack trace. */
function lastErrorLine(output: string): string {
  const lines = output.split('\n').filter((line) => line.trim() !== '')
  const error = lines.findLast((line) => /error|assert|abort|fail|unsupported/i.test(line))
  return maskSecrets((error ?? lines.at(-1) ?? '').trim()).slice(0, maxLineLength)
}

export interface RecipientOptions {
  readonly request: GenerationRequest
  readonly listener: GenerationListener
  readonly send: (message: ToLlama) => void
  /** Called once, after the listener has received the result. */
  readonly onEnd: () => void
  /** Called instead of `onEnd` when the process is lost. The listener then receives no result. */
  readonly onLoss: (error: unknown) => void
}

/** One running request. Passes updates to the listener as fast as its reader accepts them. */
export class Recipient {
  readonly #options: RecipientOptions
  /**
   * Updates that arrived before the process paused the request for its busy reader; `null` while
   * the reader accepts updates.
   */
  #late: RequestUpdate[] | null = null
  #isOver = false
  readonly #abort = (): void => this.#cancel()

  constructor(options: RecipientOptions) {
    this.#options = options
    options.request.signal.addEventListener('abort', this.#abort, { once: true })
  }

  /** Whether the request is paused because its reader is slow. */
  get isHeld(): boolean {
    return this.#late !== null
  }

  receive(update: RequestUpdate): void {
    if (this.#late === null || this.#isAborted()) this.#pass(update)
    else this.#late.push(update)
  }

  /** Ends the request. Later updates are ignored. */
  end(end: GenerationEnd): void {
    if (this.#isOver) return
    const { request, listener, onEnd } = this.#options
    this.#close()
    listener.end(request.id, end)
    onEnd()
  }

  /** Called when the process is lost, which fails the whole batch. */
  lose(error: unknown): void {
    if (this.#isOver) return
    this.#close()
    this.#options.onLoss(error)
  }

  #close(): void {
    this.#isOver = true
    this.#options.request.signal.removeEventListener('abort', this.#abort)
  }

  #isAborted(): boolean {
    return this.#options.request.signal.aborted
  }

  /** After an abort, drops output and passes on only the result. */
  #cancel(): void {
    this.#options.send({ kind: 'cancel', id: this.#options.request.id })
    const late = this.#late ?? []
    this.#late = null
    for (const update of late) this.#pass(update)
  }

  #pass({ delta, end }: RequestUpdate): void {
    if (this.#isOver) return
    const { request, listener } = this.#options
    if (delta !== undefined && !this.#isAborted()) {
      const wait = listener.delta(request.id, delta)
      if (wait !== undefined) this.#hold(wait)
    }
    // The process may have finished the text before it received the abort. Without the dropped
    // deltas the result is incomplete.
    if (end !== undefined) this.end(this.#isAborted() ? { kind: 'canceled' } : toEnd(end))
  }

  #hold(wait: Promise<void>): void {
    const { request, send } = this.#options
    this.#late = []
    send({ kind: 'hold', id: request.id })
    const resume = (): void => {
      const late = this.#late
      if (late === null || this.#isOver) return
      this.#late = null
      send({ kind: 'resume', id: request.id })
      for (const update of late) this.receive(update)
    }
    wait.then(resume, resume)
  }
}

function toEnd(end: PlainEnd): GenerationEnd {
  if (end.kind !== 'failed') return end
  const { code, message, hint, param, clientCode = 'unsupported_value' } = end.failure
  const shown = code === 'unsupported' ? clientCode : code
  const refusal = { status: inferenceStatus[code], message, param: param ?? null, code: shown }
  const error = inferenceError(code, message, {
    ...(hint === undefined ? {} : { hint }),
    ...(param === undefined ? {} : { refusal }),
  })
  return { kind: 'failed', error }
}

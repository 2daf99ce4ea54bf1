/** Starts a model's process, describes its exit, and delivers its updates. */

import type { Clock } from '../../../foundation/clock.ts'
import { type InferenceError, messageOf } from '../../../foundation/errors.ts'
import { definedFields } from '../../../foundation/options.ts'
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
import { inferenceError, statusByCode } from '../../generation/inference-errors.ts'
import type {
  Failure,
  MessageFromLlama,
  MessageToLlama,
  RequestEnd,
  RequestUpdate,
} from './protocol.ts'

export type LlamaProcess = SupervisedChild<MessageToLlama, MessageFromLlama>

export interface LlamaProcessOptions {
  readonly clock: Clock
  onMessages(messages: readonly MessageFromLlama[]): void
  onExit(exit: ChildExit): void
}

/** The child process keeps this process alive until the child is closed. */
export function startLlamaProcess(options: LlamaProcessOptions): LlamaProcess {
  const child: LlamaProcess = new SupervisedChild({
    ...options,
    program: siblingProgram(import.meta.url, 'llama-program'),
    // The young generation can be small, because objects are few and short-lived.
    execArgv: ['--no-warnings', '--max-semi-space-size=8'],
    env: childEnvironment(),
    isDetached: true,
    stdout: 'ignore',
    stderr: 'capture',
  })
  child.ref()
  child.start()
  return child
}

const secretNamePattern = /TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|PRIVATE_KEY|ACCESS_KEY|CREDENTIAL/i
/** `CI` is removed, because the library fails to load if its value is not a boolean. */
const removedNames: ReadonlySet<string> = new Set(['CI', ...nodeVariables])

/** By default, glibc gives each thread its own heap, and these heaps grow for a long time. */
const singleArenaEnv = { MALLOC_ARENA_MAX: '1' }

function childEnvironment(): NodeJS.ProcessEnv {
  const isKept = ([name]: [string, unknown]): boolean =>
    !removedNames.has(name) && !secretNamePattern.test(name)
  return { ...singleArenaEnv, ...Object.fromEntries(Object.entries(process.env).filter(isKept)) }
}

const unsupportedGpu =
  /PTX was compiled with an unsupported toolchain|no kernel image is available/i
const maxLineLength = 300

export function describeExit({ code, signal, error, output }: ChildExit): string {
  if (error !== null) return `the model's process failed: ${messageOf(error)}`
  const exitText = signal === null ? `ended with exit code ${code}` : `was ended by ${signal}`
  const line = lastErrorLine(output)
  return `the model's process ${exitText}${line === '' ? '' : `: ${line}`}`
}

export function hintForExit({ signal, output }: ChildExit): string | undefined {
  if (unsupportedGpu.test(output)) {
    return (
      'the prebuilt binaries do not fit this GPU: build node-llama-cpp from source, or use the ' +
      'process or openai engine with a GPU server such as vLLM or llama-server'
    )
  }
  return signal === 'SIGKILL' ? 'the system may have killed it because memory ran out' : undefined
}

/** A process that aborts prints the reason in one line, possibly before a stack trace. */
function lastErrorLine(output: string): string {
  const lines = output.split('\n').filter((line) => line.trim() !== '')
  const error = lines.findLast((line) => /error|assert|abort|fail|unsupported/i.test(line))
  return maskSecrets((error ?? lines.at(-1) ?? '').trim()).slice(0, maxLineLength)
}

export interface UpdateRelayOptions {
  readonly request: GenerationRequest
  readonly listener: GenerationListener
  readonly send: (message: MessageToLlama) => void
  readonly onEnd: () => void
  /** Called instead of `onEnd` if the process is lost. The listener then receives no result. */
  readonly onLoss: (error: unknown) => void
}

/** Delivers the updates of one request to the listener, as fast as its reader accepts them. */
export class UpdateRelay {
  readonly #options: UpdateRelayOptions
  /** Updates that arrived while the reader was busy; `null` while the reader accepts updates. */
  #heldUpdates: RequestUpdate[] | null = null
  #hasEnded = false
  readonly #abort = (): void => this.#cancel()

  constructor(options: UpdateRelayOptions) {
    this.#options = options
    options.request.signal.addEventListener('abort', this.#abort, { once: true })
  }

  get isPaused(): boolean {
    return this.#heldUpdates !== null
  }

  receive(update: RequestUpdate): void {
    if (this.#heldUpdates === null || this.#isAborted()) this.#deliver(update)
    else this.#heldUpdates.push(update)
  }

  end(end: GenerationEnd): void {
    if (this.#hasEnded) return
    const { request, listener, onEnd } = this.#options
    this.#close()
    listener.end(request.id, end)
    onEnd()
  }

  failBatch(error: unknown): void {
    if (this.#hasEnded) return
    this.#close()
    this.#options.onLoss(error)
  }

  #close(): void {
    this.#hasEnded = true
    this.#options.request.signal.removeEventListener('abort', this.#abort)
  }

  #isAborted(): boolean {
    return this.#options.request.signal.aborted
  }

  /** Drops output that arrives after an abort. Only the result is delivered. */
  #cancel(): void {
    this.#options.send({ kind: 'cancel', id: this.#options.request.id })
    const heldUpdates = this.#heldUpdates ?? []
    this.#heldUpdates = null
    for (const update of heldUpdates) this.#deliver(update)
  }

  #deliver({ delta, end }: RequestUpdate): void {
    if (this.#hasEnded) return
    const { request, listener } = this.#options
    if (delta !== undefined && !this.#isAborted()) {
      const wait = listener.delta(request.id, delta)
      if (wait !== undefined) this.#pause(wait)
    }
    // After an abort, deltas were dropped, so even a completed request counts as canceled.
    if (end !== undefined) this.end(this.#isAborted() ? { kind: 'canceled' } : toGenerationEnd(end))
  }

  #pause(wait: Promise<void>): void {
    const { request, send } = this.#options
    this.#heldUpdates = []
    send({ kind: 'hold', id: request.id })
    const resume = (): void => {
      const heldUpdates = this.#heldUpdates
      if (heldUpdates === null || this.#hasEnded) return
      this.#heldUpdates = null
      send({ kind: 'resume', id: request.id })
      for (const update of heldUpdates) this.receive(update)
    }
    wait.then(resume, resume)
  }
}

const toGenerationEnd = (end: RequestEnd): GenerationEnd =>
  end.kind === 'failed' ? { kind: 'failed', error: toError(end.failure) } : end

export function toError(failure: Failure): InferenceError {
  const { code, message, hint, param, clientCode = 'unsupported_value' } = failure
  const shown = code === 'unsupported' ? clientCode : code
  const refusal =
    param === undefined ? undefined : { status: statusByCode[code], message, param, code: shown }
  return inferenceError(code, message, definedFields({ hint, refusal }))
}

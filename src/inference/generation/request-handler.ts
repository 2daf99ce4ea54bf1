/** Runs requests through guardrails, defaults and batcher, and reports spans and measurements. */

import type { Measurement } from '../../events/measurement.ts'
import type { WorkSpan } from '../../events/sink.ts'
import type { Clock } from '../../foundation/clock.ts'
import { newSpanId } from '../../foundation/ids.ts'
import { boundedWait } from '../../foundation/promises.ts'
import { runSteps, type StepScheduler } from '../../runtime/turn-budget.ts'
import type { Guard } from '../guardrails/guard.ts'
import { type GuardedInput, guardInput } from '../guardrails/guarded-input.ts'
import type { Batcher } from './batcher.ts'
import type { EnginePool } from './engine-pool.ts'
import { type FinishedGeneration, GenerationMeter, toSpan } from './gen-ai.ts'
import type { FinishReason, PromptTokens, Sampling, Usage } from './inference-engine.ts'
import { inferenceError } from './inference-errors.ts'
import type {
  AnswerFields,
  PassThroughDelta,
  PassThroughEnd,
  PassThroughInput,
  PassThroughRequest,
} from './pass-through.ts'
import type { EnqueueOptions, QueuedRequest, QueueListener } from './request-queue.ts'
import { ResultBuilder } from './result-builder.ts'
import type {
  GenerationResult,
  GeneratorStatus,
  ProgressListener,
  PromptRequest,
  TextGenerator,
} from './text-generator.ts'
import { estimateTokens, extractPrompt } from './fields/message-text.ts'

export interface RequestHandlerParts {
  readonly batcher: Batcher
  readonly pool: EnginePool
  readonly guard: Guard
  readonly clock: Clock
  readonly model: string
  readonly sampling: Sampling
  readonly systemPrompt: readonly string[]
  readonly isContentCaptured: boolean
  readonly checkScheduler: StepScheduler
  /** Called for every request, before anything else. */
  readonly onArrived: () => void
  /** Called once for every request, when it has ended. */
  readonly onEnded: (taskId: string | null, report: RequestReport) => void
}

export interface RequestReport {
  /** Called only if a session is connected, because no span is needed otherwise. */
  readonly span: () => WorkSpan
  readonly measurements: readonly Measurement[]
  readonly code: string
  /** The usage; `null` if there is no answer. */
  readonly usage: Usage | null
}

export class RequestHandler implements TextGenerator {
  readonly #parts: RequestHandlerParts
  readonly #meter: GenerationMeter
  /** The latest guardrail check. All choices of one HTTP request arrive in a row and share it. */
  #check: SharedCheck | null = null

  constructor(parts: RequestHandlerParts) {
    this.#parts = parts
    this.#meter = new GenerationMeter(parts.model)
  }

  generate(prompt: PromptRequest, listener: ProgressListener = {}): Promise<GenerationResult> {
    const run = new RequestRun(this.#parts, this.#meter, prompt, listener)
    this.#parts.onArrived()
    const check = this.#getCheck(prompt)
    if (check.guarded instanceof Promise) run.enqueueAfterCheck(check, check.guarded)
    else run.enqueue(check.guarded)
    return run.result
  }

  #getCheck({ input, sampling, signal }: PromptRequest): SharedCheck {
    if (this.#check?.matches(input, signal) !== true) {
      const { guard, systemPrompt, checkScheduler } = this.#parts
      this.#check = new SharedCheck(input, signal, (check) => {
        const steps = guardInput(input, guard, systemPrompt, sampling.format)
        return guard.hasInputRules ? checkScheduler.run(steps, check) : runSteps(steps)
      })
    }
    return this.#check
  }

  async tokenize(text: string): Promise<readonly number[]> {
    return this.#parts.pool.tokenize(text)
  }

  async detokenize(tokens: readonly number[]): Promise<string> {
    return this.#parts.pool.detokenize(tokens)
  }

  async readPrompt(input: PassThroughInput): Promise<PromptTokens> {
    const { guard, systemPrompt, checkScheduler, pool } = this.#parts
    const guarded = await checkScheduler.run(guardInput(input, guard, systemPrompt))
    if ('error' in guarded) throw guarded.error
    if ('refusal' in guarded) throw inferenceError('content_filter', guarded.refusal.text)
    return pool.readPrompt(guarded.input)
  }

  status(): GeneratorStatus {
    const { batcher, pool } = this.#parts
    const { queued, running } = batcher
    return { queued, running, workers: pool.workers, unreadyReason: pool.unreadyReason }
  }
}

/** A guardrail check of one input. Stops when all requests that wait for it have ended. */
class SharedCheck {
  readonly #input: PassThroughInput
  readonly #signal: AbortSignal
  #waiters = 0
  #isAbandoned = false
  /** A promise if the input is too long to be checked in one turn of the event loop. */
  readonly guarded: GuardedInput | Promise<GuardedInput>

  constructor(
    input: PassThroughInput,
    signal: AbortSignal,
    run: (check: SharedCheck) => GuardedInput | Promise<GuardedInput>,
  ) {
    this.#input = input
    this.#signal = signal
    this.guarded = run(this)
    // Prevents an unhandled rejection: if the queue is full, no request awaits this promise.
    if (this.guarded instanceof Promise) this.guarded.catch(() => {})
  }

  /** The signal must be the same, so that all requests of a check are canceled together. */
  matches(input: PassThroughInput, signal: AbortSignal): boolean {
    return this.#input === input && this.#signal === signal && !this.#isAbandoned
  }

  addWaiter(): void {
    this.#waiters++
  }

  removeWaiter(): void {
    this.#waiters--
    this.#isAbandoned = this.#waiters === 0
  }

  throwIfAborted(): void {
    if (this.#isAbandoned) throw inferenceError('canceled', 'no request waits for this check')
  }
}

/** How long a blocked request may wait for the token count of its prompt. */
const countTimeoutMs = 1000

class RequestRun implements QueueListener {
  readonly #parts: RequestHandlerParts
  readonly #meter: GenerationMeter
  readonly #prompt: PromptRequest
  readonly #listener: ProgressListener
  readonly #result = Promise.withResolvers<GenerationResult>()
  readonly #arrivedMs: number
  readonly #arrivalTime: number
  #builder: ResultBuilder
  /** Stops the engine when an output rule blocks the answer; `null` without output rules. */
  readonly #blockAbort: AbortController | null
  #request: PassThroughRequest
  #check: SharedCheck | null = null
  #firstTokenMs: number | null = null
  #rules: readonly string[] = []
  /** Whether the listener has received text. If so, the request cannot be restarted. */
  #hasSentText = false
  #hasEnded = false

  constructor(
    parts: RequestHandlerParts,
    meter: GenerationMeter,
    prompt: PromptRequest,
    listener: ProgressListener,
  ) {
    this.#parts = parts
    this.#meter = meter
    this.#prompt = prompt
    this.#listener = listener
    this.#arrivedMs = parts.clock.monotonicMs()
    this.#arrivalTime = parts.clock.now()
    this.#builder = new ResultBuilder(parts.guard)
    this.#blockAbort = this.#builder.hasOutputRules ? new AbortController() : null
    const { input, signal } = prompt
    this.#request = {
      id: newSpanId(),
      input,
      sampling: { ...parts.sampling, ...prompt.sampling },
      signal:
        this.#blockAbort === null ? signal : AbortSignal.any([signal, this.#blockAbort.signal]),
    }
  }

  get result(): Promise<GenerationResult> {
    return this.#result.promise
  }

  enqueueAfterCheck(check: SharedCheck, guarded: Promise<GuardedInput>): void {
    this.#check = check
    check.addWaiter()
    const held = this.#parts.batcher.enqueueHeld(this.#createEnqueueOptions())
    if (held !== null) void this.#releaseAfter(guarded, held)
  }

  async #releaseAfter(guarded: Promise<GuardedInput>, held: QueuedRequest): Promise<void> {
    const { batcher } = this.#parts
    try {
      const result = await guarded
      this.#check = null
      if (this.#applyVerdict(result)) batcher.release(held, this.#request)
    } catch (error) {
      this.#finishWith({ error })
    }
    if (this.#hasEnded) batcher.cancel(held)
  }

  enqueue(guarded: GuardedInput): void {
    if (this.#applyVerdict(guarded)) this.#parts.batcher.enqueue(this.#createEnqueueOptions())
  }

  /** Applies the result of a guardrail check. Returns whether the request continues. */
  #applyVerdict(guarded: GuardedInput): boolean {
    if (this.#hasEnded) return false
    this.#rules = guarded.hits.map(({ rule }) => rule)
    if ('refusal' in guarded) this.#finishWith({ result: guarded.refusal })
    else if ('error' in guarded) this.#finishWith({ error: guarded.error })
    else this.#request = { ...this.#request, input: guarded.input }
    return !this.#hasEnded
  }

  #createEnqueueOptions(): EnqueueOptions {
    const { priority, isRetry = false, timeoutSeconds, isBounded, client = '' } = this.#prompt
    const timeoutMs = timeoutSeconds === null ? null : timeoutSeconds * 1000
    const order = { priority, isRetry, isBounded, client }
    return { request: this.#request, ...order, timeoutMs, listener: this }
  }

  started(workerId: string, nodeId: string | undefined): void {
    this.#listener.started?.(workerId, nodeId)
  }

  delta(delta: PassThroughDelta): Promise<void> | undefined {
    if (delta.embedding === undefined) this.#firstTokenMs ??= this.#parts.clock.monotonicMs()
    const released = this.#builder.push(delta)
    if (this.#builder.isBlocked) this.#blockAbort?.abort()
    if (released === null || this.#listener.delta === undefined) return undefined
    this.#hasSentText = true
    return this.#listener.delta(released)
  }

  /** Requests of tasks are not retried here, because their session retries the task. */
  restart(): boolean {
    if (this.#hasSentText || this.#prompt.taskId !== null) return false
    this.#builder = new ResultBuilder(this.#parts.guard)
    this.#firstTokenMs = null
    return true
  }

  end(end: PassThroughEnd): void {
    if (!this.#builder.isBlocked) {
      if (end.kind === 'failed') return this.#finishWith({ error: end.error })
      if (end.kind === 'canceled') {
        return this.#finishWith({ error: inferenceError('canceled', 'the request was canceled') })
      }
    }
    const rest = this.#builder.flush()
    if (rest !== null) void this.#listener.delta?.(rest)
    if (end.kind === 'done') this.#finish(end.finishReason, end.usage, end.fields)
    else this.#finishBlocked()
  }

  /** Engines report no usage for a blocked answer, so each delta counts as one token. */
  #finishBlocked(): void {
    const { promptTokens, deltas } = this.#builder
    const finish = (count: number): void =>
      this.#finish('content_filter', { promptTokens: count, completionTokens: deltas })
    if (promptTokens === null) void this.#countPromptTokens().then(finish)
    else finish(promptTokens)
  }

  /** Counts the tokens of the prompt without the chat template. Never rejects. */
  async #countPromptTokens(): Promise<number> {
    const { pool, clock } = this.#parts
    const text = extractPrompt(this.#request.input)
    try {
      return (await boundedWait(clock, countTimeoutMs, pool.tokenize(text))).length
    } catch {
      return estimateTokens(text)
    }
  }

  #finish(reason: FinishReason, usage: Usage, last?: AnswerFields): void {
    const result = this.#builder.finish(reason, usage, last)
    if (this.#firstTokenMs === null) return this.#finishWith({ result })
    const firstTokenMs = this.#firstTokenMs - this.#arrivedMs
    this.#finishWith({ result: { ...result, firstTokenMs } })
  }

  /**
   * Reports the use. Without a result, counts the prompt if the engine has read it, and each delta
   * as one token.
   */
  #reportUse(outcome: FinishedGeneration['outcome']): void {
    if ('result' in outcome) {
      const { usage, text } = outcome.result
      this.#prompt.onUsed?.({ ...usage, text })
    } else {
      const { promptTokens, deltas } = this.#builder
      const use = { promptTokens: promptTokens ?? 0, completionTokens: deltas }
      this.#prompt.onUsed?.({ ...use, text: '' })
    }
  }

  #finishWith(outcome: FinishedGeneration['outcome']): void {
    if (this.#hasEnded) return
    this.#hasEnded = true
    this.#check?.removeWaiter()
    const { clock, model, isContentCaptured, onEnded } = this.#parts
    const { taskId, spanAttributes = {} } = this.#prompt
    this.#reportUse(outcome)
    const generation: FinishedGeneration = {
      request: this.#request,
      model,
      taskId,
      arrivedMs: this.#arrivedMs,
      arrivalTime: this.#arrivalTime,
      firstTokenMs: this.#firstTokenMs,
      endedMs: clock.monotonicMs(),
      outcome,
      rules: [...new Set([...this.#rules, ...this.#builder.rules])],
      isContentCaptured,
      spanAttributes,
    }
    onEnded(taskId, {
      span: () => toSpan(generation),
      measurements: this.#meter.measure(generation),
      code: 'result' in outcome ? outcome.result.finishReason : toErrorCode(outcome.error),
      usage: 'result' in outcome ? outcome.result.usage : null,
    })
    if ('result' in outcome) this.#result.resolve(outcome.result)
    else this.#result.reject(outcome.error)
  }
}

function toErrorCode(error: unknown): string {
  return typeof error === 'object' && error !== null && 'code' in error
    ? String(error.code)
    : 'error'
}

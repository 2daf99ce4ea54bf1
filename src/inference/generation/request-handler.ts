/**
 * The text generator behind tasks, `generate` and HTTP: runs each request through guardrails,
 * defaults and the batcher, and reports its span and measurements.
 */

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
import { type Generation, GenerationMeter, toSpan } from './gen-ai.ts'
import type { FinishReason, Sampling, Usage } from './inference-engine.ts'
import { inferenceError } from './inference-errors.ts'
import type {
  AnswerFields,
  PassedDelta,
  PassedEnd,
  PassedInput,
  PassedRequest,
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
import { estimateTokens, promptText } from './fields/message-text.ts'

export interface RequestHandlerParts {
  readonly batcher: Batcher
  readonly pool: EnginePool
  readonly guard: Guard
  readonly clock: Clock
  readonly model: string
  /** The configured defaults for sampling options that a request leaves out. */
  readonly sampling: Sampling
  readonly systemPrompt: readonly string[]
  readonly isContentCaptured: boolean
  /** Runs checks of long inputs over several turns of the event loop. */
  readonly checks: StepScheduler
  /** Called for every request, before anything else. */
  readonly onArrived: () => void
  /** Called once for every request, when it has ended. */
  readonly onEnded: (taskId: string | null, report: RequestReport) => void
}

/** The telemetry of a request that has ended. */
export interface RequestReport {
  /** Builds the span when called: a span is needed only if a session is connected. */
  readonly span: () => WorkSpan
  readonly measurements: readonly Measurement[]
  /** The finish reason, or the code of the error. */
  readonly code: string
}

export class RequestHandler implements TextGenerator {
  readonly #parts: RequestHandlerParts
  readonly #meter: GenerationMeter
  /** The latest check, shared by the choices of one HTTP request, which arrive in a row. */
  #check: SharedCheck | null = null

  constructor(parts: RequestHandlerParts) {
    this.#parts = parts
    this.#meter = new GenerationMeter(parts.model)
  }

  generate(prompt: PromptRequest, listener: ProgressListener = {}): Promise<GenerationResult> {
    const { promise, resolve, reject } = Promise.withResolvers<GenerationResult>()
    const run = new RequestRun(this.#parts, this.#meter, prompt, listener, (outcome) =>
      'result' in outcome ? resolve(outcome.result) : reject(outcome.error),
    )
    this.#parts.onArrived()
    const check = this.#checkOf(prompt)
    if (check.guarded instanceof Promise) run.beginAfter(check, check.guarded)
    else run.begin(check.guarded)
    return promise
  }

  #checkOf({ input, sampling, signal }: PromptRequest): SharedCheck {
    if (this.#check?.isFor(input, signal) !== true) {
      const { guard, systemPrompt, checks } = this.#parts
      this.#check = new SharedCheck(input, signal, (check) => {
        const steps = guardInput(input, guard, systemPrompt, sampling.format)
        return guard.judgesInput ? checks.run(steps, check) : runSteps(steps)
      })
    }
    return this.#check
  }

  async tokenize(text: string): Promise<readonly number[]> {
    return this.#parts.pool.tokenize(text)
  }

  status(): GeneratorStatus {
    const { batcher, pool } = this.#parts
    const { queued, running } = batcher
    return { queued, running, workers: pool.workers, unready: pool.unready }
  }
}

/** The guardrail check of one input; abandoned when all requests that wait for it have ended. */
class SharedCheck {
  readonly #input: PassedInput
  readonly #signal: AbortSignal
  #waiting = 0
  #isGivenUp = false
  /** A promise only if the input is too long to be checked in one turn of the event loop. */
  readonly guarded: GuardedInput | Promise<GuardedInput>

  constructor(
    input: PassedInput,
    signal: AbortSignal,
    run: (check: SharedCheck) => GuardedInput | Promise<GuardedInput>,
  ) {
    this.#input = input
    this.#signal = signal
    this.guarded = run(this)
    // Prevents an unhandled rejection: if the queue is full, no request awaits this promise.
    if (this.guarded instanceof Promise) this.guarded.catch(() => {})
  }

  /**
   * Requests share a check only if they have the same signal, because they are canceled together.
   */
  isFor(input: PassedInput, signal: AbortSignal): boolean {
    return this.#input === input && this.#signal === signal && !this.#isGivenUp
  }

  join(): void {
    this.#waiting++
  }

  leave(): void {
    this.#waiting--
    this.#isGivenUp = this.#waiting === 0
  }

  throwIfAborted(): void {
    if (this.#isGivenUp) throw inferenceError('canceled', 'no request waits for this check')
  }
}

/** How long a blocked request may wait for the token count of its prompt. */
const countMs = 1000

type Outcome = Generation['outcome']

/** One request from its arrival to its result; the batcher's listener for it. */
class RequestRun implements QueueListener {
  readonly #parts: RequestHandlerParts
  readonly #meter: GenerationMeter
  readonly #prompt: PromptRequest
  readonly #listener: ProgressListener
  readonly #settle: (outcome: Outcome) => void
  readonly #arrivedAt: number
  readonly #arrivedTime: number
  #builder: ResultBuilder
  /** Stops the engine when an output rule blocks the answer; `null` without output rules. */
  readonly #blocked: AbortController | null
  #request: PassedRequest
  /** The check that this request waits for; `null` if it waits for none. */
  #check: SharedCheck | null = null
  #firstTokenAt: number | null = null
  /** Ids of the guardrail rules that the input matched. */
  #rules: readonly string[] = []
  /** Whether the listener has received text. If so, the request cannot be restarted. */
  #hasSentText = false
  #hasEnded = false

  constructor(
    parts: RequestHandlerParts,
    meter: GenerationMeter,
    prompt: PromptRequest,
    listener: ProgressListener,
    settle: (outcome: Outcome) => void,
  ) {
    this.#parts = parts
    this.#meter = meter
    this.#prompt = prompt
    this.#listener = listener
    this.#settle = settle
    this.#arrivedAt = parts.clock.monotonicMs()
    this.#arrivedTime = parts.clock.now()
    this.#builder = new ResultBuilder(parts.guard)
    this.#blocked = this.#builder.mayBlock ? new AbortController() : null
    const { input, signal } = prompt
    this.#request = {
      id: newSpanId(),
      input,
      sampling: { ...parts.sampling, ...prompt.sampling },
      signal: this.#blocked === null ? signal : AbortSignal.any([signal, this.#blocked.signal]),
    }
  }

  /** Queues the request as held until its input has been checked. */
  beginAfter(check: SharedCheck, guarded: Promise<GuardedInput>): void {
    this.#check = check
    check.join()
    const held = this.#parts.batcher.hold(this.#toEnqueueOptions())
    if (held !== null) void this.#releaseAfter(guarded, held)
  }

  async #releaseAfter(guarded: Promise<GuardedInput>, held: QueuedRequest): Promise<void> {
    const { batcher } = this.#parts
    try {
      const result = await guarded
      this.#check = null
      if (this.#accepts(result)) batcher.release(held, this.#request)
    } catch (error) {
      this.#settleWith({ error })
    }
    if (this.#hasEnded) batcher.withdraw(held)
  }

  begin(guarded: GuardedInput): void {
    if (this.#accepts(guarded)) this.#parts.batcher.enqueue(this.#toEnqueueOptions())
  }

  /** Whether the guardrails accept the request. Settles it if not; otherwise replaces its input. */
  #accepts(guarded: GuardedInput): boolean {
    if (this.#hasEnded) return false
    this.#rules = guarded.hits.map(({ rule }) => rule)
    if ('refusal' in guarded) this.#settleWith({ result: guarded.refusal })
    else if ('error' in guarded) this.#settleWith({ error: guarded.error })
    else this.#request = { ...this.#request, input: guarded.input }
    return !this.#hasEnded
  }

  #toEnqueueOptions(): EnqueueOptions {
    const { priority, isRetry = false, timeoutSeconds, isBounded } = this.#prompt
    const timeoutMs = timeoutSeconds === null ? null : timeoutSeconds * 1000
    return { request: this.#request, priority, isRetry, isBounded, timeoutMs, listener: this }
  }

  started(workerId: string, nodeId: string | undefined): void {
    this.#listener.started?.(workerId, nodeId)
  }

  delta(delta: PassedDelta): Promise<void> | undefined {
    this.#firstTokenAt ??= this.#parts.clock.monotonicMs()
    const released = this.#builder.push(delta)
    if (this.#builder.isBlocked) this.#blocked?.abort()
    if (released === null || this.#listener.delta === undefined) return undefined
    this.#hasSentText = true
    return this.#listener.delta(released)
  }

  /** Requests of tasks are not restarted here, because their session retries the task. */
  restart(): boolean {
    if (this.#hasSentText || this.#prompt.taskId !== null) return false
    this.#builder = new ResultBuilder(this.#parts.guard)
    this.#firstTokenAt = null
    return true
  }

  end(end: PassedEnd): void {
    if (!this.#builder.isBlocked) {
      if (end.kind === 'failed') return this.#settleWith({ error: end.error })
      if (end.kind === 'canceled') {
        return this.#settleWith({ error: inferenceError('canceled', 'the request was canceled') })
      }
    }
    const rest = this.#builder.flush()
    if (rest !== null) void this.#listener.delta?.(rest)
    if (end.kind === 'done') this.#finish(end.finishReason, end.usage, end.fields)
    else this.#finishBlocked()
  }

  /** Engines report no usage for a blocked request, so each delta counts as one token. */
  #finishBlocked(): void {
    const { promptTokens, deltas } = this.#builder
    const finish = (count: number): void =>
      this.#finish('content_filter', { promptTokens: count, completionTokens: deltas })
    if (promptTokens === null) void this.#countPrompt().then(finish)
    else finish(promptTokens)
  }

  /** Counts the tokens of the prompt without the chat template; never rejects. */
  async #countPrompt(): Promise<number> {
    const { pool, clock } = this.#parts
    const text = promptText(this.#request.input)
    try {
      return (await boundedWait(clock, countMs, pool.tokenize(text))).length
    } catch {
      return estimateTokens(text)
    }
  }

  #finish(reason: FinishReason, usage: Usage, last?: AnswerFields): void {
    this.#settleWith({ result: this.#builder.finish(reason, usage, last) })
  }

  #settleWith(outcome: Outcome): void {
    if (this.#hasEnded) return
    this.#hasEnded = true
    this.#check?.leave()
    const { clock, model, isContentCaptured, onEnded } = this.#parts
    const { taskId } = this.#prompt
    const generation: Generation = {
      request: this.#request,
      model,
      taskId,
      arrivedAt: this.#arrivedAt,
      arrivedTime: this.#arrivedTime,
      firstTokenAt: this.#firstTokenAt,
      endedAt: clock.monotonicMs(),
      outcome,
      rules: [...new Set([...this.#rules, ...this.#builder.rules])],
      isContentCaptured,
    }
    onEnded(taskId, {
      span: () => toSpan(generation),
      measurements: this.#meter.measure(generation),
      code: 'result' in outcome ? outcome.result.finishReason : codeOf(outcome.error),
    })
    this.#settle(outcome)
  }
}

function codeOf(error: unknown): string {
  return typeof error === 'object' && error !== null && 'code' in error
    ? String(error.code)
    : 'error'
}

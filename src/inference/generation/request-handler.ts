/** Answers questions: guardrails before and after, defaults, batching, and the story told of it. */

import type { Measurement } from '../../events/measurement.ts'
import type { WorkSpan } from '../../events/sink.ts'
import { boundedWait } from '../../foundation/promises.ts'
import type { Clock } from '../../foundation/clock.ts'
import { newSpanId } from '../../foundation/ids.ts'
import { AnswerBuilder } from './answer-builder.ts'
import type { Batcher } from './batcher.ts'
import type { Answer, AnswerListener, Desk, DeskStatus, Question } from './text-generator.ts'
import type { EnginePool } from './engine-pool.ts'
import type {
  FinishReason,
  GenerationDelta,
  GenerationEnd,
  GenerationInput,
  GenerationRequest,
  Sampling,
  Usage,
} from './inference-engine.ts'
import { type Generation, GenerationMeter, toSpan } from './gen-ai.ts'
import { type GuardedInput, guardInput } from '../guardrails/guarded-input.ts'
import type { Guard } from '../guardrails/guard.ts'
import { inferenceError } from './inference-errors.ts'
import { estimateTokens, promptText } from './token-estimate.ts'

export interface ReceptionParts {
  readonly batcher: Batcher
  readonly pool: EnginePool
  readonly guard: Guard
  readonly clock: Clock
  readonly model: string
  /** What the configuration says where a question does not. */
  readonly sampling: Sampling
  readonly systemPrompt: readonly string[]
  readonly isContentCaptured: boolean
  readonly onArrived: () => void
  /** Hears of every question's end; a span is made only when somebody wants it. */
  readonly onAnswered: (taskId: string | null, told: Told) => void
}

/** What is told of a question that has ended. */
export interface Told {
  readonly span: () => WorkSpan
  readonly measurements: readonly Measurement[]
  readonly code: string
}

export class Reception implements Desk {
  readonly #parts: ReceptionParts
  readonly #meter: GenerationMeter
  /** The latest: all choices of a request ask with the same input, one after the other. */
  #judged: { readonly input: GenerationInput; readonly guarded: GuardedInput } | null = null

  constructor(parts: ReceptionParts) {
    this.#parts = parts
    this.#meter = new GenerationMeter(parts.model)
  }

  ask(question: Question, listener: AnswerListener = {}): Promise<Answer> {
    const { promise, resolve, reject } = Promise.withResolvers<Answer>()
    const visit = new Visit(this.#parts, this.#meter, question, listener, (outcome) =>
      'answer' in outcome ? resolve(outcome.answer) : reject(outcome.error),
    )
    this.#parts.onArrived()
    visit.begin(this.#guard(question.input))
    return promise
  }

  #guard(input: GenerationInput): GuardedInput {
    if (this.#judged?.input === input) return this.#judged.guarded
    const guarded = guardInput(input, this.#parts.guard, this.#parts.systemPrompt)
    this.#judged = { input, guarded }
    return guarded
  }

  async tokenize(text: string): Promise<readonly number[]> {
    return this.#parts.pool.tokenize(text)
  }

  status(): DeskStatus {
    const { batcher, pool } = this.#parts
    const { queued, running } = batcher
    return { queued, running, workers: pool.workers, unready: pool.unready }
  }
}

/** How long an answer that is cut off may wait for the count of its prompt. */
const countMs = 1000

type Outcome = Generation['outcome']

/** One question on its way. */
class Visit {
  readonly #parts: ReceptionParts
  readonly #meter: GenerationMeter
  readonly #question: Question
  readonly #listener: AnswerListener
  readonly #settle: (outcome: Outcome) => void
  readonly #arrivedAt: number
  readonly #arrivedTime: number
  #builder: AnswerBuilder
  /** Made only where an answer may be cut off. */
  readonly #cut: AbortController | null
  #request: GenerationRequest
  #firstTokenAt: number | null = null
  /** The guardrails' rules that hit the question. */
  #rules: readonly string[] = []
  /** A part of the answer was shown to somebody. */
  #hasShown = false
  #hasEnded = false

  constructor(
    parts: ReceptionParts,
    meter: GenerationMeter,
    question: Question,
    listener: AnswerListener,
    settle: (outcome: Outcome) => void,
  ) {
    this.#parts = parts
    this.#meter = meter
    this.#question = question
    this.#listener = listener
    this.#settle = settle
    this.#arrivedAt = parts.clock.monotonicMs()
    this.#arrivedTime = parts.clock.now()
    this.#builder = new AnswerBuilder(parts.guard)
    this.#cut = this.#builder.mayBlock ? new AbortController() : null
    const { input, signal } = question
    this.#request = {
      id: newSpanId(),
      input,
      sampling: { ...parts.sampling, ...question.sampling },
      signal: this.#cut === null ? signal : AbortSignal.any([signal, this.#cut.signal]),
    }
  }

  begin(guarded: GuardedInput): void {
    this.#rules = guarded.hits.map(({ rule }) => rule)
    if ('refusal' in guarded) return this.#end({ answer: guarded.refusal })
    if ('error' in guarded) return this.#end({ error: guarded.error })
    this.#request = { ...this.#request, input: guarded.input }
    const { priority, timeoutSeconds, isBounded } = this.#question
    this.#parts.batcher.enqueue({
      request: this.#request,
      priority,
      isBounded,
      timeoutMs: timeoutSeconds === null ? null : timeoutSeconds * 1000,
      listener: {
        started: (workerId) => this.#listener.started?.(workerId),
        delta: (delta) => this.#push(delta),
        restart: () => this.#restart(),
        end: (end) => this.#finish(end),
      },
    })
  }

  #push(delta: GenerationDelta): Promise<void> | undefined {
    this.#firstTokenAt ??= this.#parts.clock.monotonicMs()
    const shown = this.#builder.push(delta)
    if (this.#builder.isBlocked) this.#cut?.abort()
    if (shown === null || this.#listener.delta === undefined) return undefined
    this.#hasShown = true
    return this.#listener.delta(shown)
  }

  /** To a session, a lost engine is a lost worker: its tasks do not begin again. */
  #restart(): boolean {
    if (this.#hasShown || this.#question.taskId !== null) return false
    this.#builder = new AnswerBuilder(this.#parts.guard)
    this.#firstTokenAt = null
    return true
  }

  #finish(end: GenerationEnd): void {
    if (!this.#builder.isBlocked) {
      if (end.kind === 'failed') return this.#end({ error: end.error })
      if (end.kind === 'canceled') {
        return this.#end({ error: inferenceError('canceled', 'the request was canceled') })
      }
    }
    const rest = this.#builder.flush()
    if (rest !== null) void this.#listener.delta?.(rest)
    if (end.kind === 'done') this.#endWith(end.finishReason, end.usage)
    else this.#endCut()
  }

  /** Nobody counts the tokens of an answer that is cut off: its pieces stand for them. */
  #endCut(): void {
    const { promptTokens, pieces } = this.#builder
    const endWith = (count: number): void =>
      this.#endWith('content_filter', { promptTokens: count, completionTokens: pieces })
    if (promptTokens === null) void this.#countPrompt().then(endWith)
    else endWith(promptTokens)
  }

  /** Without what the model's template adds; never rejects. */
  async #countPrompt(): Promise<number> {
    const { pool, clock } = this.#parts
    const text = promptText(this.#request.input)
    try {
      return (await boundedWait(clock, countMs, pool.tokenize(text))).length
    } catch {
      return estimateTokens(text)
    }
  }

  #endWith(reason: FinishReason, usage: Usage): void {
    this.#end({ answer: this.#builder.finish(reason, usage) })
  }

  #end(outcome: Outcome): void {
    if (this.#hasEnded) return
    this.#hasEnded = true
    const { clock, model, isContentCaptured, onAnswered } = this.#parts
    const { taskId } = this.#question
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
    onAnswered(taskId, {
      span: () => toSpan(generation),
      measurements: this.#meter.measure(generation),
      code: 'answer' in outcome ? outcome.answer.finishReason : codeOf(outcome.error),
    })
    this.#settle(outcome)
  }
}

function codeOf(error: unknown): string {
  return typeof error === 'object' && error !== null && 'code' in error
    ? String(error.code)
    : 'error'
}

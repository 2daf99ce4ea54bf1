/** One running request, from its prompt tokens to its result. The step loop drives it. */

import { randomInt } from 'node:crypto'
import { messageOf } from '../../../foundation/errors.ts'
import type {
  FinishReason,
  GenerationDelta,
  Sampling,
  TokenLogprob,
} from '../../generation/inference-engine.ts'
import { TooManyWaysError } from './grammar/grammar-stacks.ts'
import { ResultText } from './formats/result-text.ts'
import { paramOfGrammar, type PreparedPrompt } from './prepared-prompt.ts'
import type { Failure, RequestUpdate, PlainEnd, PlainRequest } from './protocol.ts'
import {
  type ChosenToken,
  GrammarDeadEnd,
  type LlamaRuntime,
  type Slot,
  type Token,
  type TokenChoice,
  type TokenStream,
} from './runtime.ts'
import { PromptScores, scoredAtOnce } from './evaluation/prompt-scores.ts'
import { describeLogprobs } from './token-text.ts'

/**
 * The number of recent tokens that the repetition penalty considers, as in llama.cpp by default.
 */
const repetitionWindow = 64
/**
 * Dividing logits by a smaller number gives infinity, which would make all tokens equally likely.
 */
const minTemperature = 1e-6

export class Generation {
  readonly id: string
  /** Whether the request is paused because its reader is slow. */
  isHeld = false
  readonly #request: PlainRequest
  readonly #runtime: LlamaRuntime
  readonly #prompt: readonly Token[]
  /** `null` if no logprobs of the prompt are requested. */
  readonly #scores: PromptScores | null
  readonly #choice: TokenChoice
  readonly #bias: LogitBias
  readonly #output: ResultText
  readonly #generated: Token[] = []
  readonly #report: (update: RequestUpdate) => void
  #taken = 0
  #stream: TokenStream | null = null
  #slot: Slot | null = null
  #cached = 0
  #hasSent = false
  #hasEnded = false

  constructor(
    request: PlainRequest,
    prepared: PreparedPrompt,
    runtime: LlamaRuntime,
    report: (update: RequestUpdate) => void,
  ) {
    this.id = request.id
    this.#request = request
    this.#runtime = runtime
    this.#report = report
    this.#prompt = prepared.tokens
    this.#scores = PromptScores.open(request, prepared, runtime.vocabulary)
    this.#output = new ResultText({
      vocabulary: runtime.vocabulary,
      prompt: prepared.tokens,
      stop: request.sampling.stop,
      reading: prepared.reading,
    })
    this.#bias = new LogitBias(request.sampling)
    this.#choice = this.#toChoice(prepared)
    if (this.maxTokens <= 0 && this.#scores === null) this.#endWithPrompt()
  }

  get hasEnded(): boolean {
    return this.#hasEnded
  }

  /** The number of prompt tokens that have not been evaluated yet. */
  get tokensToTake(): number {
    return this.#prompt.length - this.#taken
  }

  /** The maximum number of tokens in the answer. */
  get maxTokens(): number {
    return this.#request.sampling.maxTokens
  }

  /** The number of prompt tokens that this slot has already evaluated. */
  sharedWith(slot: Slot): number {
    return this.#scores === null ? sharedLength(slot.tokens, this.#prompt) : 0
  }

  /** Occupies the slot and reuses its evaluated tokens. Never rejects. */
  async begin(slot: Slot): Promise<void> {
    this.#slot = slot
    try {
      await slot.keep(this.sharedWith(slot))
      this.#cached = slot.tokens.length
      this.#taken = this.#cached
    } catch (error) {
      this.fail({ code: 'engine_error', message: messageOf(error) })
    }
  }

  /** The number of prompt tokens that the request evaluates in a step that has room for `max`. */
  tokensOfStep(max: number): number {
    const rest = this.tokensToTake
    if (this.#scores === null || rest <= 1) return Math.min(max, rest)
    return Math.min(max, rest - 1, scoredAtOnce)
  }

  /**
   * Evaluates up to `max` prompt tokens. After the last prompt token, generates a token. Never
   * rejects.
   */
  async step(max: number): Promise<void> {
    try {
      const slot = this.#slot
      if (slot === null || this.#hasEnded) return
      if (this.tokensToTake > max) {
        await this.#take(slot, max)
        if (this.maxTokens > 0 || this.tokensToTake > 1) return
      }
      if (this.maxTokens <= 0) return this.#endWithPrompt()
      if (!this.#hasSent) this.#sendPrompt()
      this.#stream ??= slot.continue(this.#prompt.slice(this.#taken), this.#choice)
      this.#taken = this.#prompt.length
      const chosen = await this.#stream.next()
      if (!this.#hasEnded) this.#accept(chosen)
    } catch (error) {
      this.fail(this.#toFailure(error))
    }
  }

  cancel(): void {
    this.#end({ kind: 'canceled' })
  }

  fail(failure: Failure): void {
    this.#end({ kind: 'failed', failure })
  }

  /** A grammar that the model cannot follow, or only too slowly, counts as the client's error. */
  #toFailure(error: unknown): Failure {
    const message = messageOf(error)
    const isOfGrammar = error instanceof GrammarDeadEnd || error instanceof TooManyWaysError
    if (!isOfGrammar) return { code: 'engine_error', message }
    const param = paramOfGrammar(this.#request)
    return { code: 'unsupported', message: `Invalid '${param}': ${message}`, param }
  }

  /** Releases the slot. */
  async leave(): Promise<void> {
    await this.#stream?.close()
    this.#stream = null
    this.#slot = null
  }

  async #take(slot: Slot, count: number): Promise<void> {
    const from = this.#taken
    this.#taken += count
    const tokens = this.#prompt.slice(from, from + count)
    if (this.#scores === null) return slot.take(tokens)
    const followers = this.#prompt.slice(from + 1, from + count + 1)
    this.#scores.add(await slot.score(tokens, followers, this.#scores.count))
  }

  #accept(chosen: ChosenToken): void {
    const { sampling } = this.#request
    const isEnd = this.#runtime.vocabulary.isEnd(chosen.token)
    if (isEnd && !sampling.ignoreEos) return this.#finish('stop')
    this.#generated.push(chosen.token)
    this.#bias.accept(chosen.token)
    this.#send(this.#output.push(chosen.token, this.#logprobOf(chosen)))
    if (this.#output.hasStopped) return this.#finish('stop')
    const length = this.#prompt.length + this.#generated.length
    const isFull = length >= this.#runtime.contextLength
    if (isFull || this.#generated.length >= sampling.maxTokens) this.#finish('length')
  }

  #finish(reason: FinishReason): void {
    this.#send(this.#output.end(reason === 'length'))
    const { reasoningTokens, hasCalls, isCallCut } = this.#output
    this.#end({
      kind: 'done',
      finishReason: reason === 'stop' && hasCalls && !isCallCut ? 'tool_calls' : reason,
      usage: {
        promptTokens: this.#prompt.length,
        completionTokens: this.#generated.length,
        details: {
          prompt_tokens_details: { cached_tokens: this.#cached },
          ...(reasoningTokens === 0
            ? {}
            : { completion_tokens_details: { reasoning_tokens: reasoningTokens } }),
        },
      },
    })
  }

  /** Ends a request that generates nothing, without computing the token after the prompt. */
  #endWithPrompt(): void {
    this.#sendPrompt()
    this.#finish('length')
  }

  #sendPrompt(): void {
    const { input, sampling } = this.#request
    if (!sampling.echo || input.kind !== 'text') return
    const { vocabulary } = this.#runtime
    const text = input.tokens === undefined ? input.text : vocabulary.textOf(input.tokens, [])
    this.#send({ text: '', prompt: { text, logprobs: this.#scores?.described() ?? [] } })
  }

  #send(delta: GenerationDelta | null): void {
    if (delta === null) return
    const sent = this.#hasSent ? delta : { ...delta, promptTokens: this.#prompt.length }
    this.#hasSent = true
    this.#report({ id: this.id, delta: sent })
  }

  #end(end: PlainEnd): void {
    if (this.#hasEnded) return
    this.#hasEnded = true
    this.#report({ id: this.id, end })
  }

  #logprobOf({ token, logprobs }: ChosenToken): TokenLogprob | null {
    const { logprobs: count } = this.#request.sampling
    if (count === null || logprobs === undefined) return null
    return describeLogprobs(this.#runtime.vocabulary, token, logprobs, count)
  }

  #toChoice({ grammar }: PreparedPrompt): TokenChoice {
    const { sampling } = this.#request
    const { temperature, topP, topK, minP, seed, repetitionPenalty, logprobs } = sampling
    const recent = (): Token[] =>
      [...this.#prompt.slice(-repetitionWindow), ...this.#generated].slice(-repetitionWindow)
    return {
      temperature: temperature < minTemperature ? 0 : temperature,
      topP,
      topK,
      minP,
      seed: (seed ?? randomInt(2 ** 32)) >>> 0,
      repetition:
        repetitionPenalty === 1
          ? null
          : { penalty: repetitionPenalty, window: repetitionWindow, recent },
      bias: this.#bias.isNeutral ? null : this.#bias,
      grammar,
      logprobs,
    }
  }
}

/**
 * The number of leading tokens that a prompt shares with a slot. The last prompt token does not
 * count, because it must be evaluated to predict the next token.
 */
export function sharedLength(held: readonly Token[], prompt: readonly Token[]): number {
  const max = Math.min(held.length, prompt.length - 1)
  let shared = 0
  while (shared < max && held[shared] === prompt[shared]) shared++
  return shared
}

type BiasOptions = Pick<Sampling, 'logitBias' | 'frequencyPenalty' | 'presencePenalty'>

/**
 * Numbers that are added to the model's logits before a token is chosen: the client's bias minus
 * the penalties of the public API. Every token of the answer costs `presence_penalty` once and
 * `frequency_penalty` for each occurrence. Tokens of the prompt do not count.
 */
class LogitBias {
  readonly #options: BiasOptions
  readonly #counts = new Map<Token, number>()
  readonly #biases: Map<Token, number>

  constructor(options: BiasOptions) {
    this.#options = options
    const entries = Object.entries(options.logitBias)
    this.#biases = new Map(entries.map(([token, bias]) => [Number(token), bias]))
  }

  /** Whether the bias will never change any logit. */
  get isNeutral(): boolean {
    return this.#biases.size === 0 && !this.isChanging
  }

  /** Whether the bias changes with the tokens of the answer. */
  get isChanging(): boolean {
    const { frequencyPenalty, presencePenalty } = this.#options
    return frequencyPenalty !== 0 || presencePenalty !== 0
  }

  /** The bias of each token. Every call returns the same map. */
  get biases(): ReadonlyMap<Token, number> {
    return this.#biases
  }

  /** Counts one more occurrence of the token in the answer. */
  accept(token: Token): void {
    if (!this.isChanging) return
    const { logitBias, frequencyPenalty, presencePenalty } = this.#options
    const count = (this.#counts.get(token) ?? 0) + 1
    this.#counts.set(token, count)
    const penalty = presencePenalty + count * frequencyPenalty
    this.#biases.set(token, (logitBias[token] ?? 0) - penalty)
  }
}

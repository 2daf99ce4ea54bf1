/** One running request, from its prompt tokens to its result. The step loop drives it. */

import { randomInt } from 'node:crypto'
import { messageOf } from '../../../foundation/errors.ts'
import type {
  FinishReason,
  GenerationDelta,
  Sampling,
  TokenLogprob,
} from '../../generation/inference-engine.ts'
import { AmbiguousGrammarError } from './grammar/grammar-stacks.ts'
import { AnswerDecoder } from './formats/answer-decoder.ts'
import { grammarParam, type PreparedPrompt } from './prepared-prompt.ts'
import type { Failure, RequestUpdate, RequestEnd, LlamaRequest } from './protocol.ts'
import {
  type ChosenToken,
  GrammarDeadEndError,
  type LlamaRuntime,
  type Slot,
  type Token,
  type TokenChoice,
  type TokenStream,
} from './runtime.ts'
import {
  createPromptScores,
  maxScoredTokens,
  type PromptScores,
} from './evaluation/prompt-scores.ts'
import { describeLogprobs } from './token-text.ts'

/** The number of recent tokens that the repetition penalty considers, as in llama.cpp. */
const repetitionWindow = 64
/** A lower temperature would make all logits infinite, and all tokens equally likely. */
const minTemperature = 1e-6

export class Generation {
  readonly id: string
  isPaused = false
  readonly #request: LlamaRequest
  readonly #runtime: LlamaRuntime
  readonly #prompt: readonly Token[]
  readonly #scores: PromptScores | null
  readonly #choice: TokenChoice
  readonly #bias: LogitBias
  readonly #output: AnswerDecoder
  readonly #generated: Token[] = []
  readonly #reportUpdate: (update: RequestUpdate) => void
  #evaluated = 0
  #stream: TokenStream | null = null
  #slot: Slot | null = null
  #cachedTokens = 0
  #hasSent = false
  hasEnded = false

  constructor(
    request: LlamaRequest,
    prepared: PreparedPrompt,
    runtime: LlamaRuntime,
    report: (update: RequestUpdate) => void,
  ) {
    this.id = request.id
    this.#request = request
    this.#runtime = runtime
    this.#reportUpdate = report
    this.#prompt = prepared.tokens
    this.#scores = createPromptScores(request, prepared.tokens, runtime.vocabulary)
    this.#output = new AnswerDecoder({
      vocabulary: runtime.vocabulary,
      prompt: prepared.tokens,
      stop: request.sampling.stop,
      parsing: prepared.parsing,
    })
    this.#bias = new LogitBias(request.sampling)
    this.#choice = this.#toTokenChoice(prepared)
    if (this.maxTokens <= 0 && this.#scores === null) this.#endWithPrompt()
  }

  get promptTokensLeft(): number {
    return this.#prompt.length - this.#evaluated
  }

  get maxTokens(): number {
    return this.#request.sampling.maxTokens
  }

  countShared(slot: Slot): number {
    return this.#scores === null ? commonPrefixLength(slot.tokens, this.#prompt) : 0
  }

  /**
   * Occupies the slot, and reuses those of its evaluated tokens that the prompt begins with. Never
   * rejects.
   */
  async begin(slot: Slot): Promise<void> {
    this.#slot = slot
    try {
      await slot.truncate(this.countShared(slot))
      this.#cachedTokens = slot.tokens.length
      this.#evaluated = this.#cachedTokens
    } catch (error) {
      this.fail({ code: 'engine_error', message: messageOf(error) })
    }
  }

  promptTokensInStep(max: number): number {
    const rest = this.promptTokensLeft
    if (this.#scores === null || rest <= 1) return Math.min(max, rest)
    return Math.min(max, rest - 1, maxScoredTokens)
  }

  /** Evaluates prompt tokens, or generates a token after the last of them. Never rejects. */
  async step(max: number): Promise<void> {
    try {
      const slot = this.#slot
      if (slot === null || this.hasEnded) return
      if (this.promptTokensLeft > max) {
        await this.#evaluatePrompt(slot, max)
        if (this.maxTokens > 0 || this.promptTokensLeft > 1) return
      }
      if (this.maxTokens <= 0) return this.#endWithPrompt()
      if (!this.#hasSent) this.#sendPrompt()
      this.#stream ??= slot.generate(this.#prompt.slice(this.#evaluated), this.#choice)
      this.#evaluated = this.#prompt.length
      const chosen = await this.#stream.next()
      if (!this.hasEnded) this.#accept(chosen)
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

  /** It is an error of the client if the model cannot follow the grammar, or only too slowly. */
  #toFailure(error: unknown): Failure {
    const message = messageOf(error)
    const isOfGrammar =
      error instanceof GrammarDeadEndError || error instanceof AmbiguousGrammarError
    if (!isOfGrammar) return { code: 'engine_error', message }
    const param = grammarParam(this.#request)
    return { code: 'unsupported', message: `Invalid '${param}': ${message}`, param }
  }

  async releaseSlot(): Promise<void> {
    await this.#stream?.close()
    this.#stream = null
    this.#slot = null
  }

  async #evaluatePrompt(slot: Slot, count: number): Promise<void> {
    const from = this.#evaluated
    this.#evaluated += count
    const tokens = this.#prompt.slice(from, from + count)
    if (this.#scores === null) return slot.evaluate(tokens)
    const followers = this.#prompt.slice(from + 1, from + count + 1)
    this.#scores.add(await slot.score(tokens, followers, this.#scores.count))
  }

  #accept(chosen: ChosenToken): void {
    const { sampling } = this.#request
    const isEnd = this.#runtime.vocabulary.isEnd(chosen.token)
    if (isEnd && !sampling.ignoreEos) return this.#finish('stop')
    this.#generated.push(chosen.token)
    this.#bias.accept(chosen.token)
    this.#send(this.#output.push(chosen.token, this.#toLogprob(chosen)))
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
          prompt_tokens_details: { cached_tokens: this.#cachedTokens },
          ...(reasoningTokens === 0
            ? {}
            : { completion_tokens_details: { reasoning_tokens: reasoningTokens } }),
        },
      },
    })
  }

  /** Ends a request that generates nothing. The token after the prompt is not computed. */
  #endWithPrompt(): void {
    this.#sendPrompt()
    this.#finish('length')
  }

  #sendPrompt(): void {
    const { input, sampling } = this.#request
    if (!sampling.echo || input.kind !== 'text') return
    const { vocabulary } = this.#runtime
    const text = input.tokens === undefined ? input.text : vocabulary.textOf(input.tokens, [])
    this.#send({ text: '', prompt: { text, logprobs: this.#scores?.toLogprobs() ?? [] } })
  }

  #send(delta: GenerationDelta | null): void {
    if (delta === null) return
    const sentDelta = this.#hasSent ? delta : { ...delta, promptTokens: this.#prompt.length }
    this.#hasSent = true
    this.#reportUpdate({ id: this.id, delta: sentDelta })
  }

  #end(end: RequestEnd): void {
    if (this.hasEnded) return
    this.hasEnded = true
    this.#reportUpdate({ id: this.id, end })
  }

  #toLogprob({ token, logprobs }: ChosenToken): TokenLogprob | null {
    const { logprobs: count } = this.#request.sampling
    if (count === null || logprobs === undefined) return null
    return describeLogprobs(this.#runtime.vocabulary, token, logprobs, count)
  }

  #toTokenChoice({ grammar }: PreparedPrompt): TokenChoice {
    const { sampling } = this.#request
    const { temperature, topP, topK, minP, seed, repetitionPenalty, logprobs } = sampling
    const recentTokens = (): Token[] =>
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
          : { penalty: repetitionPenalty, window: repetitionWindow, recent: recentTokens },
      bias: this.#bias.isEmpty ? null : this.#bias,
      grammar,
      logprobs,
    }
  }
}

/** Excludes the last prompt token, which must be evaluated to predict the next token. */
export function commonPrefixLength(held: readonly Token[], prompt: readonly Token[]): number {
  const max = Math.min(held.length, prompt.length - 1)
  let shared = 0
  while (shared < max && held[shared] === prompt[shared]) shared++
  return shared
}

type BiasOptions = Pick<Sampling, 'logitBias' | 'frequencyPenalty' | 'presencePenalty'>

/** The client's bias, minus the penalties for tokens that the answer already contains. */
class LogitBias {
  readonly #options: BiasOptions
  readonly #counts = new Map<Token, number>()
  /** Always the same map, which `accept` updates. */
  readonly biases: Map<Token, number>

  constructor(options: BiasOptions) {
    this.#options = options
    const entries = Object.entries(options.logitBias)
    this.biases = new Map(entries.map(([token, bias]) => [Number(token), bias]))
  }

  get isEmpty(): boolean {
    return this.biases.size === 0 && !this.isChanging
  }

  get isChanging(): boolean {
    const { frequencyPenalty, presencePenalty } = this.#options
    return frequencyPenalty !== 0 || presencePenalty !== 0
  }

  accept(token: Token): void {
    if (!this.isChanging) return
    const { logitBias, frequencyPenalty, presencePenalty } = this.#options
    const count = (this.#counts.get(token) ?? 0) + 1
    this.#counts.set(token, count)
    const penalty = presencePenalty + count * frequencyPenalty
    this.biases.set(token, (logitBias[token] ?? 0) - penalty)
  }
}

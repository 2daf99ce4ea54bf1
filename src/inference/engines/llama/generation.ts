/** One running request, from the tokens of its prompt to its end. The step loop drives it. */

import { randomInt } from 'node:crypto'
import { messageOf } from '../../../foundation/errors.ts'
import type {
  FinishReason,
  GenerationDelta,
  TokenLogprob,
} from '../../generation/inference-engine.ts'
import { ResultText } from './result-text.ts'
import type { Failure, News, PlainEnd, PlainRequest } from './protocol.ts'
import type { PreparedPrompt } from './prepared-prompt.ts'
import { describeLogprobs } from './token-text.ts'
import type { ChosenToken, LlamaRuntime, Slot, Token, TokenChoice, TokenStream } from './runtime.ts'

/** Tokens; the default of llama.cpp. */
const repetitionWindow = 64

export class Generation {
  readonly id: string
  /** The reader is slow: it must not be stepped. */
  isHeld = false
  readonly #request: PlainRequest
  readonly #runtime: LlamaRuntime
  readonly #prompt: readonly Token[]
  readonly #choice: TokenChoice
  readonly #output: ResultText
  readonly #generated: Token[] = []
  readonly #report: (news: News) => void
  #taken = 0
  #stream: TokenStream | null = null
  #slot: Slot | null = null
  #hasSent = false
  #hasEnded = false

  constructor(
    request: PlainRequest,
    prepared: PreparedPrompt,
    runtime: LlamaRuntime,
    report: (news: News) => void,
  ) {
    this.id = request.id
    this.#request = request
    this.#runtime = runtime
    this.#report = report
    this.#prompt = prepared.tokens
    this.#output = new ResultText(runtime.vocabulary, request, prepared)
    this.#choice = this.#toChoice(prepared)
    if (request.sampling.maxTokens <= 0) this.#finish('length')
  }

  get hasEnded(): boolean {
    return this.#hasEnded
  }

  /** Tokens of the prompt that the model has not evaluated yet. */
  get tokensToTake(): number {
    return this.#prompt.length - this.#taken
  }

  /** Never rejects. */
  async begin(slot: Slot): Promise<void> {
    this.#slot = slot
    try {
      await slot.clear()
    } catch (error) {
      this.fail({ code: 'engine_error', message: messageOf(error) })
    }
  }

  /** Evaluates up to `most` tokens of the prompt, or generates one. Never rejects. */
  async step(most: number): Promise<void> {
    try {
      const slot = this.#slot
      if (slot === null || this.#hasEnded) return
      if (this.tokensToTake > most) return await this.#take(slot, most)
      this.#stream ??= slot.continue(this.#prompt.slice(this.#taken), this.#choice)
      this.#taken = this.#prompt.length
      const chosen = await this.#stream.next()
      if (!this.#hasEnded) this.#accept(chosen)
    } catch (error) {
      this.fail({ code: 'engine_error', message: messageOf(error) })
    }
  }

  cancel(): void {
    this.#end({ kind: 'canceled' })
  }

  fail(failure: Failure): void {
    this.#end({ kind: 'failed', failure })
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
    await slot.take(this.#prompt.slice(from, from + count))
  }

  #accept(chosen: ChosenToken): void {
    const { sampling } = this.#request
    const isEnd = this.#runtime.vocabulary.isEnd(chosen.token)
    if (isEnd && !sampling.ignoreEos) return this.#finish('stop')
    this.#generated.push(chosen.token)
    this.#send(this.#output.push(chosen.token, this.#logprobOf(chosen)))
    if (this.#output.hasStopped) return this.#finish('stop')
    const length = this.#prompt.length + this.#generated.length
    const isFull = length >= this.#runtime.contextLength
    if (isFull || this.#generated.length >= sampling.maxTokens) this.#finish('length')
  }

  #finish(reason: FinishReason): void {
    const rest = this.#output.end()
    this.#send(rest)
    this.#end({
      kind: 'done',
      finishReason: (rest?.toolCalls?.length ?? 0) > 0 ? 'tool_calls' : reason,
      usage: {
        promptTokens: this.#prompt.length,
        completionTokens: this.#generated.length,
      },
    })
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

  #logprobOf({ token, probabilities }: ChosenToken): TokenLogprob | null {
    const { logprobs } = this.#request.sampling
    if (logprobs === null || probabilities === undefined) return null
    return describeLogprobs(this.#runtime.vocabulary, token, probabilities, logprobs)
  }

  #toChoice({ grammar }: PreparedPrompt): TokenChoice {
    const { sampling } = this.#request
    const { temperature, topP, topK, minP, seed, repetitionPenalty, logprobs } = sampling
    const recent = (): Token[] =>
      [...this.#prompt.slice(-repetitionWindow), ...this.#generated].slice(-repetitionWindow)
    return {
      temperature,
      topP,
      topK,
      minP,
      seed: (seed ?? randomInt(2 ** 32)) >>> 0,
      repetition: repetitionPenalty === 1 ? null : { penalty: repetitionPenalty, recent },
      grammar,
      wantsProbabilities: logprobs !== null,
    }
  }
}

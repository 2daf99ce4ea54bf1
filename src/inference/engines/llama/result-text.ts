/** Turns generated tokens into deltas: whole characters, stop texts, tool calls. */

import type { GenerationDelta, TokenLogprob } from '../../generation/inference-engine.ts'
import type { PreparedPrompt } from './prepared-prompt.ts'
import type { PlainRequest } from './protocol.ts'
import type { Token, Vocabulary } from './runtime.ts'
import { StopScanner, TokenText } from './token-text.ts'
import { ToolCallHolder } from './tool-calls.ts'

export class ResultText {
  readonly #characters: TokenText
  readonly #stops: StopScanner
  readonly #calls: ToolCallHolder | null
  /** Of tokens whose text is held back. */
  #logprobs: TokenLogprob[] = []

  constructor(vocabulary: Vocabulary, request: PlainRequest, { tokens, tools }: PreparedPrompt) {
    this.#characters = new TokenText(vocabulary, tokens)
    this.#stops = new StopScanner(request.sampling.stop)
    this.#calls = tools.length === 0 ? null : new ToolCallHolder(tools)
  }

  /** A stop text was found: nothing more is sent. */
  get hasStopped(): boolean {
    return this.#stops.hasStopped
  }

  /** What may be sent now; `null` if that is nothing. */
  push(token: Token, logprob: TokenLogprob | null): GenerationDelta | null {
    if (logprob !== null) this.#logprobs.push(logprob)
    const scanned = this.#stops.push(this.#characters.push(token))
    const text = this.#calls === null ? scanned : this.#calls.push(scanned)
    const isHolding =
      this.#characters.isHolding || this.#stops.isHolding || this.#calls?.isHolding === true
    return this.#toDelta(text, isHolding || this.hasStopped ? [] : this.#takeLogprobs())
  }

  /** What was held back, without an incomplete character. */
  end(): GenerationDelta | null {
    const rest = this.#stops.flush()
    const logprobs = this.hasStopped ? [] : this.#takeLogprobs()
    if (this.#calls === null) return this.#toDelta(rest, logprobs)
    const sent = this.#calls.push(rest)
    const { text, toolCalls } = this.#calls.end()
    const delta = this.#toDelta(sent + text, logprobs)
    return toolCalls.length === 0 ? delta : { ...delta, text: sent, toolCalls }
  }

  #takeLogprobs(): readonly TokenLogprob[] {
    const taken = this.#logprobs
    this.#logprobs = []
    return taken
  }

  #toDelta(text: string, logprobs: readonly TokenLogprob[]): GenerationDelta | null {
    if (text === '' && logprobs.length === 0) return null
    return logprobs.length === 0 ? { text } : { text, logprobs }
  }
}

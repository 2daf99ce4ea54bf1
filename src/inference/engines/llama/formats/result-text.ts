/** Converts the tokens of an answer to text, reasoning and calls, and finds stop texts. */

import type { GenerationDelta, TokenLogprob } from '../../../generation/inference-engine.ts'
import type { Token, Vocabulary } from '../runtime.ts'
import { StopScanner, TokenText } from '../token-text.ts'
import { OutputParser, type OutputParserOptions, type OutputPiece } from './output-parser.ts'

/** How the output of a request is parsed. */
export interface OutputReading {
  /** `null` if the whole output is text. */
  readonly parser: OutputParserOptions | null
  /** Control tokens that the parser needs, with their texts. */
  readonly marks: ReadonlyMap<Token, string>
}

export interface ResultTextOptions {
  readonly vocabulary: Vocabulary
  /** The tokens before the first token of the answer. */
  readonly prompt: readonly Token[]
  readonly stop: readonly string[]
  readonly reading: OutputReading
}

export class ResultText {
  readonly #characters: TokenText
  readonly #stops: StopScanner
  readonly #parser: OutputParser | null
  readonly #marks: ReadonlyMap<Token, string>
  /** The logprobs of tokens whose text is held back. */
  #logprobs: TokenLogprob[] = []
  #reasoningTokens = 0
  /** The number of latest tokens whose text is held back because it may begin reasoning. */
  #heldTokens = 0

  constructor({ vocabulary, prompt, stop, reading }: ResultTextOptions) {
    this.#characters = new TokenText(vocabulary, prompt)
    this.#stops = new StopScanner(stop)
    this.#parser = reading.parser === null ? null : new OutputParser(reading.parser)
    this.#marks = reading.marks
  }

  /**
   * Whether a stop text was found or the maximum number of calls exceeded, so that output has
   * ended.
   */
  get hasStopped(): boolean {
    return this.#stops.hasStopped || this.#parser?.isFull === true
  }

  get hasCalls(): boolean {
    return this.#parser !== null && this.#parser.callCount > 0
  }

  /** Whether a stop text was found inside a call, which is therefore incomplete. */
  get isCallCut(): boolean {
    return this.#stops.hasStopped && this.hasCalls && this.#parser?.isCallWhole === false
  }

  /** The number of reasoning tokens, including the marks. */
  get reasoningTokens(): number {
    return this.#reasoningTokens
  }

  /** The output that may be sent now; `null` for none. */
  push(token: Token, logprob: TokenLogprob | null): GenerationDelta | null {
    if (logprob !== null) this.#logprobs.push(logprob)
    const wasReasoning = this.#isReasoning()
    const scanned = this.#stops.push(this.#textOf(token))
    const piece = this.#parser === null ? toPiece(scanned) : this.#parser.push(scanned)
    const isHolding =
      this.#characters.isHolding || this.#stops.isHolding || this.#parser?.isHolding === true
    this.#count(wasReasoning || this.#isReasoning(), isHolding)
    return toDelta(piece, isHolding || this.hasStopped ? [] : this.#takeLogprobs())
  }

  /**
   * The text that was held back, without an incomplete character. `isCut` if the output was cut
   * off.
   */
  end(isCut: boolean): GenerationDelta | null {
    const rest = this.#stops.flush()
    const logprobs = this.hasStopped ? [] : this.#takeLogprobs()
    if (this.#parser === null) return toDelta(toPiece(rest), logprobs)
    return toDelta(
      join(this.#parser.push(rest), this.#parser.end(isCut || this.#stops.hasStopped)),
      logprobs,
    )
  }

  #isReasoning(): boolean {
    return this.#parser?.isReasoning === true
  }

  #count(isReasoning: boolean, isHolding: boolean): void {
    this.#heldTokens++
    if (isReasoning) this.#reasoningTokens += this.#heldTokens
    if (isReasoning || !isHolding) this.#heldTokens = 0
  }

  #textOf(token: Token): string {
    const text = this.#characters.push(token)
    const mark = this.#marks.get(token)
    return mark === undefined || text.endsWith(mark) ? text : text + mark
  }

  #takeLogprobs(): readonly TokenLogprob[] {
    const taken = this.#logprobs
    this.#logprobs = []
    return taken
  }
}

const toPiece = (text: string): OutputPiece => ({ text, reasoning: '', calls: [] })

const join = (one: OutputPiece, other: OutputPiece): OutputPiece => ({
  text: one.text + other.text,
  reasoning: one.reasoning + other.reasoning,
  calls: [...one.calls, ...other.calls],
})

function toDelta(
  { text, reasoning, calls }: OutputPiece,
  logprobs: readonly TokenLogprob[],
): GenerationDelta | null {
  if (text === '' && reasoning === '' && calls.length === 0 && logprobs.length === 0) return null
  return {
    text,
    ...(logprobs.length === 0 ? {} : { logprobs }),
    ...(calls.length === 0 ? {} : { toolCallPieces: calls }),
    ...(reasoning === '' ? {} : { reasoning }),
  }
}

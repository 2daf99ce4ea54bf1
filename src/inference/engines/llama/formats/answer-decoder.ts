/** Converts the tokens of an answer to text, reasoning and calls, and finds stop texts. */

import type { GenerationDelta, TokenLogprob } from '../../../generation/inference-engine.ts'
import type { Token, Vocabulary } from '../runtime.ts'
import { StopScanner, TokenText } from '../token-text.ts'
import { OutputParser, type OutputParserOptions, type OutputDelta } from './output-parser.ts'

export interface OutputParsing {
  /** How to parse the output; `null` if the whole output is text. */
  readonly parser: OutputParserOptions | null
  readonly marks: ReadonlyMap<Token, string>
}

export interface AnswerDecoderOptions {
  readonly vocabulary: Vocabulary
  readonly prompt: readonly Token[]
  readonly stop: readonly string[]
  readonly parsing: OutputParsing
}

export class AnswerDecoder {
  readonly #tokenText: TokenText
  readonly #stopScanner: StopScanner
  readonly #parser: OutputParser | null
  readonly #marks: ReadonlyMap<Token, string>
  #logprobs: TokenLogprob[] = []
  /** The number of reasoning tokens, including the marks around the reasoning. */
  reasoningTokens = 0
  /** The number of most recent tokens that may turn out to be reasoning. */
  #heldTokens = 0

  constructor({ vocabulary, prompt, stop, parsing }: AnswerDecoderOptions) {
    this.#tokenText = new TokenText(vocabulary, prompt)
    this.#stopScanner = new StopScanner(stop)
    this.#parser = parsing.parser === null ? null : new OutputParser(parsing.parser)
    this.#marks = parsing.marks
  }

  get hasStopped(): boolean {
    return this.#stopScanner.hasStopped || this.#parser?.hasDroppedCalls === true
  }

  get hasCalls(): boolean {
    return this.#parser !== null && this.#parser.callCount > 0
  }

  get isCallCut(): boolean {
    return this.#stopScanner.hasStopped && this.hasCalls && this.#parser?.isCallComplete === false
  }

  push(token: Token, logprob: TokenLogprob | null): GenerationDelta | null {
    if (logprob !== null) this.#logprobs.push(logprob)
    const wasReasoning = this.#isReasoning()
    const scanned = this.#stopScanner.push(this.#textOf(token))
    const piece = this.#parser === null ? toTextDelta(scanned) : this.#parser.push(scanned)
    const isHolding =
      this.#tokenText.hasPendingText ||
      this.#stopScanner.hasPendingText ||
      this.#parser?.hasPendingText === true
    this.#countReasoning(wasReasoning || this.#isReasoning(), isHolding)
    return toDelta(piece, isHolding || this.hasStopped ? [] : this.#takeLogprobs())
  }

  /** Returns the text that was held back, without an incomplete character. */
  end(isCut: boolean): GenerationDelta | null {
    const rest = this.#stopScanner.flush()
    const logprobs = this.hasStopped ? [] : this.#takeLogprobs()
    if (this.#parser === null) return toDelta(toTextDelta(rest), logprobs)
    return toDelta(
      joinDeltas(this.#parser.push(rest), this.#parser.end(isCut || this.#stopScanner.hasStopped)),
      logprobs,
    )
  }

  #isReasoning(): boolean {
    return this.#parser?.isReasoning === true
  }

  #countReasoning(isReasoning: boolean, isHolding: boolean): void {
    this.#heldTokens++
    if (isReasoning) this.reasoningTokens += this.#heldTokens
    if (isReasoning || !isHolding) this.#heldTokens = 0
  }

  #textOf(token: Token): string {
    const text = this.#tokenText.push(token)
    const mark = this.#marks.get(token)
    return mark === undefined || text.endsWith(mark) ? text : text + mark
  }

  #takeLogprobs(): readonly TokenLogprob[] {
    const takenLogprobs = this.#logprobs
    this.#logprobs = []
    return takenLogprobs
  }
}

const toTextDelta = (text: string): OutputDelta => ({ text, reasoning: '', calls: [] })

const joinDeltas = (one: OutputDelta, other: OutputDelta): OutputDelta => ({
  text: one.text + other.text,
  reasoning: one.reasoning + other.reasoning,
  calls: [...one.calls, ...other.calls],
})

function toDelta(
  { text, reasoning, calls }: OutputDelta,
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

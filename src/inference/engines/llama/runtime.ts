/** The interface between the step loop and the library that evaluates a model. */

import type { FollowedGrammar } from './grammar/next-characters.ts'
import type { GrammarFormat } from './grammar/output-grammar.ts'
import type { ChatTemplate } from './templates/chat-template.ts'

export type Token = number

export interface LlamaRuntime {
  /** Why the number of threads is bad according to a measurement; `null` if it is good. */
  readonly threadProblem: string | null
  /** The maximum number of tokens of prompt and answer in total. */
  readonly contextLength: number
  /** The maximum number of prompt tokens that are evaluated together. */
  readonly batchSize: number
  /** The slots, in the order in which they must be stepped. */
  readonly slots: readonly Slot[]
  readonly vocabulary: Vocabulary
  /** `null` if the model has no chat template. */
  readonly template: ChatTemplate | null
  /** Throws for a format that cannot be enforced. */
  createGrammar(format: GrammarFormat): FollowedGrammar
}

export interface Vocabulary {
  /** The number of tokens. */
  readonly size: number
  /** The token that precedes every prompt, if the model requires one. */
  readonly first: Token | null
  /** The number of characters in the longest token; `Infinity` if unknown. */
  readonly maxTokenLength: number
  /** `special`: control tokens are recognized. `inner`: the text continues another text. */
  tokenize(text: string, how: { readonly special: boolean; readonly inner: boolean }): Token[]
  /**
   * How a text can be tokenized in slices that begin at a space: with the space, or without it
   * because the vocabulary adds one. `null` if texts cannot be sliced.
   */
  readonly slices: 'with space' | 'without space' | null
  /** Incomplete characters become U+FFFD; control tokens have no text. */
  textOf(tokens: readonly Token[], before: readonly Token[]): string
  /** The text of a token that is shown alone. */
  nameOf(token: Token): string
  /** The bytes of a token whose name contains U+FFFD; `null` if unknown. */
  bytesOf(token: Token): readonly number[] | null
  /** Whether the token ends an answer. */
  isEnd(token: Token): boolean
  /** Whether the token has no text, such as a control token. */
  isTextless(token: Token): boolean
}

/** Generates one answer at a time. */
export interface Slot {
  /** The tokens evaluated so far, in order. */
  readonly tokens: readonly Token[]
  /** Removes all but the first `count` tokens, or all tokens if the model cannot keep a part. */
  keep(count: number): Promise<void>
  take(tokens: readonly Token[]): Promise<void>
  /**
   * Evaluates the tokens. Returns for each token the log probabilities of the next token: of the
   * `count` most likely tokens or more, most likely first, and of the token in `followers`.
   */
  score(
    tokens: readonly Token[],
    followers: readonly Token[],
    count: number,
  ): Promise<readonly ReadonlyMap<Token, number>[]>
  /** Evaluates the tokens and generates the following ones, one per call of the stream. */
  continue(tokens: readonly Token[], choice: TokenChoice): TokenStream
}

export interface TokenStream {
  next(): Promise<ChosenToken>
  close(): Promise<void>
}

export interface ChosenToken {
  readonly token: Token
  /**
   * The model's log probabilities of the most likely tokens and of this token, most likely first.
   * Present only if requested. Sampling options do not change them.
   */
  readonly logprobs?: ReadonlyMap<Token, number>
}

export interface TokenChoice {
  readonly temperature: number
  readonly topP: number
  readonly topK: number
  readonly minP: number
  readonly seed: number
  /** `null` for no penalty. `recent` returns up to `window` tokens. */
  readonly repetition: {
    readonly penalty: number
    readonly window: number
    recent(): Token[]
  } | null
  /** Numbers that are added to logits, by token. Read again before each token if `isChanging`. */
  readonly bias: {
    readonly isChanging: boolean
    readonly biases: ReadonlyMap<Token, number>
  } | null
  readonly grammar: FollowedGrammar | null
  /** The number of most likely tokens to report with each token; `null` for no logprobs. */
  readonly logprobs: number | null
}

/** Thrown if no token of the model can continue the answer as the grammar requires. */
export class GrammarDeadEnd extends Error {
  constructor() {
    super('no token of the model fits the grammar here')
  }
}

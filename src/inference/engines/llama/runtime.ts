/** The interface between the step loop and the library that evaluates a model. */

import type { CachedGrammar } from './grammar/next-characters.ts'
import type { GrammarFormat } from './grammar/output-grammar.ts'
import type { ChatTemplate } from './templates/chat-template.ts'

export type Token = number

export interface LlamaRuntime {
  readonly threadWarning: string | null
  /** The settings that were measured, and the measurements, in one line. */
  readonly tuningReport: string | null
  readonly contextLength: number
  readonly batchSize: number
  /** The slots, in the order in which they must be stepped. As many requests run at a time. */
  readonly slots: readonly Slot[]
  /** As many slots for prompts of at least `longText` tokens, or none if all slots are alike. */
  readonly longSlots: readonly Slot[]
  readonly vocabulary: Vocabulary
  readonly template: ChatTemplate | null
  createGrammar(format: GrammarFormat): CachedGrammar
}

export interface Vocabulary {
  readonly size: number
  /** The token that must precede every prompt; `null` if the model requires none. */
  readonly firstToken: Token | null
  /** The number of characters in the longest token; `Infinity` if unknown. */
  readonly maxTokenLength: number
  /** With `special`, recognizes control tokens. With `inner`, the text continues another text. */
  tokenize(text: string, how: { readonly special: boolean; readonly inner: boolean }): Token[]
  /**
   * How a long text can be cut at spaces into slices that have the same tokens as the whole text:
   * each slice keeps the space before it, or omits it. `null` if texts cannot be cut.
   */
  readonly slicing: 'with space' | 'without space' | null
  /**
   * Returns the text of tokens that follow `before`. Incomplete characters become U+FFFD, and
   * control tokens become empty text.
   */
  textOf(tokens: readonly Token[], before: readonly Token[]): string
  /** Like `textOf`, with the texts of control tokens. */
  fullTextOf(tokens: readonly Token[]): string
  /** Returns the text of a token that is shown alone. */
  nameOf(token: Token): string
  /** Returns the bytes of a token whose name contains U+FFFD, or `null` if they are unknown. */
  bytesOf(token: Token): readonly number[] | null
  isEnd(token: Token): boolean
  isTextless(token: Token): boolean
}

/** A sequence of evaluated tokens in the model's context. */
export interface Slot {
  readonly tokens: readonly Token[]
  /** Keeps the first `count` tokens, or none if the model cannot keep a part of them. */
  truncate(count: number): Promise<void>
  evaluate(tokens: readonly Token[]): Promise<void>
  /** For each token, returns log probabilities of its follower and of the likeliest next tokens. */
  score(
    tokens: readonly Token[],
    followers: readonly Token[],
    count: number,
  ): Promise<readonly ReadonlyMap<Token, number>[]>
  /** Evaluates the tokens. Each `next` of the returned stream generates one more token. */
  generate(tokens: readonly Token[], choice: TokenChoice): TokenStream
}

export interface TokenStream {
  next(): Promise<ChosenToken>
  close(): Promise<void>
}

export interface ChosenToken {
  readonly token: Token
  /** The model's own log probabilities of the likeliest tokens, and of this token. */
  readonly logprobs?: ReadonlyMap<Token, number>
}

export interface TokenChoice {
  readonly temperature: number
  readonly topP: number
  readonly topK: number
  readonly minP: number
  readonly seed: number
  /** The repetition penalty; `null` for none. `recent` returns up to `window` tokens. */
  readonly repetition: {
    readonly penalty: number
    readonly window: number
    recent(): Token[]
  } | null
  /** Numbers to add to logits, by token. If `isChanging`, they are read again before each token. */
  readonly bias: {
    readonly isChanging: boolean
    readonly biases: ReadonlyMap<Token, number>
  } | null
  readonly grammar: CachedGrammar | null
  /** How many of the likeliest tokens to report; `null` for no log probabilities. */
  readonly logprobs: number | null
}

export class GrammarDeadEndError extends Error {
  constructor() {
    super('no token of the model fits the grammar here')
  }
}

/** The port between the step loop and the library that evaluates a model. */

import type { GrammarFormat } from './grammar/output-grammar.ts'
import type { ChatTemplate } from './templates/chat-template.ts'

export type Token = number

/** A loaded model. */
export interface LlamaRuntime {
  /** Why the number of threads is not good, as measured; `null` if it is. */
  readonly threadProblem: string | null
  /** Why the library is used in a slower way; `null` if it is not. */
  readonly libraryProblem: string | null
  /** Tokens of prompt and answer together. */
  readonly contextLength: number
  /** Tokens that are evaluated together. */
  readonly batchSize: number
  /** In the order in which they are to be stepped. */
  readonly slots: readonly Slot[]
  readonly vocabulary: Vocabulary
  /** `null` when the model has none. */
  readonly template: ChatTemplate | null
  /** Throws for what cannot be enforced. */
  createGrammar(format: GrammarFormat): Grammar
}

export interface Vocabulary {
  /** The number of its tokens. */
  readonly size: number
  /** Stands before every prompt, where the model wants one. */
  readonly first: Token | null
  /** The characters of the longest token; `Infinity` where the vocabulary does not say. */
  readonly longestToken: number
  /** `special`: recognise control tokens. `inner`: the text continues another. */
  tokenize(text: string, how: { readonly special: boolean; readonly inner: boolean }): Token[]
  /**
   * How a text can be tokenised in slices that begin at a space: with it, or without it, because
   * the vocabulary adds one; `null` if it cannot.
   */
  readonly slices: 'with space' | 'without space' | null
  /** Incomplete characters come out as U+FFFD; control tokens as nothing. */
  textOf(tokens: readonly Token[], before: readonly Token[]): string
  /** How a token is shown by itself. */
  nameOf(token: Token): string
  /** The bytes behind U+FFFD in a token's name; `null` where the vocabulary does not say. */
  bytesOf(token: Token): readonly number[] | null
  /** An answer ends with it. */
  isEnd(token: Token): boolean
  /** Stands for no text, as control tokens do. */
  isTextless(token: Token): boolean
}

/** Generates one answer at a time. */
export interface Slot {
  /** What it has evaluated, in order. */
  readonly tokens: readonly Token[]
  /** Forgets all but the first `count` tokens, or all of them where the model cannot. */
  keep(count: number): Promise<void>
  take(tokens: readonly Token[]): Promise<void>
  /**
   * Takes the tokens; for each, the model's log probabilities of what follows: the `count` most
   * likely tokens at least, most likely first, and the one in `followers`.
   */
  score(
    tokens: readonly Token[],
    followers: readonly Token[],
    count: number,
  ): Promise<readonly ReadonlyMap<Token, number>[]>
  /** Takes the tokens and chooses what follows, one token a call. */
  continue(tokens: readonly Token[], choice: TokenChoice): TokenStream
}

export interface TokenStream {
  next(): Promise<ChosenToken>
  close(): Promise<void>
}

export interface ChosenToken {
  readonly token: Token
  /**
   * The model's log probabilities, of the most likely tokens and of this one, most likely first;
   * only where they were asked for. What changes the choice does not change them.
   */
  readonly logprobs?: ReadonlyMap<Token, number>
}

export interface TokenChoice {
  readonly temperature: number
  readonly topP: number
  readonly topK: number
  readonly minP: number
  readonly seed: number
  /** `null` for no penalty. `recent` has at most `window` tokens. */
  readonly repetition: {
    readonly penalty: number
    readonly window: number
    recent(): Token[]
  } | null
  /** What is added to logits, by token; read before each token if it is changing. */
  readonly bias: {
    readonly isChanging: boolean
    readonly biases: ReadonlyMap<Token, number>
  } | null
  readonly grammar: Grammar | null
  readonly isEnd: (token: Token) => boolean
  /** How many of the most likely tokens are told with each token; `null` for no logprobs. */
  readonly logprobs: number | null
}

/** Opaque to all but the runtime that created it. */
export interface Grammar {
  readonly ofRuntime: unknown
}

/** No token of the model can be next as the grammar demands. */
export class GrammarDeadEnd extends Error {
  constructor(cause?: unknown) {
    super('no token of the model fits the grammar here', { cause })
  }
}

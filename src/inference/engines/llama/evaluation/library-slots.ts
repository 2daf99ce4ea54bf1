/**
 * Slots that use only the public interface of node-llama-cpp, for versions whose native context is
 * not known. Slower: for log probabilities a position is evaluated again and the whole vocabulary
 * is fetched.
 */

import type * as LlamaLibrary from 'node-llama-cpp'
import type {
  LlamaContext,
  LlamaContextSequence,
  LlamaGrammarEvaluationState,
  LlamaModel,
  Token as LibraryToken,
} from 'node-llama-cpp'
import { messageOf } from '../../../../foundation/errors.ts'
import {
  GrammarDeadEnd,
  type Slot,
  type Token,
  type TokenChoice,
  type TokenStream,
} from '../runtime.ts'

type Library = typeof LlamaLibrary

export interface LibrarySlotOptions {
  readonly library: Library
  readonly model: LlamaModel
  readonly context: LlamaContext
  readonly count: number
  readonly openGrammar: (choice: TokenChoice) => LlamaGrammarEvaluationState | undefined
}

export function createLibrarySlots(options: LibrarySlotOptions): Slot[] {
  return Array.from({ length: options.count }, () => {
    const sequence = options.context.getSequence()
    return createSlot(options, sequence)
  })
}

/** Sampling options that keep all tokens with the model's own probabilities. */
const unchanged = { temperature: 1, topK: 0, topP: 1, minP: 0 }
const wholeVocabulary = { generateNext: { probabilities: true, options: unchanged } }

function createSlot(
  { library, model, openGrammar }: LibrarySlotOptions,
  sequence: LlamaContextSequence,
): Slot {
  const score = async (
    tokens: readonly Token[],
  ): Promise<readonly ReadonlyMap<Token, number>[]> => {
    const evaluated = await sequence.controlledEvaluate(
      ours(tokens).map((token) => [token, wholeVocabulary]),
    )
    return evaluated.map((result) => toLogprobs(result?.next.probabilities ?? new Map()))
  }
  return {
    get tokens() {
      return sequence.contextTokens
    },
    async keep(count) {
      const { nextTokenIndex: end } = sequence
      if (count < end) await sequence.eraseContextTokenRanges([{ start: count, end }])
    },
    take: (tokens) => sequence.evaluateWithoutGeneratingNewTokens(ours(tokens)),
    score,
    continue: (tokens, choice) => openStream(tokens, choice),
  }

  function openStream(tokens: readonly Token[], choice: TokenChoice): TokenStream {
    const options = toOptions(library, model, choice, openGrammar(choice))
    const iterator = sequence.evaluate(ours(tokens), options)
    return {
      async next() {
        const { value: token, done } = await iterator.next().catch((error: unknown) => {
          throw /grammar/i.test(messageOf(error)) ? new GrammarDeadEnd(error) : error
        })
        if (done === true) throw new Error('the model gave no token')
        if (choice.logprobs === null) return { token }
        return { token, logprobs: await scoreAgain() }
      },
      async close() {
        await iterator.return()
      },
    }
  }

  async function scoreAgain(): Promise<ReadonlyMap<Token, number>> {
    const last = sequence.contextTokens.slice(-1)
    const { nextTokenIndex: end } = sequence
    await sequence.eraseContextTokenRanges([{ start: end - 1, end }])
    const [logprobs = new Map<Token, number>()] = await score(last)
    return logprobs
  }
}

const ours = (tokens: readonly number[]): LibraryToken[] => [...tokens] as LibraryToken[]

const toLogprobs = (probabilities: ReadonlyMap<Token, number>): ReadonlyMap<Token, number> =>
  new Map(
    [...probabilities]
      .map(([token, probability]) => [token, Math.log(probability)] as const)
      .toSorted(([, one], [, other]) => other - one),
  )

function toOptions(
  library: Library,
  model: LlamaModel,
  { temperature, topP, topK, minP, seed, repetition, bias }: TokenChoice,
  grammarEvaluationState: LlamaGrammarEvaluationState | undefined,
) {
  return {
    temperature,
    topP,
    topK,
    minP,
    seed,
    yieldEogToken: true,
    ...(grammarEvaluationState === undefined ? {} : { grammarEvaluationState }),
    ...(bias === null ? {} : { tokenBias: () => toTokenBias(bias.biases) }),
    ...(repetition === null
      ? {}
      : {
          repeatPenalty: {
            penalty: repetition.penalty,
            punishTokens: () => repetition.recent() as LibraryToken[],
          },
        }),
  }

  /** The library ignores a bias for tokens that end an answer. */
  function toTokenBias(biases: ReadonlyMap<Token, number>) {
    const tokenBias = new library.TokenBias(model.tokenizer)
    for (const [token, logit] of biases) tokenBias.set(token as LibraryToken, { logit })
    return tokenBias
  }
}

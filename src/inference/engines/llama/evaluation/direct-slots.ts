/** Slots, each with its own tokens in a native context. Slots that step together share a pass. */

import type { Slot, Token, TokenChoice, TokenStream, Vocabulary } from '../runtime.ts'
import { ChoiceSampler } from './choice-sampler.ts'
import { type GrammarState, TokenGroups } from './grammar-filter.ts'
import type { NativeContext, PassPart } from './native-context.ts'
import { TokenScorer } from './token-scorer.ts'

/** Creates `count` slots in each context. */
export function createDirectSlots(
  contexts: readonly NativeContext[],
  vocabulary: Vocabulary,
  count: number,
): Slot[][] {
  const turns = new Turns()
  let groups: TokenGroups | undefined
  const openGrammar: OpenGrammar = ({ grammar }) => {
    if (grammar === null) return null
    groups ??= new TokenGroups(vocabulary)
    return groups.begin(grammar.begin())
  }
  return contexts.map((context) => {
    const passes = new PassQueue(context, turns)
    return Array.from({ length: count }, (_, at) => new DirectSlot(at, passes, openGrammar))
  })
}

type OpenGrammar = (choice: TokenChoice) => GrammarState | null

type ReadLogits<T> = (indexes: Uint32Array) => Promise<T>

interface QueuedPart {
  readonly part: PassPart
  readonly read: ReadLogits<void>
  readonly reject: (error: unknown) => void
}

/** Runs one pass after the other, because simultaneous passes would compete for the same cores. */
class Turns {
  #last: Promise<void> = Promise.resolve()

  /** `run` must not reject. */
  add(run: () => Promise<void>): void {
    this.#last = this.#last.then(run)
  }
}

/** Runs the model once for all parts that are requested in the same turn of the event loop. */
class PassQueue {
  readonly context: NativeContext
  readonly #turns: Turns
  #queued: QueuedPart[] = []

  constructor(context: NativeContext, turns: Turns) {
    this.context = context
    this.#turns = turns
  }

  evaluate<T>(part: PassPart, read: ReadLogits<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      this.#queued.push({
        part,
        read: async (indexes) => read(indexes).then(resolve, reject),
        reject,
      })
      if (this.#queued.length === 1) queueMicrotask(() => this.#run())
    })
  }

  /** Sorts by sequence, because llama.cpp merges only ascending sequences. */
  #run(): void {
    const queued = this.#queued.toSorted((one, other) => one.part.sequence - other.part.sequence)
    this.#queued = []
    this.#turns.add(() => this.#runPass(queued))
  }

  async #runPass(queued: readonly QueuedPart[]): Promise<void> {
    try {
      const indexes = await this.context.evaluate(queued.map(({ part }) => part))
      await Promise.all(queued.map(({ read }, at) => read(indexes[at] ?? noIndexes)))
    } catch (error) {
      for (const { reject } of queued) reject(error)
    }
  }
}

const noIndexes = new Uint32Array()

class DirectSlot implements Slot {
  readonly #sequence: number
  readonly #passQueue: PassQueue
  readonly #openGrammar: OpenGrammar
  readonly tokens: Token[] = []
  /** Whether a failed pass left the sequence with unknown content. */
  #isUnknown = false

  constructor(sequence: number, passes: PassQueue, openGrammar: OpenGrammar) {
    this.#sequence = sequence
    this.#passQueue = passes
    this.#openGrammar = openGrammar
  }

  async truncate(count: number): Promise<void> {
    if (count >= this.tokens.length && !this.#isUnknown) return
    const wanted = this.#isUnknown ? 0 : count
    const isKept = this.#passQueue.context.truncate(this.#sequence, wanted, this.tokens.length)
    this.tokens.length = isKept ? wanted : 0
    this.#isUnknown = false
  }

  evaluate(tokens: readonly Token[]): Promise<void> {
    return this.#evaluate(tokens, [], async () => {})
  }

  async score(
    tokens: readonly Token[],
    followers: readonly Token[],
    count: number,
  ): Promise<readonly ReadonlyMap<Token, number>[]> {
    const scorer = new TokenScorer(this.#passQueue.context, count)
    try {
      return await this.#evaluate(tokens, [...tokens.keys()], async (indexes) => {
        const scores: ReadonlyMap<Token, number>[] = []
        for (const [at, index] of indexes.entries()) {
          const reading = await scorer.read(index)
          scores.push(await scorer.score(index, followers[at] ?? 0, reading))
        }
        return scores
      })
    } finally {
      scorer.dispose()
    }
  }

  generate(tokens: readonly Token[], choice: TokenChoice): TokenStream {
    const sampler = new ChoiceSampler(this.#passQueue.context, choice, this.#openGrammar(choice))
    let next = tokens
    return {
      next: async () => {
        const chosen = await this.#evaluate(next, [next.length - 1], async ([index = 0]) =>
          sampler.choose(index),
        )
        next = [chosen.token]
        return chosen
      },
      close: async () => sampler.dispose(),
    }
  }

  async #evaluate<T>(
    tokens: readonly Token[],
    sampled: readonly number[],
    read: ReadLogits<T>,
  ): Promise<T> {
    const part = { sequence: this.#sequence, first: this.tokens.length, tokens, sampled }
    this.#isUnknown = true
    const result = await this.#passQueue.evaluate(part, read)
    for (const token of tokens) this.tokens.push(token)
    this.#isUnknown = false
    return result
  }
}

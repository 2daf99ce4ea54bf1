/** Chooses the tokens of one answer with the native context. */

import { type ChosenToken, GrammarDeadEnd, type Token, type TokenChoice } from '../runtime.ts'
import type { GrammarAnswer, TokenGroups } from './grammar-filter.ts'
import type { NativeContext } from './native-context.ts'
import type { NextCharacters } from '../grammar/next-characters.ts'
import type { NativeSampler, SamplerConfig } from './sampler-pool.ts'
import { TokenScorer } from './token-scorer.ts'

/** Lifts tokens above all others, whatever the model thinks of them. */
const lift = 200
/** Tokens of the groups that a grammar allows are tried so often, then all that it allows. */
const mostTries = 2
/** More tokens than these are a text, of which a grammar allows almost everything. */
const mostLifted = 1000

export interface NativeGrammar {
  readonly state: unknown
  /** At the beginning of the answer; `null` for a grammar that cannot be followed. */
  readonly next: NextCharacters | null
  readonly groups: TokenGroups
}

export class ChoiceSampler {
  readonly #context: NativeContext
  readonly #choice: TokenChoice
  readonly #sampler: NativeSampler
  readonly #scorer: TokenScorer | null
  readonly #grammar: NativeGrammar | null
  readonly #answer: GrammarAnswer | null
  #isConfigured = false

  constructor(context: NativeContext, choice: TokenChoice, grammar: NativeGrammar | null) {
    this.#context = context
    this.#choice = choice
    this.#grammar = grammar
    this.#answer = grammar?.groups.begin(context.grammarState(grammar.state), grammar.next) ?? null
    this.#sampler = context.takeSampler()
    const { logprobs } = choice
    this.#scorer = logprobs === null ? null : new TokenScorer(context, logprobs)
  }

  async choose(index: number): Promise<ChosenToken> {
    const scorer = this.#scorer
    if (scorer === null) return { token: await this.#chooseAllowed(index) }
    const choice = this.#chooseAllowed(index)
    const [token, reading] = await Promise.all([choice, scorer.read(index)])
    return { token, logprobs: await scorer.score(index, token, reading) }
  }

  dispose(): void {
    this.#context.releaseSampler(this.#sampler)
    this.#scorer?.dispose()
  }

  async #chooseAllowed(index: number): Promise<Token> {
    const [answer, grammar] = [this.#answer, this.#grammar]
    if (answer === null || grammar === null) return this.#chooseAny(index)
    const groups = grammar.groups.candidates(answer)
    const count = groups?.reduce((sum, group) => sum + group.length, 0) ?? 0
    if (groups === null || count > mostLifted) {
      const token = await this.#chooseText(index, answer)
      if (token !== null) return token
    }
    if (groups === null) return this.#chooseByGrammar(index, answer, grammar)
    return this.#chooseAmong(index, groups.flat(), answer, grammar)
  }

  #chooseAny(index: number): Promise<Token> {
    this.#configure()
    return this.#context.choose(index, this.#sampler)
  }

  /** Any token: most are allowed in a text. If it is not, another one; `null` if that is not. */
  async #chooseText(index: number, answer: GrammarAnswer): Promise<Token | null> {
    const token = await this.#chooseAny(index)
    if (answer.isNext(token)) return this.#accept(token, answer)
    this.#apply(this.#toConfig([], [token]))
    const other = await this.#context.choose(index, this.#sampler)
    return answer.isNext(other) ? this.#accept(other, answer) : null
  }

  async #chooseAmong(
    index: number,
    tokens: readonly Token[],
    answer: GrammarAnswer,
    grammar: NativeGrammar,
  ): Promise<Token> {
    let candidates = tokens
    for (let tries = 0; tries <= mostTries; tries++) {
      if (tries === mostTries) {
        if (candidates.length > mostLifted) break
        candidates = candidates.filter((one) => answer.isNext(one))
      }
      if (candidates.length === 0) break
      this.#apply(this.#toConfig(candidates))
      const token = await this.#context.choose(index, this.#sampler)
      if (answer.isNext(token)) return this.#accept(token, answer)
      candidates = candidates.filter((one) => one !== token)
    }
    return this.#chooseByGrammar(index, answer, grammar)
  }

  /** Applies the grammar to all tokens; the sampler tells it which one it chose. */
  async #chooseByGrammar(
    index: number,
    answer: GrammarAnswer,
    { groups, state: native }: NativeGrammar,
  ): Promise<Token> {
    const config = this.#toConfig([], groups.broken(answer))
    this.#apply({ ...config, grammarEvaluationState: native })
    const token = await this.#context.choose(index, this.#sampler).catch((error: unknown) => {
      throw new GrammarDeadEnd(error)
    })
    if (!this.#choice.isEnd(token)) answer.follow(token)
    return token
  }

  #accept(token: Token, answer: GrammarAnswer): Token {
    if (!this.#choice.isEnd(token)) answer.accept(token)
    return token
  }

  /** For one choice. */
  #apply(config: SamplerConfig): void {
    this.#isConfigured = false
    this.#sampler.applyConfig(config)
  }

  #configure(): void {
    const { repetition, bias } = this.#choice
    if (this.#isConfigured && repetition === null && bias?.isChanging !== true) return
    this.#isConfigured = true
    this.#sampler.applyConfig(this.#toConfig())
  }

  /**
   * Only the tokens of `among` are possible, where it is given. What a grammar requires may be
   * repeated: a penalty would divide what lifts a token as well.
   */
  #toConfig(among: readonly Token[] = [], banned: readonly Token[] = []): SamplerConfig {
    const { temperature, topP, topK, minP, seed, repetition, bias } = this.#choice
    return {
      temperature,
      seed,
      topP,
      minP,
      ...(topK === 0 ? {} : { topK }),
      ...(repetition === null || among.length > 0 ? {} : repetitionOf(repetition)),
      ...this.#biasOf(withBan(bias?.biases ?? none, banned), among),
    }
  }

  #biasOf(biases: ReadonlyMap<Token, number>, among: readonly Token[]): Partial<SamplerConfig> {
    if (among.length === 0) return biases.size === 0 ? {} : biasOf(biases)
    return liftOf(among, biases)
  }
}

const withBan = (biases: ReadonlyMap<Token, number>, banned: readonly Token[]): typeof biases =>
  banned.length === 0
    ? biases
    : new Map([...biases, ...banned.map((token) => [token, -Infinity] as const)])

const none: ReadonlyMap<Token, number> = new Map()

function repetitionOf(repetition: NonNullable<TokenChoice['repetition']>): Partial<SamplerConfig> {
  return {
    repeatPenalty: repetition.penalty,
    repeatPenaltyMaxTokens: repetition.window,
    repeatPenaltyTokens: Uint32Array.from(repetition.recent()),
  }
}

const biasOf = (biases: ReadonlyMap<Token, number>): Partial<SamplerConfig> => ({
  tokenBiasKeys: Uint32Array.from(biases.keys()),
  tokenBiasValues: Float32Array.from(biases.values()),
})

const liftOf = (
  among: readonly Token[],
  biases: ReadonlyMap<Token, number>,
): Partial<SamplerConfig> => ({
  tokenBiasKeys: Uint32Array.from(among),
  tokenBiasValues:
    biases.size === 0
      ? new Float32Array(among.length).fill(lift)
      : Float32Array.from(among, (token) => lift + (biases.get(token) ?? 0)),
})

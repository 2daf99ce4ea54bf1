/** Chooses the tokens of one answer with the native context. */

import { type ChosenToken, GrammarDeadEnd, type Token, type TokenChoice } from '../runtime.ts'
import type { GrammarAnswer } from './grammar-filter.ts'
import type { NativeContext, NativeSampler, SamplerConfig } from './native-context.ts'
import { TokenScorer } from './token-scorer.ts'

/** A bias that ranks tokens above all others, regardless of their logits. */
const liftBias = 200
/**
 * How many choices from the groups that a grammar allows are tried before all tokens are checked.
 */
const maxTries = 2
/** More candidates indicate free text, where the grammar allows almost every token. */
const maxLifted = 1000

export class ChoiceSampler {
  readonly #context: NativeContext
  readonly #choice: TokenChoice
  readonly #sampler: NativeSampler
  readonly #scorer: TokenScorer | null
  readonly #answer: GrammarAnswer | null
  #isConfigured = false

  /** `answer` is `null` without a grammar. */
  constructor(context: NativeContext, choice: TokenChoice, answer: GrammarAnswer | null) {
    this.#context = context
    this.#choice = choice
    this.#answer = answer
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
    const answer = this.#answer
    if (answer === null) return this.#chooseAny(index)
    const groups = answer.groups.candidates(answer)
    const count = groups?.reduce((sum, group) => sum + group.length, 0) ?? Infinity
    const token =
      groups === null || count > maxLifted
        ? await this.#chooseText(index, answer)
        : await this.#chooseAmong(index, groups.flat(), answer)
    return token ?? this.#chooseByGrammar(index, answer)
  }

  #chooseAny(index: number): Promise<Token> {
    this.#configure()
    return this.#context.choose(index, this.#sampler)
  }

  /**
   * Chooses from all tokens, because most are allowed in free text. If the choice is refused, bans
   * it and chooses again. Returns `null` if the second choice is also refused.
   */
  async #chooseText(index: number, answer: GrammarAnswer): Promise<Token | null> {
    const token = await this.#chooseAny(index)
    if (answer.accept(token)) return token
    this.#apply(this.#toConfig([], [token]))
    const other = await this.#context.choose(index, this.#sampler)
    return answer.accept(other) ? other : null
  }

  /**
   * Chooses from tokens whose first character is allowed. `null` if the grammar refuses the
   * choices.
   */
  async #chooseAmong(
    index: number,
    tokens: readonly Token[],
    answer: GrammarAnswer,
  ): Promise<Token | null> {
    let candidates = tokens
    for (let tries = 0; tries < maxTries && candidates.length > 0; tries++) {
      this.#apply(this.#toConfig(candidates))
      const token = await this.#context.choose(index, this.#sampler)
      if (answer.accept(token)) return token
      candidates = candidates.filter((one) => one !== token)
    }
    return null
  }

  /**
   * Chooses from exactly the tokens that the grammar allows, which requires checking all tokens.
   */
  async #chooseByGrammar(index: number, answer: GrammarAnswer): Promise<Token> {
    const { tokens, banned } = answer.groups.allowed(answer)
    if (tokens.length === 0) throw new GrammarDeadEnd()
    const isFew = tokens.length <= maxLifted
    this.#apply(isFew ? this.#toConfig(tokens) : this.#toConfig([], banned))
    const token = await this.#context.choose(index, this.#sampler)
    // The client's bias may ban all tokens that the grammar allows.
    if (!answer.accept(token)) throw new GrammarDeadEnd()
    return token
  }

  /** Configures the sampler for one choice only. */
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
   * If `among` is given, only its tokens can be chosen. There is then no repetition penalty: tokens
   * that a grammar requires may be repeated, and the penalty would also divide the lifting bias.
   */
  #toConfig(among: Tokens = [], banned: Tokens = []): SamplerConfig {
    const { temperature, topP, topK, minP, seed, repetition, bias } = this.#choice
    return {
      temperature,
      seed,
      topP,
      minP,
      ...(topK === 0 ? {} : { topK }),
      ...(repetition === null || among.length > 0 ? {} : repetitionOf(repetition)),
      ...biasOf(bias?.biases ?? none, among, banned),
    }
  }
}

type Tokens = readonly Token[] | Uint32Array
type Biases = ReadonlyMap<Token, number>

const none: Biases = new Map()

function repetitionOf(repetition: NonNullable<TokenChoice['repetition']>): Partial<SamplerConfig> {
  return {
    repeatPenalty: repetition.penalty,
    repeatPenaltyMaxTokens: repetition.window,
    repeatPenaltyTokens: Uint32Array.from(repetition.recent()),
  }
}

function biasOf(biases: Biases, among: Tokens, banned: Tokens): Partial<SamplerConfig> {
  if (among.length > 0) return liftOf(Uint32Array.from(among), biases)
  const count = biases.size + banned.length
  if (count === 0) return {}
  const [keys, values] = [new Uint32Array(count), new Float32Array(count).fill(-Infinity)]
  keys.set([...biases.keys()])
  values.set([...biases.values()])
  // The ban replaces the client's bias for the same token.
  keys.set(banned, biases.size)
  return { tokenBiasKeys: keys, tokenBiasValues: values }
}

const liftOf = (among: Uint32Array, biases: Biases): Partial<SamplerConfig> => ({
  tokenBiasKeys: among,
  tokenBiasValues:
    biases.size === 0
      ? new Float32Array(among.length).fill(liftBias)
      : Float32Array.from(among, (token) => liftBias + (biases.get(token) ?? 0)),
})

/** Chooses the tokens of one answer with the native context. */

import { type ChosenToken, GrammarDeadEndError, type Token, type TokenChoice } from '../runtime.ts'
import type { GrammarState } from './grammar-filter.ts'
import type { NativeContext, NativeSampler, SamplerConfig } from './native-context.ts'
import { TokenScorer } from './token-scorer.ts'

/** A bias that ranks tokens above all others, regardless of their logits. */
const boostBias = 200
const maxTries = 2
/** More candidates indicate free text, in which a grammar allows almost every token. */
const maxBoosted = 1000

export class ChoiceSampler {
  readonly #context: NativeContext
  readonly #choice: TokenChoice
  readonly #sampler: NativeSampler
  readonly #scorer: TokenScorer | null
  readonly #grammarState: GrammarState | null
  #isConfigured = false

  constructor(context: NativeContext, choice: TokenChoice, state: GrammarState | null) {
    this.#context = context
    this.#choice = choice
    this.#grammarState = state
    this.#sampler = context.samplers.acquire()
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
    this.#context.samplers.release(this.#sampler)
    this.#scorer?.dispose()
  }

  async #chooseAllowed(index: number): Promise<Token> {
    const state = this.#grammarState
    if (state === null) return this.#chooseAny(index)
    const groups = state.groups.findCandidates(state)
    const count = groups?.reduce((sum, group) => sum + group.length, 0) ?? Infinity
    const token =
      groups === null || count > maxBoosted
        ? await this.#chooseFreeText(index, state)
        : await this.#chooseCandidate(index, groups.flat(), state)
    return token ?? this.#chooseByGrammar(index, state)
  }

  #chooseAny(index: number): Promise<Token> {
    this.#configure()
    return this.#context.choose(index, this.#sampler)
  }

  /** In free text, a grammar allows most tokens. Returns `null` if it refuses two choices. */
  async #chooseFreeText(index: number, state: GrammarState): Promise<Token | null> {
    const token = await this.#chooseAny(index)
    if (state.accept(token)) return token
    this.#applyOnce(this.#toConfig([], [token]))
    const other = await this.#context.choose(index, this.#sampler)
    return state.accept(other) ? other : null
  }

  async #chooseCandidate(
    index: number,
    tokens: readonly Token[],
    state: GrammarState,
  ): Promise<Token | null> {
    let candidates = tokens
    for (let tries = 0; tries < maxTries && candidates.length > 0; tries++) {
      this.#applyOnce(this.#toConfig(candidates))
      const token = await this.#context.choose(index, this.#sampler)
      if (state.accept(token)) return token
      candidates = candidates.filter((one) => one !== token)
    }
    return null
  }

  async #chooseByGrammar(index: number, state: GrammarState): Promise<Token> {
    const { tokens, banned } = state.groups.findAllowed(state)
    if (tokens.length === 0) throw new GrammarDeadEndError()
    const isFew = tokens.length <= maxBoosted
    this.#applyOnce(isFew ? this.#toConfig(tokens) : this.#toConfig([], banned))
    const token = await this.#context.choose(index, this.#sampler)
    // The client's bias may have banned all tokens that the grammar allows.
    if (!state.accept(token)) throw new GrammarDeadEndError()
    return token
  }

  #applyOnce(config: SamplerConfig): void {
    this.#isConfigured = false
    this.#sampler.applyConfig(config)
  }

  #configure(): void {
    const { repetition, bias } = this.#choice
    if (this.#isConfigured && repetition === null && bias?.isChanging !== true) return
    this.#isConfigured = true
    this.#sampler.applyConfig(this.#toConfig())
  }

  /** `among` limits the choice. Its tokens get no penalty: a grammar may require repetition. */
  #toConfig(among: TokenList = [], banned: TokenList = []): SamplerConfig {
    const { temperature, topP, topK, minP, seed, repetition, bias } = this.#choice
    return {
      temperature,
      seed,
      topP,
      minP,
      ...(topK === 0 ? {} : { topK }),
      ...(repetition === null || among.length > 0 ? {} : toRepetitionConfig(repetition)),
      ...toBiasConfig(bias?.biases ?? noBiases, among, banned),
    }
  }
}

type TokenList = readonly Token[] | Uint32Array
type Biases = ReadonlyMap<Token, number>

const noBiases: Biases = new Map()

function toRepetitionConfig(
  repetition: NonNullable<TokenChoice['repetition']>,
): Partial<SamplerConfig> {
  return {
    repeatPenalty: repetition.penalty,
    repeatPenaltyMaxTokens: repetition.window,
    repeatPenaltyTokens: Uint32Array.from(repetition.recent()),
  }
}

function toBiasConfig(biases: Biases, among: TokenList, banned: TokenList): Partial<SamplerConfig> {
  if (among.length > 0) return toBoostConfig(Uint32Array.from(among), biases)
  const count = biases.size + banned.length
  if (count === 0) return {}
  const [keys, values] = [new Uint32Array(count), new Float32Array(count).fill(-Infinity)]
  keys.set([...biases.keys()])
  values.set([...biases.values()])
  // The ban replaces the client's bias for the same token.
  keys.set(banned, biases.size)
  return { tokenBiasKeys: keys, tokenBiasValues: values }
}

const toBoostConfig = (among: Uint32Array, biases: Biases): Partial<SamplerConfig> => ({
  tokenBiasKeys: among,
  tokenBiasValues:
    biases.size === 0
      ? new Float32Array(among.length).fill(boostBias)
      : Float32Array.from(among, (token) => boostBias + (biases.get(token) ?? 0)),
})

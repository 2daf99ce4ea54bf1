/** Chooses the settings of a context on a CPU from measured times. Measures nothing itself. */

import { maxSecondCacheBytes } from '../../../models/gguf-file.ts'

/** Times in milliseconds per token. `null` if there was no time to measure. */
export interface ThreadTimes {
  readonly threads: number
  /** While one answer is generated. */
  readonly one: number
  /** While `manyAnswers` answers are generated. */
  readonly many: number | null
}

export interface AttentionTimes {
  /** Per token of `manyAnswers` short answers. */
  readonly many: number
  /** Per token of a message that continues a chat. */
  readonly chat: number
}

export interface Measurements {
  readonly threads: readonly ThreadTimes[]
  readonly attention: { readonly plain: AttentionTimes; readonly flash: AttentionTimes } | null
  /** Times by the number of prompt tokens in a pass. */
  readonly prompts: readonly { readonly tokens: number; readonly ms: number }[]
}

export const nothingMeasured: Measurements = { threads: [], attention: null, prompts: [] }

/** The minimum number of tokens of a long prompt: half of the tokens that a plain pass computes. */
export const longText = 128

/** What the user has fixed; the rest is chosen. */
export interface FixedSettings {
  readonly threads: number | null
  readonly flashAttention: 'auto' | boolean
  readonly batchSize: number | null
}

export interface Tuning {
  /** The number of threads in passes with few and with many tokens. */
  readonly threads: { readonly few: number; readonly many: number }
  readonly attention: Attention
  readonly batchSize: number
}

/** `both` means a context with flash attention for short texts, and one without for long texts. */
export type Attention = 'flash' | 'plain' | 'both'

/** What explains a choice besides the measurements. */
export interface TuningFacts {
  readonly cacheBytes: number | null
  /** How many cores get no thread because other programs use them. */
  readonly busyCores: number
}

export interface TuningLimits {
  readonly maxThreads: number
  /** The size of the keys and values of a context; `null` if it is unknown. */
  readonly cacheBytes: number | null
}

export const manyAnswers = 8
/** From this number of tokens on, a pass uses the threads for many tokens. */
export const manyTokens = 4
const defaultBatchSize = 512
/**
 * A larger or less common setting must be faster by this factor. More threads, for example, take
 * cores from other programs.
 */
const minGain = 1.05
/** A second context must make its own kind of work faster by this factor. */
const minGainOfSecond = 1.4

export const candidateThreads = (max: number): number[] =>
  [...new Set([max, max - 1, Math.ceil(max / 2), 1])].filter((threads) => threads > 0)

/** Without measurements, chooses the settings that suit most models. */
export function chooseTuning(
  measured: Measurements,
  fixed: FixedSettings,
  { maxThreads, cacheBytes }: TuningLimits,
): Tuning {
  const { flashAttention } = fixed
  return {
    threads:
      fixed.threads === null ? chooseThreads(measured.threads, maxThreads) : both(fixed.threads),
    attention:
      flashAttention === 'auto'
        ? chooseAttention(measured.attention, cacheBytes)
        : nameAttention(flashAttention),
    batchSize: fixed.batchSize ?? chooseBatchSize(measured.prompts),
  }
}

const both = (threads: number): Tuning['threads'] => ({ few: threads, many: threads })

/** Without measurements, chooses as many threads as possible. */
export function chooseThreads(times: readonly ThreadTimes[], max: number): Tuning['threads'] {
  const few = smallestFast(times.map(({ threads, one }) => [threads, one])) ?? max
  const many = smallestFast(
    times.flatMap(({ threads, many: ms }) => (ms === null ? [] : [[threads, ms]])),
  )
  return { few, many: many ?? few }
}

/** Returns the smallest number whose time is nearly the shortest. */
function smallestFast(times: readonly (readonly number[])[]): number | null {
  if (times.length === 0) return null
  const best = Math.min(...times.map(([, ms = Infinity]) => ms))
  const fast = times.filter(([, ms = Infinity]) => ms <= best * minGain)
  return Math.min(...fast.map(([number = Infinity]) => number))
}

const nameAttention = (usesFlash: boolean): Attention => (usesFlash ? 'flash' : 'plain')

/** With one context, compares the product of both gains, so that no work becomes much slower. */
function chooseAttention(
  times: Measurements['attention'],
  cacheBytes: TuningLimits['cacheBytes'],
): Attention {
  if (times === null) return 'plain'
  const { plain, flash } = times
  const isSmall = cacheBytes !== null && cacheBytes <= maxSecondCacheBytes
  if (isSmall && gainsByBoth(times)) return 'both'
  return nameAttention((plain.many / flash.many) * (plain.chat / flash.chat) > minGain)
}

const gainsByBoth = ({ plain, flash }: NonNullable<Measurements['attention']>): boolean =>
  Math.min(plain.many / flash.many, flash.chat / plain.chat) >= minGainOfSecond

const chooseBatchSize = (times: Measurements['prompts']): number =>
  smallestFast(times.map(({ tokens, ms }) => [tokens, ms])) ?? defaultBatchSize

export function excessWarning(chosen: number, cores: number): string | null {
  if (chosen <= cores) return null
  const max = `${cores} core${cores === 1 ? '' : 's'}`
  return (
    `engine.threads is ${chosen}, but this process may use ${max}: ` +
    'with more threads than cores the model is very slow; ' +
    `set engine.threads to ${cores} at most, or leave it out`
  )
}

const rate = (ms: number): string => `${Math.round(1000 / Math.max(ms, 0.001))}`

/** One line with the settings and with the tokens per second that led to them. */
export function describeTuning(
  tuning: Tuning,
  measured: Measurements,
  { cacheBytes, busyCores }: TuningFacts,
): string {
  const { few, many } = tuning.threads
  const threads =
    few === many ? plural(few, 'thread') : `${plural(few, 'thread')}, ${many} for many answers`
  const rates = measured.threads.map(({ threads: count, one, many: ms }) =>
    [`${rate(one)} with ${plural(count, 'thread')}`, ms === null ? [] : `${rate(ms)} for many`]
      .flat()
      .join(' and '),
  )
  const busy = busyCores === 0 ? '' : `, because other programs use ${plural(busyCores, 'core')}`
  return (
    `${threads}${busy}${rates.length === 0 ? '' : ` (tokens/s: ${rates.join(', ')})`}; ` +
    `flash attention ${describeAttention(tuning.attention, measured.attention, cacheBytes)}; ` +
    `up to ${tuning.batchSize} prompt tokens per step`
  )
}

function describeAttention(
  chosen: Attention,
  times: Measurements['attention'],
  cacheBytes: TuningLimits['cacheBytes'],
): string {
  const megabytes = cacheBytes === null ? 'unknown memory' : `${Math.ceil(cacheBytes / 2 ** 20)} MB`
  const text =
    chosen === 'both'
      ? `for prompts below ${longText} tokens, in a second context of ${megabytes}`
      : { flash: 'on', plain: 'off' }[chosen]
  if (times === null) return text
  const missing =
    chosen !== 'both' && gainsByBoth(times)
      ? `; a context for each would take ${megabytes} more`
      : ''
  return (
    `${text} (many answers ${rate(times.flash.many)} tokens/s with it, ` +
    `${rate(times.plain.many)} without; messages of a chat ` +
    `${rate(times.flash.chat)} with it, ${rate(times.plain.chat)} without${missing})`
  )
}

const plural = (count: number, noun: string): string => `${count} ${noun}${count === 1 ? '' : 's'}`

/**
 * Measures how fast a model is with different settings, with few tokens and in at most 2 seconds.
 */

import type { Clock } from '../../../../foundation/clock.ts'
import type { PassPart } from '../evaluation/native-context.ts'
import {
  type AttentionTimes,
  candidateThreads,
  chooseThreads,
  type FixedSettings,
  manyAnswers,
  type Measurements,
  type ThreadTimes,
} from './tuning.ts'

/** The part of a context that is needed for measurements. */
export interface Probe {
  setThreads(threads: number): void
  evaluate(parts: readonly PassPart[]): Promise<unknown>
  truncate(sequence: number, count: number, length: number): boolean
}

export interface MeasurementOptions {
  readonly clock: Clock
  /** The CPU time of this process, which other programs change less than the clock's time. */
  readonly cpuMs: () => number
  readonly fixed: FixedSettings
  readonly maxThreads: number
  readonly vocabularySize: number
  /** Runs `use` with a new context of `probeSize`. */
  withProbe(usesFlash: boolean, use: (probe: Probe) => Promise<void>): Promise<void>
}

/**
 * The size of a probe's context. llama.cpp computes at least 256 positions for each token, and the
 * measured texts fit into these.
 */
export const probeSize = { sequences: manyAnswers, contextLength: 256, batchSize: 512 } as const

const maxMs = 2000
/** How much longer than expected a pass may take, because other programs use the cores too. */
const maxDelay = 1.5
/** After this time, a measurement is not repeated. */
const maxRepeatMs = 100
/** The positions at which the tokens of short answers and a message of a chat are measured. */
const answerStart = 48
const chatStart = 192
const messageTokens = 24
/** The lengths of prompts that `manyAnswers` sequences evaluate in one pass. */
const promptLengths = [16, 32, 64]

/** Omits measurements that there is no time for: little or nothing of a large model is measured. */
export async function measure(options: MeasurementOptions): Promise<Measurements> {
  const { fixed, maxThreads } = options
  const passes = new TimedPasses(options)
  const { flashAttention } = fixed
  const isAuto = flashAttention === 'auto'
  const kinds = isAuto ? [false, true] : [flashAttention]
  let threads: readonly ThreadTimes[] = []
  let prompts: Measurements['prompts'] = []
  const attention: AttentionTimes[] = []
  for (const [at, usesFlash] of kinds.entries()) {
    if (attention.length < at) break
    await options.withProbe(usesFlash, async (probe) => {
      await passes.begin(probe, fixed.threads ?? maxThreads)
      if (at === 0 && fixed.threads === null) threads = await measureThreads(passes, maxThreads)
      passes.setThreads(fixed.threads ?? chooseThreads(threads, maxThreads).many)
      if (isAuto) attention.push(...(await measureAttention(passes)))
      if (at === kinds.length - 1 && fixed.batchSize === null) {
        prompts = await measurePrompts(passes)
      }
    })
  }
  const [plain, flash] = attention
  const isCompared = plain !== undefined && flash !== undefined
  return { threads, attention: isCompared ? { plain, flash } : null, prompts }
}

async function measureThreads(passes: TimedPasses, max: number): Promise<ThreadTimes[]> {
  const times: ThreadTimes[] = []
  for (const threads of candidateThreads(max)) {
    passes.setThreads(threads)
    const one = await passes.time({ sequences: 1, first: 0, length: 1 }, 5)
    if (one === null) break
    times.push({ threads, one, many: await passes.time(tokenOfEach(0), 3) })
  }
  return times
}

/** Returns an empty list if there is no time for all measurements. */
async function measureAttention(passes: TimedPasses): Promise<AttentionTimes[]> {
  // The first pass only shows how long the second will take.
  await passes.extend({ sequences: manyAnswers, first: 0, length: answerStart / 6 })
  await passes.extend({
    sequences: manyAnswers,
    first: answerStart / 6,
    length: (5 * answerStart) / 6,
  })
  const many = await passes.time(tokenOfEach(answerStart), 3, 'cpu')
  await passes.extend({ sequences: 1, first: answerStart, length: chatStart - answerStart })
  const chat = await passes.time(
    { sequences: 1, first: chatStart, length: messageTokens },
    2,
    'cpu',
  )
  passes.clear()
  return many === null || chat === null ? [] : [{ many, chat }]
}

async function measurePrompts(passes: TimedPasses): Promise<Measurements['prompts']> {
  const prompts: { tokens: number; ms: number }[] = []
  for (const length of promptLengths) {
    const ms = await passes.time({ sequences: manyAnswers, first: 0, length }, 1, 'cpu')
    if (ms !== null) prompts.push({ tokens: length * manyAnswers, ms })
  }
  return prompts
}

/**
 * Evaluates `length` new tokens in each of `sequences` sequences, which already have `first`
 * tokens.
 */
interface Pass {
  readonly sequences: number
  readonly first: number
  readonly length: number
}

/** Milliseconds per token. */
interface PassTime {
  readonly clock: number
  readonly cpu: number
}

const tokenOfEach = (first: number): Pass => ({ sequences: manyAnswers, first, length: 1 })

/** Runs only passes that will probably end before the deadline. */
class TimedPasses {
  readonly #options: MeasurementOptions
  readonly #deadlineMs: number
  /** The milliseconds per token of the last pass or repeated pass, by the number of threads. */
  readonly #costs = new Map<number, number>()
  #probe: Probe | null = null
  #threads = 1
  /** Whether the sequences lack tokens that the next passes need. */
  #isBehind = false

  constructor(options: MeasurementOptions) {
    this.#options = options
    this.#deadlineMs = options.clock.monotonicMs() + maxMs
  }

  /**
   * Runs passes and discards their times, because the first passes of a context take longer.
   */
  async begin(probe: Probe, threads: number): Promise<void> {
    this.#probe = probe
    this.#isBehind = false
    this.setThreads(threads)
    await this.time({ sequences: 1, first: 0, length: 1 }, 1)
    await this.time(tokenOfEach(0), 2)
  }

  setThreads(threads: number): void {
    this.#threads = threads
    this.#probe?.setThreads(threads)
  }

  /** The milliseconds per token of the fastest repetition; `null` if there is no time. */
  async time(
    pass: Pass,
    repetitions: number,
    by: keyof PassTime = 'clock',
  ): Promise<number | null> {
    const { clock } = this.#options
    const endMs = clock.monotonicMs() + maxRepeatMs
    let best: number | null = null
    let fastest = Infinity
    for (let repetition = 0; repetition < repetitions; repetition++) {
      if (best !== null && clock.monotonicMs() >= endMs) break
      const ms = await this.#run(pass)
      if (ms === null) break
      best = Math.min(best ?? ms[by], ms[by])
      fastest = Math.min(fastest, ms.clock)
      // Other programs may have delayed one of the repetitions.
      this.#costs.set(this.#threads, fastest)
      this.#truncate(pass.sequences, pass.first, pass.first + pass.length)
    }
    return best
  }

  /** Evaluates tokens that the next passes need. */
  async extend(pass: Pass): Promise<void> {
    this.#isBehind = (await this.#run(pass)) === null
  }

  async #run({ sequences, first, length }: Pass): Promise<PassTime | null> {
    const { clock, cpuMs, vocabularySize } = this.#options
    const tokens = sequences * length
    const beganMs = clock.monotonicMs()
    const isLate = beganMs + tokens * this.#expectedCost() * maxDelay > this.#deadlineMs
    if (isLate || this.#isBehind) return null
    const parts = Array.from({ length: sequences }, (_, sequence) => ({
      sequence,
      first,
      tokens: Array.from({ length }, (_item, at) => (first + at + sequence) % vocabularySize),
      sampled: [length - 1],
    }))
    const usedMs = cpuMs()
    await this.#probe?.evaluate(parts)
    const time = {
      clock: (clock.monotonicMs() - beganMs) / tokens,
      cpu: (cpuMs() - usedMs) / tokens,
    }
    this.#costs.set(this.#threads, time.clock)
    return time
  }

  clear(): void {
    this.#truncate(manyAnswers, 0, chatStart)
    this.#isBehind = false
  }

  /**
   * Returns the expected milliseconds per token. If the number of threads was not measured yet,
   * assumes that fewer threads are slower in proportion.
   */
  #expectedCost(): number {
    const known = this.#costs.get(this.#threads)
    if (known !== undefined) return known
    const costs = [...this.#costs].map(([threads, ms]) => ms * Math.max(1, threads / this.#threads))
    return Math.max(0, ...costs)
  }

  /** Some models cannot remove the last tokens, so nothing more is measured with them. */
  #truncate(sequences: number, count: number, length: number): void {
    for (let sequence = 0; sequence < sequences; sequence++) {
      const isKept = this.#probe?.truncate(sequence, count, length) === true
      this.#isBehind ||= count > 0 && !isKept
    }
  }
}

/** An API key of a server: its name, its limits, and what was used with it. */

import type { Clock } from '../../../foundation/clock.ts'
import { Fifo } from '../../../runtime/fifo.ts'
import { HttpError } from '../../../runtime/http/http-error.ts'
import type { AcceptedKey, Admission } from '../../../runtime/http/request-guard.ts'

/** The maximum numbers of requests and tokens in any 60 seconds; `null` for no limit. */
export interface KeyLimits {
  readonly requests: number | null
  readonly tokens: number | null
}

export const unlimited: KeyLimits = { requests: null, tokens: null }

export class ClientKey implements AcceptedKey {
  readonly name: string | null
  readonly #clock: Clock
  readonly #used = { requests: new MinuteSum(), tokens: new MinuteSum() }
  limits: KeyLimits
  /** The number of responses by their status. */
  readonly responses = new Map<number, number>()
  promptTokens = 0
  completionTokens = 0

  constructor(name: string | null, limits: KeyLimits, clock: Clock) {
    this.name = name
    this.limits = limits
    this.#clock = clock
  }

  /**
   * Counts a request against the limit. Throws `HttpError` if a limit is used up. The tokens of a
   * request are known only at its end, so a request is admitted while fewer tokens than the limit
   * were used.
   */
  admit(): Admission {
    const nowMs = this.#clock.monotonicMs()
    const states = this.#states(nowMs)
    const exhausted = states.filter(({ remaining }) => remaining <= 0)
    if (exhausted.length > 0) {
      const waits = exhausted.map(({ unit, limit }) => this.#used[unit].msUntil(limit - 1, nowMs))
      throw limitError(exhausted, states, Math.max(...waits))
    }
    const entry = this.#used.requests.add(nowMs, this.limits.requests === null ? 0 : 1)
    return {
      headers: this.#states(nowMs).flatMap(toHeaders),
      giveBack: () => this.#used.requests.takeBack(entry),
    }
  }

  addTokens(promptTokens: number, completionTokens: number): void {
    this.promptTokens += promptTokens
    this.completionTokens += completionTokens
    if (this.limits.tokens === null) return
    this.#used.tokens.add(this.#clock.monotonicMs(), promptTokens + completionTokens)
  }

  ended(status: number): void {
    this.responses.set(status, (this.responses.get(status) ?? 0) + 1)
  }

  /** The limits that this key has, and what is left of them. */
  states(): readonly LimitState[] {
    return this.#states(this.#clock.monotonicMs())
  }

  #states(nowMs: number): readonly LimitState[] {
    return (['requests', 'tokens'] as const).flatMap((unit) => {
      const limit = this.limits[unit]
      if (limit === null) return []
      const minuteSum = this.#used[unit]
      const remaining = limit - minuteSum.total(nowMs)
      return [{ unit, limit, remaining, resetMs: minuteSum.resetMs(nowMs) }]
    })
  }
}

export interface LimitState {
  readonly unit: keyof KeyLimits
  readonly limit: number
  /** Negative if the last request used more tokens than were left. */
  readonly remaining: number
  /** The time until no part of the limit is used any more. */
  readonly resetMs: number
}

/** The headers have the names and forms of the chat-completions API. */
const toHeaders = ({ unit, limit, remaining, resetMs }: LimitState): readonly string[] => [
  `x-ratelimit-limit-${unit}`,
  String(limit),
  `x-ratelimit-remaining-${unit}`,
  String(Math.max(0, remaining)),
  `x-ratelimit-reset-${unit}`,
  `${Math.ceil(resetMs) / 1000}s`,
]

function limitError(
  exhausted: readonly LimitState[],
  states: readonly LimitState[],
  waitMs: number,
): HttpError {
  const seconds = Math.max(1, Math.ceil(waitMs / 1000))
  const texts = exhausted.map(({ unit, limit }) => {
    return `${limit} ${limit === 1 ? unit.slice(0, -1) : unit}`
  })
  const message = `The limit of this API key is used up: ${texts.join(' and ')} per minute.`
  return new HttpError(429, `${message} Try again in ${seconds} s.`, {
    code: 'rate_limit_exceeded',
    headers: ['retry-after', String(seconds), ...states.flatMap(toHeaders)],
  })
}

const minuteMs = 60_000

interface Entry {
  readonly atMs: number
  amount: number
}

/** The sum of the amounts that were added in the last 60 seconds. */
class MinuteSum {
  readonly #entries = new Fifo<Entry>()
  #total = 0
  #lastAddedMs = 0

  total(nowMs: number): number {
    for (;;) {
      const first = this.#entries.peek()
      const isCounted = first !== undefined && first.amount > 0 && first.atMs + minuteMs > nowMs
      if (first === undefined || isCounted) return this.#total
      this.#entries.shift()
      this.takeBack(first)
    }
  }

  add(nowMs: number, amount: number): Entry {
    const entry = { atMs: nowMs, amount }
    if (amount === 0) return entry
    this.#total += amount
    this.#lastAddedMs = nowMs
    this.#entries.push(entry)
    return entry
  }

  takeBack(entry: Entry): void {
    this.#total -= entry.amount
    entry.amount = 0
  }

  /** The time until the sum is 0, or longer if the last amount was taken back. */
  resetMs(nowMs: number): number {
    return this.total(nowMs) === 0 ? 0 : this.#lastAddedMs + minuteMs - nowMs
  }

  /** The time until the sum is at most `max`, if nothing is added. */
  msUntil(max: number, nowMs: number): number {
    let sum = this.total(nowMs)
    for (const { atMs, amount } of this.#entries) {
      if (sum <= max) break
      sum -= amount
      if (sum <= max) return atMs + minuteMs - nowMs
    }
    return 0
  }
}

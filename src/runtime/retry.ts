/** Repeats failed operations: retries with pauses, and restarts with growing delays. */

import { type Clock, sleep } from '../foundation/clock.ts'
import { isThenable } from '../foundation/promises.ts'

export interface RetryPolicy {
  /** The pause after the first attempt. */
  readonly delayMs: number
  /** Each pause is twice as long as the last, up to this maximum. Default: all pauses are equal. */
  readonly maxDelayMs?: number
  /** Default: no limit. */
  readonly maxAttempts?: number
  /** No further attempt is made after this time. Default: no limit. */
  readonly timeoutMs?: number
}

export interface RetryOptions {
  readonly clock: Clock
  readonly signal?: AbortSignal | undefined
}

/**
 * Calls `look` until it returns something other than `undefined` or `false`. Resolves with
 * `undefined` when the limits of the policy are reached or the signal is aborted.
 */
export async function poll<T>(
  policy: RetryPolicy,
  look: (attempt: number) => T | false | undefined | Promise<T | false | undefined>,
  { clock, signal }: RetryOptions,
): Promise<T | undefined> {
  const { maxAttempts = Infinity } = policy
  const untilMs = clock.monotonicMs() + (policy.timeoutMs ?? Infinity)
  for (let attempt = 1; ; attempt++) {
    if (signal?.aborted === true) return undefined
    // Awaits only promises, so that a synchronous `look` and the start of its pause are one step.
    const looked = look(attempt)
    const found = isThenable(looked) ? await looked : looked
    if (found !== undefined && found !== false) return found
    if (attempt >= maxAttempts || clock.monotonicMs() >= untilMs) return undefined
    await sleep(clock, pauseAfter(attempt, policy), { signal }).catch(() => {})
  }
}

const pauseAfter = (attempt: number, { delayMs, maxDelayMs = delayMs }: RetryPolicy): number =>
  backOffDelay(attempt, { first: delayMs, max: maxDelayMs })

/**
 * Calls `operation` until it succeeds. Rejects with its last error, or with the signal's reason.
 * `mayRetry` returns whether to try again after an error. Default: always.
 */
export async function retry<T>(
  policy: RetryPolicy,
  operation: (attempt: number) => T | Promise<T>,
  options: RetryOptions & { readonly mayRetry?: (error: unknown) => boolean },
): Promise<T> {
  const { clock, signal, mayRetry = () => true } = options
  const untilMs = clock.monotonicMs() + (policy.timeoutMs ?? Infinity)
  for (let attempt = 1; ; attempt++) {
    try {
      return await operation(attempt)
    } catch (error) {
      const isOver = attempt === policy.maxAttempts || clock.monotonicMs() >= untilMs
      if (!mayRetry(error) || isOver) throw error
    }
    await sleep(clock, pauseAfter(attempt, policy), { signal })
  }
}

export interface RestartPolicy {
  /** The delay after the first failure. It doubles with each further consecutive failure. */
  readonly firstDelayMs: number
  readonly maxDelayMs: number
  /** The number of consecutive failures after which to give up. Default: never. */
  readonly giveUpAfter?: number
}

/**
 * The delay after `failures` consecutive failures: `first`, then `factor` times the previous delay.
 */
export function backOffDelay(
  failures: number,
  { first, max, factor = 2 }: { readonly first: number; readonly max: number; factor?: number },
): number {
  return failures === 0 || first === 0 ? 0 : Math.min(max, first * factor ** (failures - 1))
}

/**
 * Paces repeated starts: immediate while starts succeed, one per delay after a failure. Uses no
 * timer. Times are those of `Clock.monotonicMs()`.
 */
export class Restarts {
  readonly #policy: RestartPolicy
  #failures = 0
  /** Incremented by each failure of a start that was made after the last delay began. */
  #round = 0
  /** The number of delays since the last success. */
  #delays = 0
  #notBeforeMs = -Infinity
  #lastError: unknown

  constructor(policy: RestartPolicy) {
    this.#policy = policy
  }

  /** The number of failures since the last success. */
  get failures(): number {
    return this.#failures
  }

  get lastError(): unknown {
    return this.#lastError
  }

  /** The earliest time of the next start. In the past if a start is allowed now. */
  get notBeforeMs(): number {
    return this.#notBeforeMs
  }

  mayStart(nowMs: () => number): boolean {
    return this.#failures === 0 || nowMs() >= this.#notBeforeMs
  }

  /** Records that a start is made now. Returns its round, for `fail`. */
  begin(nowMs: number): number {
    if (this.#failures > 0) this.#notBeforeMs = nowMs + this.#delayMs
    return this.#round
  }

  /**
   * Records a failed start. Returns the new delay, or 0 if a simultaneous failure already began it.
   */
  fail(nowMs: number, error?: unknown, round = this.#round): number {
    this.#failures++
    this.#lastError = error
    if (round !== this.#round) return 0
    this.#round++
    this.#delays++
    this.#notBeforeMs = nowMs + this.#delayMs
    return this.#delayMs
  }

  /**
   * Records a successful start, which resets the failures. Returns `true` if this ended a delay.
   */
  succeed(): boolean {
    if (this.#failures === 0) return false
    this.#failures = 0
    this.#round++
    this.#delays = 0
    this.#notBeforeMs = -Infinity
    this.#lastError = undefined
    return true
  }

  /** Whether there were too many consecutive failures and the next start is not due yet. */
  hasGivenUp(nowMs: number): boolean {
    return this.#failures >= (this.#policy.giveUpAfter ?? Infinity) && nowMs < this.#notBeforeMs
  }

  get #delayMs(): number {
    const { firstDelayMs: first, maxDelayMs: max } = this.#policy
    return backOffDelay(this.#delays, { first, max })
  }
}

export interface SupervisedRun {
  /** The number of consecutive failures before this run. */
  readonly failures: number
  /** Must be called when the run works. */
  readonly onReady: () => void
}

/**
 * Calls `run` repeatedly. Each run resolves with the reason when what it started has ended. A run
 * that worked for `steadyMs` resets the failures. Resolves with the last reason after too many
 * failures, with `null` after an abort.
 */
export async function supervise(
  policy: RestartPolicy & { readonly steadyMs: number },
  run: (current: SupervisedRun) => Promise<string>,
  options: { readonly clock: Clock; readonly signal: AbortSignal; readonly background?: boolean },
): Promise<string | null> {
  const { clock, signal } = options
  const restarts = new Restarts(policy)
  for (;;) {
    if (signal.aborted) return null
    let readyMs = Infinity
    const onReady = (): void => void (readyMs = clock.monotonicMs())
    const reason = await run({ failures: restarts.failures, onReady })
    if (signal.aborted) return null
    const nowMs = clock.monotonicMs()
    if (nowMs - readyMs >= policy.steadyMs) restarts.succeed()
    const delayMs = restarts.fail(nowMs)
    if (restarts.hasGivenUp(nowMs)) return reason
    await sleep(clock, delayMs, options).catch(() => {})
  }
}

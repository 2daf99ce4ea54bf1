/** Repeats failed operations: retries with pauses, and restarts with growing delays. */

import { type Clock, sleep } from '../foundation/clock.ts'
import { isThenable } from '../foundation/promises.ts'

export interface RepeatPolicy {
  readonly delayMs: number
  /** Pauses double up to this maximum. Default: all pauses are equal. */
  readonly maxDelayMs?: number
  readonly maxAttempts?: number
  /** No attempt is made after this time. Default: no limit. */
  readonly timeoutMs?: number
}

export interface RepeatOptions {
  readonly clock: Clock
  readonly signal?: AbortSignal | undefined
}

/**
 * Calls `check` until it returns a value other than `undefined` and `false`. Resolves with
 * `undefined` at the limits of the policy or when the signal is aborted.
 */
export async function poll<T>(
  policy: RepeatPolicy,
  check: (attempt: number) => T | false | undefined | Promise<T | false | undefined>,
  { clock, signal }: RepeatOptions,
): Promise<T | undefined> {
  const { maxAttempts = Infinity } = policy
  const untilMs = clock.monotonicMs() + (policy.timeoutMs ?? Infinity)
  for (let attempt = 1; ; attempt++) {
    if (signal?.aborted === true) return undefined
    // Awaits only promises, so that the pause after a synchronous `check` begins in the same step.
    const answer = check(attempt)
    const found = isThenable(answer) ? await answer : answer
    if (found !== undefined && found !== false) return found
    if (attempt >= maxAttempts || clock.monotonicMs() >= untilMs) return undefined
    await sleep(clock, pauseAfter(attempt, policy), { signal }).catch(() => {})
  }
}

const pauseAfter = (attempt: number, { delayMs, maxDelayMs = delayMs }: RepeatPolicy): number =>
  backOffDelay(attempt, { first: delayMs, max: maxDelayMs })

/**
 * Calls `operation` until it succeeds. Rejects with its last error or the signal's reason.
 * `mayRetry` decides whether an error is retried. Default: always.
 */
export async function retry<T>(
  policy: RepeatPolicy,
  operation: (attempt: number) => T | Promise<T>,
  options: RepeatOptions & { readonly mayRetry?: (error: unknown) => boolean },
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
  /** The delay after the first failure. It doubles with each consecutive failure. */
  readonly firstDelayMs: number
  readonly maxDelayMs: number
  /** The number of consecutive failures after which to give up. Default: never. */
  readonly giveUpAfter?: number
}

/**
 * Returns the delay after consecutive failures: `first`, then `factor` times the previous delay.
 */
export function backOffDelay(
  failures: number,
  { first, max, factor = 2 }: { readonly first: number; readonly max: number; factor?: number },
): number {
  return failures === 0 || first === 0 ? 0 : Math.min(max, first * factor ** (failures - 1))
}

/**
 * Decides when to start a process again: immediately while starts succeed, and once per delay after
 * a failure. Uses no timer. Times are from `Clock.monotonicMs()`.
 */
export class Restarts {
  readonly #policy: RestartPolicy
  #failures = 0
  /** Numbers the rounds. A round ends with its first failed start or with a success. */
  #round = 0
  #delays = 0
  #nextStartMs = -Infinity
  #lastError: unknown

  constructor(policy: RestartPolicy) {
    this.#policy = policy
  }

  get failures(): number {
    return this.#failures
  }

  get lastError(): unknown {
    return this.#lastError
  }

  get nextStartMs(): number {
    return this.#nextStartMs
  }

  canStart(nowMs: () => number): boolean {
    return this.#failures === 0 || nowMs() >= this.#nextStartMs
  }

  /** Records a start. Returns its round, for `fail`. */
  begin(nowMs: number): number {
    if (this.#failures > 0) this.#nextStartMs = nowMs + this.#delayMs
    return this.#round
  }

  /** Records a failure. Returns the new delay; 0 for a further failure of the same round. */
  fail(nowMs: number, error?: unknown, round = this.#round): number {
    this.#failures++
    this.#lastError = error
    if (round !== this.#round) return 0
    this.#round++
    this.#delays++
    this.#nextStartMs = nowMs + this.#delayMs
    return this.#delayMs
  }

  /** Records a successful start, which resets the failures. Returns whether this ended a delay. */
  succeed(): boolean {
    if (this.#failures === 0) return false
    this.#failures = 0
    this.#round++
    this.#delays = 0
    this.#nextStartMs = -Infinity
    this.#lastError = undefined
    return true
  }

  hasGivenUp(nowMs: number): boolean {
    return this.#failures >= (this.#policy.giveUpAfter ?? Infinity) && nowMs < this.#nextStartMs
  }

  get #delayMs(): number {
    const { firstDelayMs: first, maxDelayMs: max } = this.#policy
    return backOffDelay(this.#delays, { first, max })
  }
}

export interface SupervisedRun {
  readonly failures: number
  /** Must be called when the run is ready. */
  readonly onReady: () => void
}

/**
 * Calls `run` repeatedly. A run resolves with the reason why it ended. A run that was ready for
 * `steadyMs` resets the failures. Resolves with the last reason after too many failures, and with
 * `null` after an abort.
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

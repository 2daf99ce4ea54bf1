/** How often and when a failed task is retried, and the validation of these options. */

import { ValueError } from '../foundation/errors.ts'
import {
  expectFunction,
  expectInteger,
  expectKnownKeys,
  expectNumber,
  expectObject,
  expectReadable,
} from '../foundation/options.ts'

/** How many times, when, and after which errors a failed attempt is retried. */
export interface RetryOptions {
  /** The maximum number of retries. */
  readonly times: number
  /** Seconds before the first retry. Default 0. */
  readonly delaySeconds?: number
  /** The ratio of each delay to the previous one. Default 2. */
  readonly factor?: number
  /** The maximum delay in seconds. Default 60. */
  readonly maxDelaySeconds?: number
  /** The maximum random change of each delay, as a fraction from 0 to 1. Default 0. */
  readonly jitter?: number
  /** Whether to retry after this error, which is the thrown value. Default: always. */
  readonly if?: (error: unknown) => boolean
}

/** Retry options with their defaults. */
export interface RetryPolicy {
  readonly times: number
  readonly delaySeconds: number
  readonly factor: number
  readonly maxDelaySeconds: number
  readonly jitter: number
  /** `null` to retry after every error. */
  readonly if: ((error: unknown) => boolean) | null
}

const defaults = { delaySeconds: 0, factor: 2, maxDelaySeconds: 60, jitter: 0 }
const maxDelay = 2 ** 31
const known = ['times', ...Object.keys(defaults), 'if']

/** Policies that consist only of a number are shared, because a program may hold many tasks. */
const maxShared = 64
const shared = Array.from({ length: maxShared }, (_, times) => timesOnly(times))

function timesOnly(times: number): RetryPolicy {
  return Object.freeze({ times, ...defaults, if: null })
}

export function resolveRetries(given: unknown): RetryPolicy {
  if (typeof given !== 'object') {
    const times = expectInteger('retries', given, { min: 0 })
    return shared[times] ?? timesOnly(times)
  }
  const options = expectObject('retries', given)
  return expectReadable('retries', given, () => resolvePolicy(options))
}

function resolvePolicy(options: Readonly<Record<string, unknown>>): RetryPolicy {
  expectKnownKeys('a task', options, known, 'retries.')
  const { times, if: condition, ...delays } = options
  const { delaySeconds, factor, maxDelaySeconds, jitter } = { ...defaults, ...withoutGaps(delays) }
  if (condition !== undefined) expectFunction('retries.if', condition)
  const policy = {
    times: expectInteger('retries.times', times, { min: 0 }),
    delaySeconds: expectSeconds('retries.delaySeconds', delaySeconds),
    factor: expectNumber('retries.factor', factor, { min: 1 }),
    maxDelaySeconds: expectSeconds('retries.maxDelaySeconds', maxDelaySeconds),
    jitter: expectNumber('retries.jitter', jitter, { min: 0, max: 1 }),
    if: (condition ?? null) as RetryPolicy['if'],
  }
  expectReachable(policy)
  return Object.freeze(policy)
}

const expectSeconds = (field: string, value: unknown): number =>
  expectNumber(field, value, { min: 0, max: maxDelay })

const withoutGaps = (given: object): object =>
  Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined))

/** Rejects a delay above `maxDelaySeconds`, which would otherwise be cut silently. */
function expectReachable({ delaySeconds, maxDelaySeconds }: RetryPolicy): void {
  if (delaySeconds <= maxDelaySeconds) return
  const field = 'retries.delaySeconds'
  const text = `\`${field}\` is ${delaySeconds}, but \`maxDelaySeconds\` is ${maxDelaySeconds}`
  const expected = `at most ${maxDelaySeconds}`
  const hint = 'Give a larger `maxDelaySeconds` as well: its default is 60.'
  throw new ValueError(text, { field, expected, got: delaySeconds, hint })
}

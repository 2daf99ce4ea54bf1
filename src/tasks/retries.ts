/** How often and when a failed task is tried again, and the check of what was asked. */

import { ValueError } from '../foundation/errors.ts'
import {
  expectFunction,
  expectInteger,
  expectKnownKeys,
  expectNumber,
  expectObject,
  expectReadable,
} from '../foundation/options.ts'

/** Further attempts after one that failed, and the delays before them. */
export interface RetryOptions {
  /** How many further attempts there are at most. */
  readonly times: number
  /** Seconds before the first of them. Default 0. */
  readonly delaySeconds?: number
  /** Each delay is this many times the one before. Default 2. */
  readonly factor?: number
  /** No delay is longer. Default 60. */
  readonly maxDelaySeconds?: number
  /** Makes each delay longer or shorter by a random part of it, 0 to 1. Default 0. */
  readonly jitter?: number
  /** Whether to try again after this error, as it was thrown. Default: after every error. */
  readonly if?: (error: unknown) => boolean
}

/** Retry options with their defaults. */
export interface RetryPolicy {
  readonly times: number
  readonly delaySeconds: number
  readonly factor: number
  readonly maxDelaySeconds: number
  readonly jitter: number
  /** `null`: after every error. */
  readonly if: ((error: unknown) => boolean) | null
}

const defaults = { delaySeconds: 0, factor: 2, maxDelaySeconds: 60, jitter: 0 }
const longestDelay = 2 ** 31
const known = ['times', ...Object.keys(defaults), 'if']

/** Programs hold a million tasks: policies that are a number alone are shared. */
const mostShared = 64
const shared = Array.from({ length: mostShared }, (_, times) => timesOnly(times))

function timesOnly(times: number): RetryPolicy {
  return Object.freeze({ times, ...defaults, if: null })
}

export function resolveRetries(given: unknown): RetryPolicy {
  if (typeof given !== 'object' || given === null) {
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
  expectNumber(field, value, { min: 0, max: longestDelay })

const withoutGaps = (given: object): object =>
  Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined))

/** A longer delay than the longest would be cut without a word. */
function expectReachable({ delaySeconds, maxDelaySeconds }: RetryPolicy): void {
  if (delaySeconds <= maxDelaySeconds) return
  const field = 'retries.delaySeconds'
  const text = `\`${field}\` is ${delaySeconds}, but \`maxDelaySeconds\` is ${maxDelaySeconds}`
  const expected = `at most ${maxDelaySeconds}`
  const hint = 'Give a larger `maxDelaySeconds` as well: its default is 60.'
  throw new ValueError(text, { field, expected, got: delaySeconds, hint })
}

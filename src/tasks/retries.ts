/** How many times and when a failed task is retried, and the validation of these options. */

import { ValueError } from '../foundation/errors.ts'
import {
  definedFields,
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
  /** Each delay is the previous delay multiplied by this factor. Default 2. */
  readonly factor?: number
  /** The maximum delay in seconds. Default 60. */
  readonly maxDelaySeconds?: number
  /** The maximum random change of each delay, as a fraction from 0 to 1. Default 0. */
  readonly jitter?: number
  /** Decides from the thrown value whether to retry. Default: always retry. */
  readonly if?: (error: unknown) => boolean
}

/** Retry options with defaults filled in. */
export interface RetryPolicy {
  readonly times: number
  readonly delaySeconds: number
  readonly factor: number
  readonly maxDelaySeconds: number
  readonly jitter: number
  /** Decides from the thrown value whether to retry; `null` to retry after every error. */
  readonly if: ((error: unknown) => boolean) | null
}

const defaults = { delaySeconds: 0, factor: 2, maxDelaySeconds: 60, jitter: 0 }
const delayLimitSeconds = 2 ** 31
const optionNames = ['times', ...Object.keys(defaults), 'if']

/**
 * Below this number of retries, tasks without other retry options share their policy, which saves
 * memory in programs with many tasks.
 */
const maxSharedPolicies = 64
const sharedPolicies = Array.from({ length: maxSharedPolicies }, (_, times) => createPolicy(times))

function createPolicy(times: number): RetryPolicy {
  return Object.freeze({ times, ...defaults, if: null })
}

export function resolveRetries(given: unknown): RetryPolicy {
  if (typeof given !== 'object') {
    const times = expectInteger('retries', given, { min: 0 })
    return sharedPolicies[times] ?? createPolicy(times)
  }
  const options = expectObject('retries', given)
  return expectReadable('retries', given, () => resolvePolicy(options))
}

function resolvePolicy(options: Readonly<Record<string, unknown>>): RetryPolicy {
  expectKnownKeys('a task', options, optionNames, 'retries.')
  const { times, if: condition, ...delays } = options
  const { delaySeconds, factor, maxDelaySeconds, jitter } = {
    ...defaults,
    ...definedFields(delays),
  }
  if (condition !== undefined) expectFunction('retries.if', condition)
  const policy = {
    times: expectInteger('retries.times', times, { min: 0 }),
    delaySeconds: expectSeconds('retries.delaySeconds', delaySeconds),
    factor: expectNumber('retries.factor', factor, { min: 1 }),
    maxDelaySeconds: expectSeconds('retries.maxDelaySeconds', maxDelaySeconds),
    jitter: expectNumber('retries.jitter', jitter, { min: 0, max: 1 }),
    if: (condition ?? null) as RetryPolicy['if'],
  }
  expectDelayInRange(policy)
  return Object.freeze(policy)
}

const expectSeconds = (field: string, value: unknown): number =>
  expectNumber(field, value, { min: 0, max: delayLimitSeconds })

/** Rejects a delay above `maxDelaySeconds`, which would otherwise be cut silently. */
function expectDelayInRange({ delaySeconds, maxDelaySeconds }: RetryPolicy): void {
  if (delaySeconds <= maxDelaySeconds) return
  const field = 'retries.delaySeconds'
  const text = `\`${field}\` is ${delaySeconds}, but \`maxDelaySeconds\` is ${maxDelaySeconds}`
  const expected = `at most ${maxDelaySeconds}`
  const hint = 'Give a larger `maxDelaySeconds` as well: its default is 60.'
  throw new ValueError(text, { field, expected, got: delaySeconds, hint })
}

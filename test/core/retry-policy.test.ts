import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { decideRetry, delayAfter } from '../../src/core/retry-policy.ts'
import { resolveRetries, type RetryOptions } from '../../src/tasks/task-fields.ts'
import { assertProperty } from '../property.ts'

const half = (): number => 0.5
const delays = (options: RetryOptions, attempts: number, random = half): number[] =>
  Array.from({ length: attempts }, (_, at) => delayAfter(resolveRetries(options), at + 1, random))

describe('decideRetry', () => {
  it('retries: a number means so many further attempts, without a delay', () => {
    const policy = resolveRetries(2)
    const decide = (attempt: number) => decideRetry(policy, { attempt, error: 1 }, half)
    const again = { kind: 'retry', delaySeconds: 0 }
    expect([1, 2, 3].map(decide)).toEqual([again, again, { kind: 'end' }])
  })

  it('retries: delays grow by the factor up to the longest', () => {
    expect(delays({ times: 9, delaySeconds: 1 }, 8)).toEqual([1, 2, 4, 8, 16, 32, 60, 60])
    const slow = { times: 9, delaySeconds: 3, factor: 1, maxDelaySeconds: 3 }
    expect(delays(slow, 3)).toEqual([3, 3, 3])
    expect(delays({ times: 9, delaySeconds: 1, factor: 10, maxDelaySeconds: 50 }, 3)).toEqual([
      1, 10, 50,
    ])
    expect(delays({ times: 5000, delaySeconds: 1 }, 5000).at(-1)).toBe(60)
  })

  it('retries: jitter moves a delay by at most its fraction, and never beyond the longest', () => {
    const options = { times: 9, delaySeconds: 10, factor: 1, jitter: 0.25 }
    expect(delays(options, 1, () => 0)).toEqual([7.5])
    expect(delays(options, 1, () => 0.5)).toEqual([10])
    assertProperty(
      fc.property(
        fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }),
        fc.double({ min: 0, max: 1, noNaN: true }),
        fc.integer({ min: 1, max: 50 }),
        (random, jitter, attempt) => {
          const policy = resolveRetries({ times: 99, delaySeconds: 1, jitter })
          const plain = delayAfter(resolveRetries({ times: 99, delaySeconds: 1 }), attempt, half)
          const delay = delayAfter(policy, attempt, () => random)
          expect(delay).toBeGreaterThanOrEqual(plain * (1 - jitter) - 1e-9)
          expect(delay).toBeLessThanOrEqual(Math.min(60, plain * (1 + jitter)) + 1e-9)
        },
      ),
    )
  })

  it('retries: `if` gets the original error, and one that fails ends the retries', () => {
    const seen: unknown[] = []
    const policy = (answer: (error: unknown) => unknown) =>
      resolveRetries({ times: 1, if: answer as (error: unknown) => boolean })
    const error = new RangeError('original')
    const decide = (answer: (error: unknown) => unknown) =>
      decideRetry(policy(answer), { attempt: 1, error }, half)
    expect(decide((given) => seen.push(given) > 0)).toMatchObject({ kind: 'retry' })
    expect(seen).toEqual([error])
    expect(decide(() => false)).toEqual({ kind: 'end' })
    const problem = new Error('no answer')
    const failing = decide(() => {
      throw problem
    })
    expect(failing).toEqual({ kind: 'end', problem })
    const later = decide(() => Promise.reject(problem))
    expect(later).toMatchObject({ kind: 'end', problem: { name: 'TypeError' } })
  })
})

describe('the options of retries', () => {
  const wrong: readonly [unknown, string][] = [
    [-1, 'retries'],
    ['3', 'retries'],
    [null, 'retries'],
    [{}, 'retries.times'],
    [{ times: 1.5 }, 'retries.times'],
    [{ times: 1, delaySeconds: -1 }, 'retries.delaySeconds'],
    [{ times: 1, delaySeconds: 61 }, 'retries.delaySeconds'],
    [{ times: 1, factor: 0.5 }, 'retries.factor'],
    [{ times: 1, maxDelaySeconds: Infinity }, 'retries.maxDelaySeconds'],
    [{ times: 1, jitter: 2 }, 'retries.jitter'],
    [{ times: 1, if: true }, 'retries.if'],
    [{ times: 1, delay: 1 }, 'retries.delay'],
  ]
  it.each(wrong)('retries: %j is refused, and %s is named', (given, field) => {
    expect(() => resolveRetries(given)).toThrow(
      expect.objectContaining({ name: 'ValueError', field }) as Error,
    )
  })

  it('retries: a key that was cut short is completed', () => {
    expect(() => resolveRetries({ times: 1, delay: 1 })).toThrow(
      'a task has no `retries.delay`; did you mean "delaySeconds"?',
    )
  })
})

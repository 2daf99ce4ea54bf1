import { describe, expect, it } from 'vitest'
import { memoKey } from '../../src/workflow/memo-key.ts'
import { planFunction, planPrompt } from '../../src/workflow/plan.ts'
import { square } from '../backends/local/fixtures/backend-tasks.ts'

const body = (given: unknown): unknown => given
const plan = planFunction(body, { name: 'f', cache: true })
const keyOf = (...args: unknown[]): string => memoKey(plan, args)

describe('the key of a result', () => {
  it('memo key: equal content gives an equal key in any order of keys', () => {
    const [one, same] = [
      { a: [1, { x: 'y' }], b: 2 },
      { b: 2, a: [1, { x: 'y' }] },
    ]
    expect(keyOf(one)).toBe(keyOf(same))
    expect(keyOf(new Map([['a', 1]]))).toBe(keyOf(new Map([['a', 1]])))
    expect(keyOf(new Uint8Array([1, 2]))).toBe(keyOf(new Uint8Array([1, 2])))
    expect(keyOf(new Date(5))).toBe(keyOf(new Date(5)))
  })

  it('memo key: long lists have a key, what would take forever is refused', () => {
    const long = Array.from({ length: 200_000 }, (_, at) => at)
    expect(keyOf(long)).toBe(keyOf([...long]))
    expect(keyOf(long)).not.toBe(keyOf(long.toReversed()))
    let shared: unknown = 1
    for (let level = 0; level < 40; level++) shared = [shared, shared]
    expect(() => keyOf(shared)).toThrow('one object too many cannot be compared')
  })

  it('memo key: differs for different arguments', () => {
    const different: unknown[][] = [
      [],
      [undefined],
      [null],
      [0],
      [-0],
      [NaN],
      ['0'],
      [0n],
      [false],
      [''],
      [[]],
      [{}],
      ['a', 'b'],
      ['ab', ''],
      [['a', 'b']],
      [['a'], 'b'],
      [{ a: 'b' }],
      [{ a: undefined }],
      [{ 0: 'a' }],
      [['a']],
      [new Map([['a', 'b']])],
      [new Set(['a', 'b'])],
      [new Date(0)],
      [new Uint8Array([1])],
      [new Int8Array([1])],
      [new Uint8Array([1, 0])],
    ]
    const keys = different.map((args) => keyOf(...args))
    expect(new Set(keys).size).toBe(different.length)
  })

  it('memo key: differs for another name, source text and kind of key', () => {
    const others = [
      planFunction(body, { name: 'g', cache: true }),
      planFunction((other: unknown): unknown => [other], { name: 'f', cache: true }),
      planFunction(body, { name: 'f', cache: { key: 'k' } }),
    ]
    const keys = others.map((other) => memoKey(other, [1]))
    expect(new Set([keyOf(1), ...keys]).size).toBe(4)
  })

  it('memo key: cache.key replaces the arguments, not the function or its options', () => {
    const cache = { key: 'k' }
    const ask = (): string => 'x'
    const plans = [
      planFunction((n: number) => n + 1, { cache }),
      planFunction((n: number) => n * 2, { cache }),
      planFunction(square, { cache, name: 'anonymous' }),
      planPrompt(ask, { cache }),
      planPrompt(ask, { cache, model: 'm' }),
      planPrompt(ask, { cache, temperature: 1 }),
    ]
    expect(new Set(plans.map((other) => memoKey(other, [1]))).size).toBe(plans.length)
    expect(new Set(plans.map((other) => memoKey(other, [2]))).size).toBe(plans.length)
    const [first = plan] = plans
    expect(memoKey(first, [1])).toBe(memoKey(first, [2]))
  })

  it('memo key: sampling options count; backend, priority and time limit do not', () => {
    const keys = [{}, { temperature: 1 }, { model: 'm' }, { backend: 'b' }, { priority: 1 }].map(
      (options) =>
        memoKey(
          planPrompt(() => 'x', { ...options, cache: true }),
          [],
        ),
    )
    expect(new Set(keys).size).toBe(3)
    expect(new Set([keys[0], keys[3], keys[4]]).size).toBe(1)
  })

  it.each([
    ['a function', [{ deep: [() => 1] }], 'args.0.deep.0'],
    ['a symbol', [Symbol('x')], 'args.0'],
    ['an instance', [1, new URL('http://x.org')], 'args.1'],
  ])('is refused for %s, by its place', (_, args, field) => {
    expect(() => keyOf(...args)).toThrow(expect.objectContaining({ field }))
  })

  it('memo key: cycles and keys that are no strings are refused', () => {
    const cycle: unknown[] = []
    cycle.push(cycle)
    expect(() => keyOf(cycle)).toThrow('cycle')
    const odd = planFunction(body, { cache: { key: () => 1 } })
    expect(() => memoKey(odd, [])).toThrow('no string')
  })
})

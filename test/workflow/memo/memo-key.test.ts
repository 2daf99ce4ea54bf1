import { describe, expect, it } from 'vitest'
import { memoKey } from '../../../src/workflow/memo/memo.ts'
import { planFunction, planPrompt } from '../../../src/workflow/plan.ts'
import { square } from '../../backends/local/fixtures/backend-tasks.ts'

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

  it('memo key: `this` counts for a function that uses it', () => {
    const scaled = planFunction(
      function scale(this: { k: number }, x: number) {
        return this.k * x
      },
      { cache: true },
    )
    const own = planFunction(
      function scale(this: { k: number }, x: number) {
        return this.k * x
      },
      { cache: { key: () => 'own' } },
    )
    expect(memoKey(scaled, [1], { k: 2 })).toBe(memoKey(scaled, [1], { k: 2 }))
    expect(memoKey(scaled, [1], { k: 2 })).not.toBe(memoKey(scaled, [1], { k: 3 }))
    expect(() => memoKey(scaled, [1], new URL('http://a'))).toThrow('this: an instance of URL')
    const hole = Array.from({ length: 1 })
    Reflect.deleteProperty(hole, 0)
    const lists = [hole, [undefined], Object.assign([1], { k: 2 }), Object.assign([1], { k: 3 })]
    expect(new Set(lists.map((list) => memoKey(scaled, [1], list as never))).size).toBe(4)
    const items = new (class Items extends Array<number> {})()
    expect(() => memoKey(scaled, [1], items)).toThrow('this: an instance of Items')
    expect(memoKey(own, [1], { k: 2 })).toBe(memoKey(own, [1], new URL('http://a')))
    expect(memoKey(plan, [1], new URL('http://a'))).toBe(memoKey(plan, [1]))
  })

  it('memo key: long lists have a key, what would take forever is refused', () => {
    const long = Array.from({ length: 200_000 }, (_, at) => at)
    expect(keyOf(long)).toBe(keyOf([...long]))
    expect(keyOf(long)).not.toBe(keyOf(long.toReversed()))
    const many = Array.from({ length: 1001 }, () => Array.from({ length: 999 }, () => []))
    expect(() => keyOf(many)).toThrow('objects cannot be compared')
    // Shared objects are written once.
    let shared: unknown = 1
    for (let level = 0; level < 40; level++) shared = [shared, shared]
    expect(keyOf(shared)).toBe(keyOf(structuredClone(shared)))
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

  it('memo key: tells shared objects from equal ones, and bare from plain ones', () => {
    const one = {}
    const bare: unknown = Object.create(null)
    const keys = [keyOf(one, one), keyOf({}, {}), keyOf(bare, {}), keyOf({}, bare)]
    expect(new Set(keys).size).toBe(4)
    expect(keyOf([one, one])).toBe(keyOf(structuredClone([one, one])))
  })

  it.each([
    ['a symbol as a key', { [Symbol.for('k')]: 1 }],
    ['a hidden field', Object.defineProperty({}, 'k', { value: 1 })],
    ['a getter', Object.defineProperty({}, 'k', { get: () => 1, enumerable: true })],
    ['a symbol as a key of an array', Object.assign([1], { [Symbol.for('k')]: 1 })],
    ['a hidden field of an array', Object.defineProperty([1], 'k', { value: 1 })],
    ['a Map with fields', Object.assign(new Map(), { k: 1 })],
    ['a Set with fields', Object.assign(new Set(), { k: 1 })],
    ['a Date with fields', Object.assign(new Date(0), { k: 1 })],
    ['bytes with fields', Object.assign(new Uint8Array(1), { k: 1 })],
    ['a Buffer with fields', Object.assign(Buffer.from('a'), { k: 1 })],
    ['a kind of array', new (class Items extends Array<number> {})()],
    ['a kind of Map', new (class Table extends Map {})()],
    ['a kind of Set', new (class Group extends Set {})()],
    ['a kind of Date', new (class Day extends Date {})(0)],
    ['a kind of bytes', new (class Bytes extends Uint8Array {})(1)],
  ])('memo key: is refused for %s, which looks like what it is not', (_, given: unknown) => {
    expect(() => keyOf([given])).toThrow(/^args\.0\.0.* cannot be compared/)
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
  ])('the key of a result is refused for %s, by its place', (_, args, field) => {
    expect(() => keyOf(...args)).toThrow(expect.objectContaining({ field }))
  })

  it.each([Date, Set, Map, Array])(
    'memo key: an object that only inherits from %o is refused',
    (type) => {
      expect(() => keyOf(Object.create(type.prototype as object))).toThrow(
        `an instance of ${type.name}`,
      )
    },
  )

  it('memo key: cycles have a key, keys that are no strings are refused', () => {
    const [cycle, longer]: [unknown[], unknown[]] = [[], []]
    cycle.push(cycle)
    longer.push([longer])
    expect(keyOf(cycle)).toBe(keyOf(structuredClone(cycle)))
    expect(keyOf(cycle)).not.toBe(keyOf(longer))
    const odd = planFunction(body, { cache: { key: () => 1 } })
    expect(() => memoKey(odd, [])).toThrow('no string')
  })
})

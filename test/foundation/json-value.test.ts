import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { toJsonObject, toJsonValue } from '../../src/foundation/json-value.ts'
import { assertProperty } from '../property.ts'

const marker = (what: string): string => `[unserializable: ${what}]`

function isDeepFrozen(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return true
  return Object.isFrozen(value) && Object.values(value).every(isDeepFrozen)
}

/** Values with traps in them: getters, proxies, cycles, odd `toJSON` methods. */
const trapped = fc.letrec<{ tree: unknown; trap: unknown }>((tie) => ({
  tree: fc.oneof(
    { maxDepth: 4 },
    fc.anything({
      withBigInt: true,
      withBoxedValues: true,
      withDate: true,
      withMap: true,
      withSet: true,
      withNullPrototype: true,
      withSparseArray: true,
      withTypedArray: true,
      withObjectString: true,
    }),
    tie('trap'),
    fc.array(tie('tree'), { maxLength: 4 }),
    fc.dictionary(fc.string(), tie('tree'), { maxKeys: 4 }),
  ),
  trap: fc.oneof(
    fc.constant(Symbol('s')),
    fc.constant(() => 1),
    fc.constant('\udc00'),
    tie('tree').map((inner) => ({ toJSON: () => inner })),
    fc.anything().map((thrown) => ({
      toJSON(): never {
        throw thrown
      },
    })),
    fc.anything().map((thrown) => ({
      get trap(): never {
        throw thrown
      },
    })),
    fc
      .constantFrom('ownKeys', 'get', 'has', 'getPrototypeOf', 'getOwnPropertyDescriptor')
      // Behind a toJSON, because fast-check itself would step into it.
      .map((trap) => ({ toJSON: () => new Proxy({ a: 1 }, { [trap]: fail }) })),
    fc.boolean().map((isThrown) => ({
      toJSON() {
        const { proxy, revoke } = Proxy.revocable([], {})
        revoke()
        if (isThrown) throw proxy
        return proxy
      },
    })),
    tie('tree').map((inner) => {
      const ring: Record<string, unknown> = { inner }
      ring['self'] = [ring]
      return ring
    }),
  ),
}))

function fail(): never {
  throw new TypeError('trap')
}

describe('toJsonValue', () => {
  it('row 38: toJsonValue never throws, and gives frozen JSON that survives a round trip', () => {
    assertProperty(
      fc.property(trapped.tree, (value) => {
        const copy = toJsonValue(value)
        const text = JSON.stringify(copy)
        expect(typeof text).toBe('string')
        expect(JSON.stringify(JSON.parse(text))).toBe(text)
        expect(isDeepFrozen(copy)).toBe(true)
        // Values that are already JSON stay as they are.
        expect(toJsonValue(copy)).toEqual(copy)
      }),
      { numRuns: 200, longRuns: 1000 },
    )
  })

  it('row 38: toJsonValue shows what JSON shows, where JSON shows something', () => {
    const anything = fc.anything({ withBoxedValues: true, withDate: true, withMap: true })
    assertProperty(
      fc.property(anything, (value) => {
        const text = JSON.stringify(value)
        fc.pre(text !== undefined)
        expect(JSON.stringify(toJsonValue(value))).toBe(text)
      }),
      { numRuns: 200, longRuns: 1000 },
    )
  })

  it('row 38: toJsonValue does not touch the original', () => {
    assertProperty(
      fc.property(fc.jsonValue(), (value) => {
        const before = structuredClone(value)
        const copy = toJsonValue(value)
        expect(value).toEqual(before)
        expect(copy).toEqual(before)
        const isObject = typeof value === 'object' && value !== null
        expect(copy === value).toBe(!isObject)
        expect(Object.isFrozen(value)).toBe(!isObject)
      }),
    )
  })

  it('row 38: toJsonValue names each thing that JSON cannot show', () => {
    const cases: [unknown, unknown][] = [
      [1n, marker('BigInt')],
      [Object(1n), marker('BigInt')],
      [Symbol('s'), marker('symbol')],
      [fail, marker('function')],
      [Number.NaN, null],
      [undefined, null],
      [Object.assign([undefined], { 2: 1 }), [null, null, 1]],
      [{ a: undefined, b: 1 }, { b: 1 }],
      [new Date(Number.NaN), null],
      [new Date(0), '1970-01-01T00:00:00.000Z'],
      [new Map([[1, 2]]), {}],
      [
        [new String('box'), new Number(1), new Boolean(false)],
        ['box', 1, false],
      ],
      [{ toJSON: fail }, marker('throws')],
      [{ toJSON: 'text' }, { toJSON: 'text' }],
    ]
    for (const [value, expected] of cases) expect(toJsonValue(value)).toEqual(expected)
  })

  it('row 38: a toJSON that gives the object itself shows its fields, once', () => {
    let calls = 0
    class Point {
      x = 1
      toJSON(): this {
        calls++
        return this
      }
    }
    expect(toJsonValue({ point: new Point() })).toEqual({ point: { x: 1 } })
    expect(calls).toBe(1)
  })

  it('row 38: the same object twice is no cycle', () => {
    const shared = { a: 1 }
    expect(toJsonValue([shared, { shared }])).toEqual([shared, { shared }])
  })

  it('row 38: toJsonValue bounds depth, length and number, and is quick on a billion holes', () => {
    let deep: unknown = 'bottom'
    for (let level = 0; level < 100_000; level++) deep = [deep]
    expect(JSON.stringify(toJsonValue(deep))).toContain('nested too deeply')
    const long = toJsonValue('x'.repeat(200_000))
    expect(long).toBe(`${'x'.repeat(131_072)}...[truncated 200000]`)
    // The cut is never inside a pair.
    const pairs = toJsonValue(`x${'😀'.repeat(100_000)}`) as string
    expect(pairs.isWellFormed()).toBe(true)
    for (const many of [
      Array.from({ length: 200_000 }, () => 1),
      Array(4_000_000_000),
      Object.fromEntries(Array.from({ length: 200_000 }, (_, at) => [`k${at}`, at])),
    ]) {
      const copy = Object.values(toJsonValue(many) as object)
      expect(copy.length).toBeLessThanOrEqual(100_001)
      expect(copy.at(-1)).toBe(marker('too large'))
    }
    const wide = toJsonValue({ ['k'.repeat(5_000_000)]: 1 })
    expect(Object.keys(wide as object)[0]?.length).toBeLessThan(132_000)
  })

  it('row 38: `__proto__` is a key like any other', () => {
    const copy = toJsonObject(JSON.parse('{"__proto__":{"polluted":true},"a":1}') as object)
    expect(JSON.stringify(copy)).toBe('{"__proto__":{"polluted":true},"a":1}')
    expect(Object.getPrototypeOf(copy)).toBe(Object.prototype)
    expect('polluted' in copy).toBe(false)
  })
})

describe('toJsonObject', () => {
  it('toJsonObject wraps values that JSON does not show as an object', () => {
    expect(toJsonObject(new Date(0))).toEqual({ value: '1970-01-01T00:00:00.000Z' })
    expect(toJsonObject([1])).toEqual({ value: [1] })
    expect(toJsonObject({ a: 1 })).toEqual({ a: 1 })
  })
})

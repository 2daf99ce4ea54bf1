import { join, normalize, resolve } from 'node:path'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { ValueError } from '../../src/foundation/errors.ts'
import {
  describe as show,
  didYouMean,
  expectFunction,
  expectId,
  expectInteger,
  expectKnownKeys,
  expectNumber,
  expectObject,
  expectOneOf,
  expectString,
  findNearest,
} from '../../src/foundation/options.ts'
import { assertProperty } from '../property.ts'

describe('validators', () => {
  const cases: [() => unknown, string][] = [
    [
      () => expectInteger('size', 0, { min: 1 }),
      'Expected `size` to be an integer from 1, got `0` (number)',
    ],
    [
      () => expectInteger('size', 1.5, { min: 1, max: 9 }),
      'Expected `size` to be an integer from 1 to 9, got `1.5` (number)',
    ],
    [() => expectInteger('size', '1'), 'Expected `size` to be an integer, got `1` (string)'],
    [
      () => expectNumber('wait', 0, { above: 0, max: 5 }),
      'Expected `wait` to be a number above 0 and at most 5, got `0` (number)',
    ],
    [
      () => expectNumber('wait', Number.NaN, { min: 0 }),
      'Expected `wait` to be a number from 0, got `NaN` (number)',
    ],
    [
      () => expectNumber('rank', Infinity),
      'Expected `rank` to be a finite number, got `Infinity` (number)',
    ],
    [
      () => expectNumber('rank', -Infinity),
      'Expected `rank` to be a finite number, got `-Infinity` (number)',
    ],
    [
      () => expectNumber('wait', Infinity, { min: 0, max: 5 }),
      'Expected `wait` to be a number from 0 to 5, got `Infinity` (number)',
    ],
    [
      () => expectNumber('wait', -Infinity, { min: 0, mayBeInfinite: true }),
      'Expected `wait` to be a number from 0, got `-Infinity` (number)',
    ],
    [() => expectString('path', ''), 'Expected `path` to be a non-empty string, got `` (string)'],
    [() => expectString('path', null), 'Expected `path` to be a non-empty string, got `null`'],
    [() => expectObject('o', [1]), 'Expected `o` to be an object, got `[1]` (array)'],
    [() => expectFunction('f', 1n), 'Expected `f` to be a function, got `1` (bigint)'],
    [
      () => expectOneOf('mode', 'c', ['a', 'b']),
      'Expected `mode` to be one of "a", "b", got `c` (string)',
    ],
  ]

  it('validators name the field, the expected and the given value', () => {
    for (const [call, message] of cases) {
      expect(call).toThrow(ValueError)
      expect(call).toThrow(expect.objectContaining({ message }))
    }
    expect(() => expectInteger('size', 0, { min: 1 })).toThrow(
      expect.objectContaining({ field: 'size', expected: 'an integer from 1', got: 0 }),
    )
  })

  it('validators return a correct value', () => {
    const object = {}
    expect(expectObject('o', object)).toBe(object)
    expect(expectString('s', 'x')).toBe('x')
    expect(expectNumber('n', 0.5, { above: 0, max: 0.5 })).toBe(0.5)
    expect(expectNumber('n', Infinity, { min: 0, mayBeInfinite: true })).toBe(Infinity)
    expect(expectInteger('i', -1)).toBe(-1)
    expect(expectOneOf('m', 'b', ['a', 'b'])).toBe('b')
    expect(expectFunction('f', () => {})).toBeUndefined()
  })

  it('validators refuse unknown keys, with the nearest known one', () => {
    const known = ['maxBatchSize', 'port']
    expect(() => expectKnownKeys('Backend', { maxBatchSise: 1 }, known)).toThrow(
      'Backend has no `maxBatchSise`; did you mean "maxBatchSize"?',
    )
    expect(() => expectKnownKeys('Backend', { other: 1 }, known, 'llm.')).toThrow(
      expect.objectContaining({
        message: 'Backend has no `llm.other`; known: maxBatchSize, port',
        field: 'llm.other',
      }),
    )
    for (const key of ['max', 'maxBatch', 'MaxBatch']) {
      expect(() => expectKnownKeys('Backend', { [key]: 1 }, known)).toThrow(
        `Backend has no \`${key}\`; did you mean "maxBatchSize"?`,
      )
    }
    expect(() => expectKnownKeys('Backend', { m: 1 }, known)).toThrow('; known: maxBatchSize, port')
    expect(expectKnownKeys('Backend', { port: 1 }, known)).toBeUndefined()
  })
})

describe('what is shown of a value', () => {
  it('a shown value is short, has its type or class, and never throws', () => {
    class Lookalike {
      a = 1
    }
    const { proxy, revoke } = Proxy.revocable({}, {})
    revoke()
    expect(show(new Lookalike())).toBe('an instance of Lookalike')
    expect(show({ a: 1 })).toBe('`{"a":1}` (object)')
    expect(show(Object.create(null))).toBe('`{}` (object)')
    expect(show(Lookalike)).toBe('`Lookalike` (function)')
    expect(show({ big: 1n })).toBe('`unprintable` (object)')
    expect(show(proxy)).toBe('`unprintable` (object)')
    expect(show('x'.repeat(1000))).toHaveLength(80 + '`` (string)'.length)
    expect(show(Symbol('s'))).toBe('`Symbol(s)` (symbol)')
  })

  it('a shown value is a string for any value', () => {
    assertProperty(
      fc.property(fc.anything({ withBigInt: true, withNullPrototype: true }), (value) => {
        expect(typeof show(value)).toBe('string')
      }),
    )
  })
})

describe('did you mean', () => {
  it('a suggestion is the nearest name, in either case, or none', () => {
    const known = ['local', 'cluster', 'hpc']
    expect(findNearest('locl', known)).toBe('local')
    expect(findNearest('CLUSTRE', known)).toBe('cluster')
    expect(findNearest('hp', known)).toBe('hpc')
    expect(findNearest('something', known)).toBeUndefined()
    expect(findNearest('x'.repeat(10_000), known)).toBeUndefined()
    expect(didYouMean('locl', known)).toBe('; did you mean "local"?')
    expect(didYouMean('zzz', known)).toBe('')
    expect(findNearest('local', known)).toBe('local')
  })
})

describe('ids', () => {
  it('row 89: bad ones are refused by name', () => {
    const bad = [
      '../../x',
      '/etc/passwd',
      'C:\\x',
      '',
      '.',
      '..',
      '-rf',
      '_x',
      'CON',
      'con.txt',
      'Lpt1',
      'x'.repeat(129),
      'x'.repeat(300),
      'a\0b',
      'a/b',
      'a b',
      'a\nb',
      'a\n',
      'ünï',
      '\u202eabc',
      null,
      undefined,
      7,
      ['a'],
    ]
    for (const id of bad) {
      expect(() => expectId('sessionId', id)).toThrow(
        expect.objectContaining({ name: 'ValueError', field: 'sessionId' }),
      )
    }
    for (const id of ['a', '0', 'Run_1.final-2', 'x'.repeat(128), 'console', 'com', 'nullable']) {
      expect(expectId('sessionId', id)).toBe(id)
    }
  })

  it('row 89: an accepted one stays inside its folder as a file name', () => {
    const anyId = fc.oneof(
      fc.string(),
      fc.string({ unit: 'binary' }),
      fc.string({ unit: fc.constantFrom('.', '/', '\\', 'a', '-', '\0', 'C', 'O', 'N') }),
      fc.stringMatching(/^[A-Za-z0-9][A-Za-z0-9._-]{0,20}$/),
    )
    const folder = resolve('/work-dir')
    const paths: string[] = []
    assertProperty(
      fc.property(anyId, (id) => {
        try {
          const path = join(folder, `${expectId('id', id)}.1.telemetry.jsonl`)
          paths.push(path)
        } catch (error) {
          expect(ValueError.isInstance(error)).toBe(true)
        }
      }),
      { numRuns: 10_000 },
    )
    expect(paths.length).toBeGreaterThan(1000)
    for (const path of paths) {
      expect(normalize(path)).toBe(path)
      expect(path.slice(0, folder.length + 1)).toBe(`${folder}/`)
      expect(path.slice(folder.length + 1)).not.toMatch(/[/\\\0]/)
    }
  })
})

import { describe, expect, it } from 'vitest'
import { findFirstProblems, findProblems, isValid } from '../../../src/inference/schema/problems.ts'
import { annotate, z } from '../../../src/inference/schema/schema.ts'

const engine = z.discriminatedUnion('kind', [
  z.strictObject({ kind: z.literal('a').default('a'), size: z.int().min(1).max(9) }),
  z.strictObject({ kind: z.literal('b'), url: z.string(), sizes: z.array(z.number()).max(2) }),
])

describe('problems of a value', () => {
  it.each([
    ['a missing key', z.object({ name: z.string() }), {}, [{ kind: 'missing', path: ['name'] }]],
    [
      'a value of another type',
      z.object({ list: z.array(z.boolean().optional()) }),
      { list: [true, 1] },
      [{ kind: 'type', path: ['list', 1], expected: 'a boolean', isPrivate: false }],
    ],
    [
      'an integer above its maximum, even one that no integer type can hold exactly',
      z.int().max(8),
      1e300,
      [{ kind: 'range', of: 'integer', bound: { side: 'max', value: 8, isInclusive: true } }],
    ],
    [
      'a decimal that must be greater than its bound',
      z.number().gt(0),
      0,
      [{ kind: 'range', of: 'decimal', bound: { side: 'min', value: 0, isInclusive: false } }],
    ],
    [
      'a text of the wrong form',
      annotate(z.string().regex(/^x/), { format: 'an x', isPrivate: true }),
      'y',
      [{ kind: 'format', expected: 'an x', isPrivate: true }],
    ],
    [
      'a name that is no choice',
      z.enum(['one', 'two']),
      'three',
      [{ kind: 'choice', allowed: ['one', 'two'] }],
    ],
    [
      'a choice of another type',
      z.enum(['one', 'two']),
      3,
      [{ kind: 'type', expected: "one of 'one', 'two'" }],
    ],
    [
      'a key of a record that does not fit',
      z.record(annotate(z.string().regex(/^[a-z]+$/), { expected: 'letters' }), z.string()),
      { A1: 'x' },
      [{ kind: 'invalid_key', path: ['A1'], expected: 'letters' }],
    ],
    [
      'several unknown keys, each with the nearest known one',
      z.strictObject({ max_tokens: z.int().optional(), stop: z.string().optional() }),
      { max_tokenz: 1, other: 2 },
      [
        { kind: 'unknown_key', path: ['max_tokenz'], nearest: 'max_tokens' },
        { kind: 'unknown_key', path: ['other'], known: ['max_tokens', 'stop'] },
      ],
    ],
  ])('%s', (_, schema, value, expected) => {
    const problems = findProblems(schema, value)
    expect(problems).toMatchObject(expected)
    expect(problems).toHaveLength(expected.length)
  })

  it('problems of a value are none for a value that fits', () => {
    expect(findProblems(engine, { size: 3 })).toEqual([])
  })
})

describe('problems of a union', () => {
  const list = annotate(z.union([z.string().min(1), z.array(z.string()).max(2)]), {
    expected: 'a text or several',
  })

  it.each([
    ['of the list that was meant', ['a', 1], [{ kind: 'type', path: [1], expected: 'a string' }]],
    ['of a list that is too long', ['a', 'b', 'c'], [{ kind: 'length', of: 'array' }]],
    ['of the text that was meant', '', [{ kind: 'length', of: 'string' }]],
    [
      'of the union as a whole when no type fits',
      5,
      [{ kind: 'type', path: [], expected: 'a text or several' }],
    ],
  ])('problems of a union are those %s', (_, value, expected) => {
    expect(findProblems(list, value)).toMatchObject(expected)
  })

  it('problems of a union are those of the alternative that the discriminator names', () => {
    expect(findProblems(engine, { kind: 'b', url: 'x', sizes: [1], sises: [] })).toEqual([
      { kind: 'unknown_key', path: ['sises'], known: ['kind', 'url', 'sizes'], nearest: 'sizes' },
    ])
    expect(findProblems(engine, { size: 0, url: 'x' })).toMatchObject([
      { kind: 'range', path: ['size'], of: 'integer' },
      { kind: 'unknown_key', path: ['url'], known: ['kind', 'size'] },
    ])
  })

  it('problems of a union name the choices when the discriminator is wrong', () => {
    expect(findProblems(engine, { kind: 'c' })).toMatchObject([
      { kind: 'choice', path: ['kind'], allowed: ['a', 'b'] },
    ])
    expect(findProblems(engine, { kind: 7 })).toMatchObject([{ kind: 'type', path: ['kind'] }])
  })
})

it('isValid agrees with the problems, and does not change the value', () => {
  const schema = z.object({ a: z.int().default(1), b: z.array(z.string()).nullish() })
  const values = [{}, { a: 2, extra: true }, { a: '2' }, { b: null }, { b: [1] }, null, []]
  for (const value of values) {
    expect(isValid(schema, value)).toBe(findFirstProblems(schema, value).length === 0)
  }
  expect(values[0]).toEqual({})
})

it('findFirstProblems describes only the first wrong item of a long list', () => {
  const part = z.object({ type: z.string() })
  const content = z.union([z.string(), z.array(part)])
  const schema = z.object({ messages: z.array(z.object({ content })) })
  const sound = Array.from({ length: 100 }, () => ({ content: 'x' }))
  const wrong = Array.from({ length: 100_000 }, () => 0)
  expect(findFirstProblems(schema, { messages: [...sound, ...wrong] })).toMatchObject([
    { path: ['messages', 100], kind: 'type' },
  ])
  const both = { messages: [{ content: wrong }, { content: 5 }] }
  expect(findFirstProblems(schema, both)).toMatchObject([
    { path: ['messages', 0, 'content', 0], kind: 'type' },
    { path: ['messages', 1, 'content'], kind: 'type' },
  ])
})

import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { parseJson } from '../../../src/runtime/http/json-body.ts'
import { HttpError } from '../../../src/runtime/http/http-error.ts'
import { assertProperty } from '../../property.ts'

const parse = (body: string | Buffer): unknown => parseJson(Buffer.from(body as string), 64)

function refusalOf(body: string | Buffer): HttpError {
  try {
    parse(body)
  } catch (error) {
    if (error instanceof HttpError) return error
    throw error
  }
  throw new Error('it was accepted')
}

const malformed: readonly (readonly [string, string | Buffer, number])[] = [
  ['malformed', '{"canary": x}', 11],
  ['two values', '{} canary', 3],
  ['a comma too many', '[1,]', 3],
  ['a key without quotes', '{canary:1}', 1],
  ['a key without value', '{"canary"}', 9],
  ['single quotes', "{'canary':1}", 1],
  ['a wrong bracket', '[1}', 2],
  ['truncated', '{"canary": "tr', 14],
  ['truncated in an array', '[[1,', 4],
  ['a control character', '{"canary": "a\nb"}', 13],
  ['a bad escape', String.raw`{"canary": "\x41"}`, 13],
  ['a cut escape', String.raw`["\u00"]`, 3],
  ['NaN', '{"canary": NaN}', 11],
  ['a leading zero', '[01]', 2],
  ['a bare minus', '[-]', 1],
  ['a byte order mark', '\ufeff{}', 0],
  ['UTF-16', Buffer.from('{"canary":1}', 'utf16le'), 1],
  ['UTF-16 with its mark', Buffer.concat([Buffer.from([0xff, 0xfe]), Buffer.from('{}')]), 0],
  ['invalid UTF-8', Buffer.concat([Buffer.from('{"ä": "'), Buffer.from([0xc3, 0x28])]), 8],
  ['invalid after a true replacement', Buffer.from([0x22, 0xef, 0xbf, 0xbd, 0xff]), 4],
  ['a cut character', Buffer.from('["ä').subarray(0, 3), 2],
  ['a key twice', '{"a": 1, "canary": 1, "canary": 2}', 22],
  ['a key twice, once escaped', String.raw`{"ab": 1, "\u0061b": 2}`, 10],
  ['a key twice inside', '[{"a": {"b": 1, "b": 2}}]', 16],
  ['a number beyond a double', '{"n": 1e999}', 6],
  ['a negative one', '[-1e999]', 1],
  ['a long one', `[${'9'.repeat(400)}]`, 1],
]

describe('the JSON of a body', () => {
  it('row 64: invalid JSON is refused with a position and without text of the body', () => {
    for (const [name, body, position] of malformed) {
      const { status, code, param, message } = refusalOf(body)
      expect({ name, status, code, param }).toEqual({
        name,
        status: 400,
        code: 'invalid_json',
        param: 'body',
      })
      expect(message, name).toMatch(new RegExp(` at position ${position}\\.$`))
      expect(message, name).not.toMatch(/canary/)
    }
  })

  it('row 64: the first invalid byte is found behind genuine U+FFFD characters', () => {
    const many = '{"canary": "' + '\ufffdä'.repeat(200_000)
    const body = Buffer.concat([Buffer.from(many), Buffer.from([0xff])])
    expect(refusalOf(body).message).toMatch(
      new RegExp(`not UTF-8 text at position ${Buffer.byteLength(many)}\\.$`),
    )
  })

  it('row 64: an empty body is refused as such', () => {
    expect(refusalOf('')).toMatchObject({ status: 400, code: 'invalid_json', param: 'body' })
    expect(refusalOf('  ')).toMatchObject({ status: 400, code: 'invalid_json' })
  })

  it('row 64: the parser accepts what JSON.parse accepts, and refuses what it refuses', () => {
    const noSpecialKeys = (text: string): boolean => !/__proto__|constructor/.test(text)
    assertProperty(
      fc.property(fc.json({ maxDepth: 8 }).filter(noSpecialKeys), (text) => {
        expect(parse(text)).toEqual(JSON.parse(text))
      }),
      { numRuns: 100, longRuns: 500 },
    )
    const crumbs = fc.constantFrom(
      ...Array.from('{}[],:"0123e+-. \\/ntrue'),
      'true',
      'null',
      '"a"',
      '"\\n"',
    )
    assertProperty(
      fc.property(fc.array(crumbs, { maxLength: 12 }), (parts) => {
        const text = parts.join('')
        const isRefused = throws(() => parse(text))
        const isMalformed = throws(() => JSON.parse(text))
        // Stricter than JSON.parse: repeated keys, and numbers beyond a double.
        if (isMalformed) expect(isRefused, text).toBe(true)
        else if (isRefused) expect(text).toMatch(/"a"|""|e/)
      }),
      { numRuns: 500, longRuns: 5000 },
    )
  })

  it('row 65: a body nested too deeply is refused at the first level beyond the limit', () => {
    expect(parse('['.repeat(64) + ']'.repeat(64))).toBeDefined()
    for (const depth of [65, 1000, 1_000_000]) {
      expect(refusalOf('['.repeat(depth))).toMatchObject({ status: 400, code: 'json_too_deep' })
      const objects = refusalOf('{"a":'.repeat(depth))
      expect(objects.code).toBe('json_too_deep')
      expect(objects.message).toContain(`(position ${64 * '{"a":'.length})`)
    }
    expect(parse(`[${'[],'.repeat(1000)}[]]`)).toHaveLength(1001)
  })

  it('row 66: the keys __proto__ and constructor are refused, also with escapes', () => {
    const bodies = [
      '{"__proto__": {"polluted": 1}}',
      '{"a": [{"constructor": {"prototype": {"polluted": 1}}}]}',
      String.raw`{"__pro\u0074o__": {"polluted": 1}}`,
    ]
    for (const body of bodies) {
      expect(refusalOf(body)).toMatchObject({ status: 400, code: 'invalid_json' })
    }
    expect(({} as Record<string, unknown>)['polluted']).toBeUndefined()
    expect(parse('{"a": "__proto__"}')).toEqual({ a: '__proto__' })
  })
})

function throws(callback: () => unknown): boolean {
  try {
    callback()
    return false
  } catch {
    return true
  }
}

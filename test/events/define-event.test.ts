import { describe, expect, it } from 'vitest'
import { defineEvent, type FieldDeclarations } from '../../src/events/define-event.ts'
import { baseFieldNames } from '../../src/events/event.ts'
import { makeEvent } from '../../src/events/make-event.ts'
import { ValueError } from '../../src/foundation/errors.ts'

const common = { session_id: 's1', backend: 'app' }

describe('defineEvent', () => {
  it('defineEvent: fields without a default have the specified ones', () => {
    const Timer = defineEvent('define.Timer', {
      label: 'str',
      duration_ms: 'float',
      step: ['int', -1],
      ok: 'bool',
      extra: 'any',
      named: ['str', 'x'],
      facts: ['any', { list: [1] }],
    })
    const event = makeEvent(Timer, common)
    expect(event).toMatchObject({
      event_type: 'define.Timer',
      label: '',
      duration_ms: 0,
      step: -1,
      ok: false,
      extra: null,
      named: 'x',
      facts: { list: [1] },
    })
    expect([Timer.name, Timer.eventType]).toEqual(['define.Timer', 'define.Timer'])
    expect(event).toBeInstanceOf(Timer)
    expect(Object.isFrozen(event)).toBe(true)
    expect(Object.isFrozen((event.facts as { list: unknown }).list)).toBe(true)
    expect(makeEvent(Timer, { ...common, label: 'a', extra: [1n] as never }).extra).toEqual([
      '[unserializable: BigInt]',
    ])
    const wrong = [
      { label: 1 },
      { duration_ms: '1' },
      { step: 1.5 },
      { ok: 'yes' },
      { label: null },
    ]
    for (const fields of wrong) {
      expect(() => makeEvent(Timer, { ...common, ...fields } as typeof common)).toThrow(
        expect.objectContaining({ field: Object.keys(fields)[0] }),
      )
    }
  })

  it('defineEvent: accepts any namespaced name', () => {
    for (const name of ['a.b', 'my-app.sub_space.Thing2', '3d.Mesh', 'a.1']) {
      expect(defineEvent(name, {}).eventType).toBe(name)
    }
  })
})

describe('row 39: bad definitions', () => {
  it('row 39: names without a namespace and malformed names are rejected', () => {
    const bad = [
      'NoDot',
      '',
      '.',
      'a.',
      '.a',
      'a..b',
      'a b.c',
      'a."b',
      'a.b\n',
      `a.${'x'.repeat(10_240)}`,
      null,
      7,
    ]
    for (const name of bad) {
      expect(() => defineEvent(name as string, {})).toThrow(
        expect.objectContaining({ name: 'ValueError', field: 'name' }),
      )
    }
  })

  it('row 39: fields that every event or line already has are rejected', () => {
    const taken = [...baseFieldNames, 'section', 'name', 'trace_id', 'span_id', '__proto__']
    for (const field of taken) {
      const fields = JSON.parse(`{"${field}":"str"}`) as FieldDeclarations
      expect(() => defineEvent('bad.Taken', fields), field).toThrow(
        expect.objectContaining({ name: 'ValueError', field }),
      )
    }
  })

  it('row 39: invalid field names, types and defaults are rejected', () => {
    const bad: [string, unknown][] = [
      ['with space', 'str'],
      ['1st', 'str'],
      ['', 'str'],
      ['a', 'string'],
      ['a', 'toString'],
      ['a', null],
      ['a', []],
      ['a', ['int', 1.5]],
      ['a', ['int', '1']],
      ['a', ['str', 1]],
      ['a', ['bool', 0]],
      ['a', ['float', null]],
      ['a', ['float', Number.NaN]],
      ['a', ['int', 1, 2]],
    ]
    for (const [field, declaration] of bad) {
      const fields = { [field]: declaration } as FieldDeclarations
      const define = () => defineEvent('bad.Field', fields)
      expect(define, `${field} ${JSON.stringify(declaration)}`).toThrow(ValueError)
      expect(define).toThrow(field === '' ? 'field name' : field)
    }
    for (const fields of [null, 'str', ['str']]) {
      expect(() => defineEvent('bad.Field', fields as never)).toThrow(ValueError)
    }
    // None of them left a definition behind.
    expect(defineEvent('bad.Field', {}).schema).toEqual({})
  })
})

describe('row 40: the same name twice', () => {
  it('row 40: the same name and fields, in any order, give the same class', () => {
    const first = defineEvent('twice.Same', { a: 'int', b: ['str', 'x'] })
    expect(defineEvent('twice.Same', { a: 'int', b: ['str', 'x'] })).toBe(first)
    expect(defineEvent('twice.Same', { b: ['str', 'x'], a: ['int', 0] })).toBe(first)
  })

  it('row 40: the same name with other fields is an error that shows both', () => {
    const first = defineEvent('twice.Other', { a: 'int' })
    const others: FieldDeclarations[] = [
      { a: 'str' },
      { a: ['int', 1] },
      { a: 'int', b: 'int' },
      {},
    ]
    for (const fields of others) {
      const define = () => defineEvent('twice.Other', fields)
      expect(define).toThrow(ValueError)
      expect(define).toThrow(expect.objectContaining({ code: 'EventRedefinitionError' }))
      expect(define).toThrow(`already defined with { a: 'int' }, not with {`)
    }
    const define = () => defineEvent('twice.Other', { a: ['int', 1], b: 'str' })
    expect(define).toThrow(`not with { a: ['int', 1], b: 'str' }`)
    expect(defineEvent('twice.Other', { a: 'int' })).toBe(first)
  })
})

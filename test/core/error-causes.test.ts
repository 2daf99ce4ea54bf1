import { describe, expect, it } from 'vitest'
import { describeCauses, withCauses } from '../../src/core/error-causes.ts'
import { TuttiError } from '../../src/foundation/errors.ts'

const causesOf = (error: unknown): readonly object[] | undefined =>
  describeCauses(error)['tutti.error_causes']

const outer = { isError: true, type: 'Error', name: 'Error', message: 'outer', fields: {} } as const

describe('the causes of an error', () => {
  it('the causes of an error are listed with their paths, outer ones first', () => {
    const inner = new RangeError('inner', { cause: 'text' })
    const error = new AggregateError([new TypeError('first', { cause: inner }), 2], 'all', {
      cause: new Error('why'),
    })
    expect(causesOf(error)).toMatchObject([
      { path: 'cause', error_type: 'Error', error_message: 'why' },
      { path: 'errors[0]', error_type: 'TypeError', error_message: 'first' },
      { path: 'errors[1]', error_type: 'unknown', error_message: '2' },
      { path: 'errors[0].cause', error_type: 'RangeError', error_message: 'inner' },
      { path: 'errors[0].cause.cause', error_type: 'unknown', error_message: 'text' },
    ])
  })

  it('the causes of an error are at most ten', () => {
    const errors = Array.from({ length: 11 }, (_, at) => new Error(`${at}`))
    expect(causesOf(new AggregateError(errors.slice(1)))).toHaveLength(10)
    expect(causesOf(new AggregateError(errors))).toHaveLength(10)
  })

  it('the causes of an error are none for other values and for errors of tutti', () => {
    const broken = new Proxy(new Error('no'), {
      has() {
        throw new Error('do not look')
      },
    })
    const without = new Error('a', { cause: undefined })
    const own = new TuttiError('b', { code: 'StateError', cause: new Error('c') })
    for (const value of [{ cause: 1 }, new Error('d'), without, own, broken]) {
      expect(describeCauses(value)).toEqual({})
    }
  })

  it('the causes of an error have a stack if there is one, of at most 2048 characters', () => {
    const [without, long] = [new Error('a'), new Error('b')]
    without.stack = ''
    long.stack = 'x'.repeat(5000)
    const [first, second] = causesOf(new AggregateError([without, long])) ?? []
    expect(first).not.toHaveProperty('error_stack')
    expect(second).toHaveProperty('error_stack', 'x'.repeat(2048))
  })

  it('the causes of an error are the same after they were written and read', () => {
    const inner = new RangeError('inner', { cause: 'text' })
    const errors = [new TypeError('first', { cause: inner }), 'second']
    const error = new AggregateError(errors, 'outer', { cause: new Error('why') })
    const written: unknown = JSON.parse(JSON.stringify(causesOf(error)))
    expect(withCauses({ ...outer, stack: '' }, written)).toMatchObject({
      message: 'outer',
      cause: { isError: true, type: 'Error', message: 'why' },
      errors: [
        {
          type: 'TypeError',
          message: 'first',
          cause: { type: 'RangeError', cause: { isError: false, value: 'text' } },
        },
        { isError: false, value: 'second' },
      ],
    })
  })

  it('the causes of an error in a damaged record are left out', () => {
    const record = { ...outer, stack: '' }
    for (const causes of [undefined, null, 'cause', [null, 'cause', 7, {}, { path: 'other' }]]) {
      expect(withCauses(record, causes)).toEqual(record)
    }
    const path = 'cause'
    expect(withCauses(record, [{ path, error_type: 7, error_stack: 'at a' }])).toMatchObject({
      cause: { isError: true, type: '', message: '', stack: 'at a' },
    })
  })
})

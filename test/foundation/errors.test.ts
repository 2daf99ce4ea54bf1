import { describe, expect, it } from 'vitest'
import type * as errors from '../../src/foundation/errors.ts'
import {
  BackendError,
  CheckpointError,
  errnoOf,
  InferenceError,
  messageOf,
  StateError,
  TimeoutError,
  TuttiError,
  ValueError,
  withoutStack,
  WorkerLostError,
} from '../../src/foundation/errors.ts'

const classes = [
  TuttiError,
  ValueError,
  StateError,
  TimeoutError,
  WorkerLostError,
  BackendError,
  InferenceError,
  CheckpointError,
]

/** A second copy of the module, as when two versions of the package are installed. */
const copyUrl = new URL('../../src/foundation/errors.ts?copy', import.meta.url).href

describe('errors', () => {
  it('errors have a name, a code that defaults to it, a cause and a hint', () => {
    for (const errorClass of classes) {
      const plain = new errorClass('text')
      expect(plain).toBeInstanceOf(TuttiError)
      expect([plain.name, plain.code, plain.message]).toEqual([
        errorClass.name,
        errorClass.name,
        'text',
      ])
      expect('cause' in plain || 'hint' in plain).toBe(false)
      const cause = new Error('why')
      const full = new errorClass('text', { code: 'Finer', cause, hint: 'do this' })
      expect([full.code, full.cause, full.hint]).toEqual(['Finer', cause, 'do this'])
      expect(full.name).toBe(errorClass.name)
    }
    // A cause of `undefined` is a cause: somebody threw it.
    expect('cause' in new TuttiError('x', { cause: undefined })).toBe(true)
  })

  it('errors carry the fields of their class', () => {
    const value = new ValueError('x', { field: 'tasks[1]', expected: 'a', got: undefined })
    expect(value).toMatchObject({ field: 'tasks[1]', expected: 'a' })
    expect('got' in value).toBe(true)
    const checkpoint = new CheckpointError('x', { path: '/p', errno: 'ENOSPC', pid: 7 })
    expect(checkpoint).toMatchObject({ path: '/p', errno: 'ENOSPC', pid: 7 })
  })

  it('isInstance is true for a class and its superclasses, also for a user subclass', () => {
    class Mine extends StateError {}
    const mine = new Mine('x')
    expect(mine.name).toBe('Mine')
    expect([Mine, StateError, TuttiError].every((one) => one.isInstance(mine))).toBe(true)
    expect(ValueError.isInstance(mine)).toBe(false)
    expect(Mine.isInstance(new StateError('x'))).toBe(false)
    for (const other of [null, undefined, 1, 'StateError', {}, new Error('x')]) {
      expect(TuttiError.isInstance(other)).toBe(false)
    }
    // The mark is not data.
    expect(new Set(Reflect.ownKeys(mine))).toEqual(new Set(['code', 'message', 'name', 'stack']))
  })

  it('isInstance does not take a user class for the library class of the same name', () => {
    const Named = { ValueError: class extends TuttiError {} }.ValueError
    const error = new Named('x')
    expect(error.name).toBe('ValueError')
    expect(ValueError.isInstance(error)).toBe(false)
    expect(Named.isInstance(new ValueError('x'))).toBe(false)
    expect(Named.isInstance(error) && TuttiError.isInstance(error)).toBe(true)
  })

  it('isInstance is true across copies of the package, where instanceof is not', async () => {
    const copy = (await import(copyUrl)) as typeof errors
    expect(copy.ValueError).not.toBe(ValueError)
    const foreign = new copy.ValueError('x', { field: 'f' })
    expect(foreign).not.toBeInstanceOf(ValueError)
    expect(ValueError.isInstance(foreign) && TuttiError.isInstance(foreign)).toBe(true)
    expect(StateError.isInstance(foreign)).toBe(false)
    expect(copy.TuttiError.isInstance(new StateError('x'))).toBe(true)
  })
})

describe('withoutStack', () => {
  it('withoutStack makes an error whose stack is its message, and changes no other', () => {
    const error = withoutStack(() => new StateError('over'))
    expect(error.stack).toBe('StateError: over')
    expect(() =>
      withoutStack(() => {
        throw new Error('none')
      }),
    ).toThrow('none')
    expect(new Error('mine').stack).toContain('errors.test.ts')
  })
})

describe('messageOf', () => {
  it('messageOf gives a string for whatever was thrown', () => {
    const throwing = {
      get message(): never {
        throw new Error('no')
      },
      toString(): never {
        throw new Error('no')
      },
    }
    const odd = Object.assign(new Error('x'), { message: 10n as unknown as string })
    const { proxy, revoke } = Proxy.revocable({}, {})
    revoke()
    expect(messageOf(new Error('plain'))).toBe('plain')
    expect(messageOf('text')).toBe('text')
    expect(messageOf(null)).toBe('null')
    expect(messageOf(undefined)).toBe('undefined')
    expect(messageOf(Symbol('s'))).toBe('Symbol(s)')
    expect(messageOf(odd)).toBe('10')
    expect(messageOf({ code: 'busy', port: 80 })).toBe('{"code":"busy","port":80}')
    for (const bad of [throwing, proxy, Object.create(null)]) {
      expect(messageOf(bad)).toBe('an unprintable value was thrown')
    }
  })
})

describe('errnoOf', () => {
  it('errnoOf gives the code of a system error, else unknown', () => {
    expect(errnoOf(Object.assign(new Error('x'), { code: 'ENOSPC' }))).toBe('ENOSPC')
    for (const other of [null, undefined, 'ENOSPC', {}, { code: 5 }, new Error('x')]) {
      expect(errnoOf(other)).toBe('unknown')
    }
  })
})

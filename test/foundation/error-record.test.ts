import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import * as core from '../../src/core/failure.ts'
import {
  type ErrorRecord,
  fromErrorRecord,
  toErrorRecord,
} from '../../src/foundation/error-record.ts'
import type * as errors from '../../src/foundation/errors.ts'
import { TuttiError, WorkerLostError } from '../../src/foundation/errors.ts'
import { errorTypeOf, TaskFailedError } from '../../src/foundation/task-errors.ts'
import * as entryPoint from '../../src/index.ts'
import { DependencyFailedError } from '../../src/workflow/index.ts'
import { assertProperty } from '../property.ts'

type ErrorClass = new (message: string, details: object) => TuttiError

const exported = Object.entries<unknown>({ ...entryPoint, DependencyFailedError }).filter(
  (entry): entry is [string, ErrorClass] =>
    typeof entry[1] === 'function' &&
    (entry[1] === TuttiError || entry[1].prototype instanceof TuttiError),
)

/** Of classes whose constructor does not take a message and details. */
const special: Readonly<Record<string, () => TuttiError>> = {
  TaskCanceledError: () => new entryPoint.TaskCanceledError('task-1', 'enough'),
  DependencyFailedError: () =>
    new DependencyFailedError(
      'task-2',
      new TaskFailedError('failed', { uid: 'task-1', cause: new RangeError('too far') }),
    ),
}

const details = {
  code: 'SomeCode',
  hint: 'Try again.',
  field: 'a.b',
  expected: 'a number',
  got: { deep: [1, null, 'x'] },
  path: '/file',
  errno: 'ENOSPC',
  pid: 7,
  uid: 'task-1',
  exitCode: 3,
  signal: null,
  stderr: 'oops',
  cause: new WorkerLostError('the inner one', { cause: new TypeError('the innermost') }),
}

/** A second copy of the module, as when two versions of the package are installed. */
const copyUrl = new URL('../../src/foundation/errors.ts?copy', import.meta.url).href

/** JSON knows no negative zero. */
const jsonValue = fc.jsonValue().map((value): unknown => JSON.parse(JSON.stringify(value)))

const carriers: readonly [string, (record: ErrorRecord) => ErrorRecord][] = [
  ['a structured clone', structuredClone],
  ['JSON', (record) => JSON.parse(JSON.stringify(record)) as ErrorRecord],
]

describe.each(carriers)('an error that is sent as %s', (_, send) => {
  const roundTrip = (error: unknown): Error => fromErrorRecord(send(toErrorRecord(error))) as Error

  it.each(exported)('%s comes back as its class, with all that it carries', (name, errorClass) => {
    const error = special[name]?.() ?? new errorClass('what happened', details)
    const back = roundTrip(error)
    expect(TuttiError.isInstance(back)).toBe(true)
    expect((errorClass as unknown as typeof TuttiError).isInstance(back)).toBe(true)
    expect(back).toBeInstanceOf(errorClass)
    expect(errorTypeOf(back)).toBe(name)
    expect([back.name, back.message, back.stack]).toEqual([error.name, error.message, error.stack])
    const derived = error instanceof DependencyFailedError ? { path: error.path } : {}
    expect(Object.fromEntries(Object.entries(back))).toEqual({
      ...Object.fromEntries(Object.entries(error)),
      ...derived,
    })
    expect(back.cause).toEqual(error.cause)
  })

  it('an error that is sent keeps the classes of causes, and of errors in fields', () => {
    const back = roundTrip(new entryPoint.BackendError('outer', details))
    expect(back.cause).toBeInstanceOf(WorkerLostError)
    expect((back.cause as Error).cause).toBeInstanceOf(TypeError)
    const dependent = roundTrip(special['DependencyFailedError']?.())
    expect(dependent).toMatchObject({ rootUid: 'task-1' })
    expect((dependent as DependencyFailedError).rootCause).toBeInstanceOf(RangeError)
  })

  it('a failed dependency keeps its path, also as the dependency of another task', () => {
    const sent = special['DependencyFailedError']?.() as DependencyFailedError
    const back = roundTrip(roundTrip(sent)) as DependencyFailedError
    expect(back.path).toEqual(['task-1', 'task-2'])
    const next = new DependencyFailedError('task-3', back)
    expect(next.path).toEqual(['task-1', 'task-2', 'task-3'])
    expect(next).toMatchObject({ rootUid: 'task-1', rootCause: back.rootCause })
  })

  it('a lost worker still counts towards poison', () => {
    const isLoss = (error: unknown) => core.isWorkerLoss({ kind: 'fail', error: roundTrip(error) })
    expect(isLoss(new WorkerLostError('gone'))).toBe(true)
    expect(isLoss(new entryPoint.PoisonTaskError('gone'))).toBe(true)
    expect(isLoss(new Error('gone'))).toBe(false)
  })

  it('a subclass that is unknown here comes back as the nearest known class', () => {
    class NodeLostError extends WorkerLostError {}
    const back = roundTrip(new NodeLostError('node 7'))
    expect(back).toBeInstanceOf(WorkerLostError)
    expect(back).not.toBeInstanceOf(NodeLostError)
    expect([back.name, errorTypeOf(back)]).toEqual(['NodeLostError', 'NodeLostError'])
  })

  it('a user class does not come back as the library class of the same name', () => {
    const Named = { ValueError: class extends WorkerLostError {} }.ValueError
    const back = roundTrip(new Named('mine'))
    expect(back).toBeInstanceOf(WorkerLostError)
    expect(entryPoint.ValueError.isInstance(back)).toBe(false)
    expect([back.name, errorTypeOf(back)]).toEqual(['ValueError', 'ValueError'])
  })

  it('an error of another copy of the package comes back as the class of this one', async () => {
    const copy = (await import(copyUrl)) as typeof errors
    const back = roundTrip(new copy.PoisonTaskError('gone'))
    expect(back).toBeInstanceOf(entryPoint.PoisonTaskError)
  })

  it('a foreign class comes back as an Error with its name, message, stack and fields', () => {
    class ForeignError extends Error {
      readonly status = 503
    }
    const error = new ForeignError('down')
    const back = roundTrip(error)
    expect(back).toBeInstanceOf(Error)
    expect(back).not.toBeInstanceOf(TuttiError)
    expect(errorTypeOf(back)).toBe('ForeignError')
    expect([back.message, back.stack]).toEqual([error.message, error.stack])
    expect(back).toMatchObject({ status: 503 })
  })

  it('any message and any JSON fields come back equal', () => {
    assertProperty(
      fc.property(fc.string(), fc.string(), jsonValue, (message, hint, got) => {
        const error = new entryPoint.ValueError(message, { hint, got })
        const back = roundTrip(error)
        expect(back.message).toBe(message)
        expect(Object.fromEntries(Object.entries(back))).toEqual(
          Object.fromEntries(Object.entries(error)),
        )
      }),
      { numRuns: 100 },
    )
  })
})

describe('an error that throws when it is looked at', () => {
  const refuse = (): never => {
    throw new Error('do not look')
  }
  const revoked = (): unknown => {
    const { proxy, revoke } = Proxy.revocable([], {})
    revoke()
    return proxy
  }
  const trapped = (target: object): unknown =>
    new Proxy(target, { get: refuse, has: refuse, ownKeys: refuse, getPrototypeOf: refuse })
  const hostile = fc.constantFrom<() => unknown>(
    revoked,
    () => trapped([]),
    () => trapped(new Error('inside')),
    () => trapped(() => {}),
    () => new Proxy([], { get: (_, key) => (key === 'length' ? 1e9 : revoked()) }),
    () => Object.assign([new Error('one')], { slice: refuse, map: refuse }),
    () => Object.defineProperty([1], 0, { get: refuse }),
    () => new SharedArrayBuffer(8),
    () => Symbol('s'),
    () => new Error('plain'),
    () => Object.create(null),
  )
  const keys = fc.constantFrom('errors', 'cause', 'name', 'message', 'stack', 'code', 'constructor')

  it('an error that throws when it is read becomes a record with all readable parts', () => {
    const parts = fc.array(fc.tuple(keys, hostile, fc.boolean()), { maxLength: 4 })
    assertProperty(
      fc.property(parts, fc.boolean(), (changes, isOwn) => {
        const error = isOwn ? new WorkerLostError('own') : new AggregateError([], 'foreign')
        for (const [key, make, isGetter] of changes) {
          const part = isGetter ? { get: refuse } : { value: make() }
          Object.defineProperty(error, key, { ...part, enumerable: true, configurable: true })
        }
        const back = fromErrorRecord(structuredClone(toErrorRecord(error)))
        expect(back).toBeInstanceOf(Error)
        const isWhole = changes.every(([key]) => key !== 'message')
        expect((back as Error).message).toBe(isWhole ? error.message : '')
      }),
      { numRuns: 20, longRuns: 200 },
    )
  })

  it("an error's list of errors and its prototype may be proxies that refuse", () => {
    const errors = new Proxy([], { get: refuse })
    const aggregate = Object.assign(new AggregateError([], 'several'), { errors })
    expect(fromErrorRecord(toErrorRecord(aggregate))).toMatchObject({ message: 'several' })
    const own = new WorkerLostError('gone')
    Object.setPrototypeOf(own, trapped({}) as object)
    expect(fromErrorRecord(toErrorRecord(own))).toMatchObject({ message: 'gone' })
  })

  it('one that contains itself many times is cut, not followed without end', () => {
    const error = new AggregateError([], 'again')
    error.errors = Array.from({ length: 50 }, () => error)
    const text = JSON.stringify(toErrorRecord(error))
    expect(text.split('"again"').length).toBeLessThan(200)
  })
  it('lists that claim to have a billion items are read up to a limit, all together', () => {
    let reads = 0
    const endless = (item: unknown, length = 1e9): unknown[] =>
      new Proxy([], {
        has: () => true,
        get(_, key) {
          reads++
          if (key === 'length') return length
          return typeof key === 'string' && /^\d+$/.test(key) ? item : Reflect.get([], key)
        },
      })
    const aggregate = new AggregateError([], 'several')
    const fields = { errors: endless(endless(1)), one: endless(1), other: endless({ a: 1 }) }
    const record = toErrorRecord(Object.assign(aggregate, fields))
    expect(record).toMatchObject({ message: 'several' })
    expect(reads).toBeLessThan(500_000)
  })

  it('fields without an end are looked at up to a limit, of all errors together', () => {
    let reads = 0
    const names = Array.from({ length: 100_000 }, (_, at) => `field${at}`)
    const fields = (values: unknown): object =>
      Object.defineProperties(
        {},
        Object.fromEntries(
          names.map((name) => [name, { enumerable: true, get: () => (reads++, values) }]),
        ),
      )
    const wide = (values: unknown, cause?: unknown): Error =>
      Object.defineProperties(
        new Error('wide', { cause }),
        Object.getOwnPropertyDescriptors(fields(values)),
      )
    const record = toErrorRecord(wide(1, wide(undefined)))
    expect(reads).toBeLessThan(20_000)
    const kept = record.isError ? Object.entries(record.fields) : []
    expect(kept.length).toBeLessThan(20_000)
    expect(kept.at(-1)?.[1]).toBe('[unserializable: too large]')
    expect(fromErrorRecord(record)).toMatchObject({ message: 'wide', field0: 1 })
  })
})

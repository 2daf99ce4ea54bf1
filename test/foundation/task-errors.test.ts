import { runInNewContext } from 'node:vm'
import { describe, expect, it } from 'vitest'
import {
  errorTypeOf,
  ExecutableFailedError,
  TaskCanceledError,
  TaskFailedError,
} from '../../src/foundation/task-errors.ts'

class Divergence extends Error {}
class Verdict {
  readonly text = 'guilty'
}
const renamed = Object.assign(new Error('x'), { name: 'ConvergenceError' })
const trap = (): never => {
  throw new Error('no touching')
}

const cases: readonly [string, unknown, string][] = [
  ['null', null, 'unknown'],
  ['undefined', undefined, 'unknown'],
  ['a string', 'Error', 'unknown'],
  ['a function', () => 1, 'unknown'],
  ['a plain object', {}, 'unknown'],
  ['an object without prototype', Object.create(null), 'unknown'],
  ['a named object', { name: 'Oops' }, 'Oops'],
  ['an object with a wrong name', { name: 7 }, 'unknown'],
  ['an Error', new Error('x'), 'Error'],
  ['a class of the language', new RangeError('x'), 'RangeError'],
  ['a class of the caller', new Divergence('x'), 'Divergence'],
  ['an object of a class', new Verdict(), 'Verdict'],
  ['an anonymous class', new (class extends Error {})('x'), 'Error'],
  ['an error that was renamed', renamed, 'Error'],
  ['an error of another realm', runInNewContext('new Error("x")'), 'Error'],
  ['a RangeError of another realm', runInNewContext('new RangeError("x")'), 'RangeError'],
  ['an abort', AbortSignal.abort().reason, 'DOMException'],
  ['a throwing name', Object.defineProperty(new Divergence(), 'name', { get: trap }), 'Divergence'],
  ['a throwing constructor', Object.defineProperty({}, 'constructor', { get: trap }), 'unknown'],
  ['a hostile proxy', new Proxy({}, { get: trap, getPrototypeOf: trap }), 'unknown'],
]

describe('error types', () => {
  it.each(cases)('row 14: the error type of %s', (_, thrown, expected) => {
    expect(errorTypeOf(thrown)).toBe(expected)
  })
})

describe('errors of tasks', () => {
  it('errors of tasks name the task, and its result', () => {
    const details = { uid: 'a', exitCode: 2, signal: null, stderr: 'no', cause: 'why' }
    const failed = new ExecutableFailedError('exit code 2', details)
    expect(failed).toBeInstanceOf(TaskFailedError)
    expect(failed).toMatchObject({ ...details, code: 'ExecutableFailedError' })
    const canceled = new TaskCanceledError('a', 'too slow')
    expect(canceled).not.toBeInstanceOf(TaskFailedError)
    expect(canceled.message).toBe('task a was canceled: too slow')
  })
})

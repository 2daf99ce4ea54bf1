/** Errors on their way between threads: what can be kept of whatever was thrown, as plain data. */

import { types } from 'node:util'
import { messageOf } from '../../../foundation/errors.ts'
import { type JsonObject, toJsonValue } from '../../../foundation/json-value.ts'
import { errorTypeOf } from '../../../foundation/task-errors.ts'

export type ErrorRecord =
  | { readonly isError: false; readonly value: unknown }
  | {
      readonly isError: true
      /** The constructor's name. */
      readonly type: string
      readonly name: string
      readonly message: string
      readonly stack: string
      readonly fields: JsonObject
      readonly cause?: ErrorRecord
      readonly errors?: readonly ErrorRecord[]
    }

const deepestCause = 8
const mostErrors = 100
const carriedOtherwise = new Set(['name', 'message', 'stack', 'cause', 'errors', '__proto__'])

/** Never throws. A thrown value that is no error is kept if it can be cloned. */
export function toErrorRecord(thrown: unknown, depth = 0): ErrorRecord {
  if (!isError(thrown)) return { isError: false, value: toCloneable(thrown) }
  const part = (key: string): unknown => attempt(() => (thrown as never)[key])
  const text = (key: string): string => {
    const value = part(key)
    return typeof value === 'string' ? value : ''
  }
  const errors = part('errors')
  const isDeep = depth >= deepestCause
  return {
    isError: true,
    type: errorTypeOf(thrown),
    name: text('name'),
    message: text('message'),
    stack: text('stack'),
    fields: fieldsOf(thrown),
    ...(isDeep || attempt(() => 'cause' in thrown) !== true
      ? {}
      : { cause: toErrorRecord(part('cause'), depth + 1) }),
    ...(isDeep || !Array.isArray(errors)
      ? {}
      : { errors: errors.slice(0, mostErrors).map((one) => toErrorRecord(one, depth + 1)) }),
  }
}

/** An error with the constructor's name, name, message, stack, cause and fields of the original. */
export function fromErrorRecord(record: ErrorRecord): unknown {
  if (!record.isError) return record.value
  const error = new (classNamed(record.type))(record.message)
  const define = (key: string, value: unknown, enumerable = false): void => {
    Object.defineProperty(error, key, { value, enumerable, configurable: true, writable: true })
  }
  for (const [key, value] of Object.entries(record.fields)) define(key, value, true)
  if (record.name !== error.name) define('name', record.name)
  define('stack', record.stack)
  if (record.cause !== undefined) define('cause', fromErrorRecord(record.cause))
  if (record.errors !== undefined) define('errors', record.errors.map(fromErrorRecord))
  return error
}

function attempt<T>(read: () => T): T | undefined {
  try {
    return read()
  } catch {
    return undefined
  }
}

const isError = (thrown: unknown): thrown is Error =>
  types.isNativeError(thrown) || attempt(() => thrown instanceof Error) === true

function toCloneable(thrown: unknown): unknown {
  if (typeof thrown === 'function' || typeof thrown === 'symbol') return messageOf(thrown)
  try {
    return structuredClone(thrown)
  } catch {
    return toJsonValue(thrown)
  }
}

function fieldsOf(error: Error): JsonObject {
  const fields: Record<string, JsonObject[string]> = {}
  for (const key of attempt(() => Object.keys(error)) ?? []) {
    const value = attempt(() => (error as unknown as Record<string, unknown>)[key])
    const isPlain = value !== undefined && typeof value !== 'function' && typeof value !== 'symbol'
    if (isPlain && !carriedOtherwise.has(key)) fields[key] = toJsonValue(value)
  }
  return fields
}

type ErrorClass = new (message: string) => Error

const builtIn: readonly ErrorClass[] = [
  EvalError,
  RangeError,
  ReferenceError,
  SyntaxError,
  TypeError,
  URIError,
]
const classes = new Map<string, ErrorClass>([
  ['Error', Error],
  ['unknown', Error],
  ...builtIn.map((one) => [one.name, one] as const),
])
const mostClasses = 1000

/** Classes of workers do not exist here; one with the same name stands in. */
function classNamed(type: string): ErrorClass {
  const known = classes.get(type)
  if (known !== undefined) return known
  if (classes.size >= mostClasses) return Error
  const standIn = { [type]: class extends Error {} }[type] ?? Error
  classes.set(type, standIn)
  return standIn
}

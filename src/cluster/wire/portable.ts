/** Whether a value arrives on another machine as a structured clone would keep it. */

import { types } from 'node:util'
import { messageOf } from '../../foundation/errors.ts'
import type {
  ArgumentNotSerializableError,
  ResultNotSerializableError,
} from '../../foundation/task-errors.ts'
import {
  cloningHint,
  isPlainValue,
  uncloneablePath,
} from '../../backends/local/functions/cloning.ts'

type SerializationError = typeof ArgumentNotSerializableError | typeof ResultNotSerializableError

/** Throws an error of this class with the path of the part that cannot be sent. */
export function expectPortable(
  values: unknown,
  root: string,
  errorClass: SerializationError,
): void {
  if (isPlainValue(values)) return
  try {
    structuredClone(values)
  } catch (cause) {
    throw unportable(uncloneablePath(values, root), errorClass, cause)
  }
  const path = processBoundPath(values, root)
  if (path !== null) throw unportable(path, errorClass, undefined)
}

function unportable(
  field: string,
  errorClass: SerializationError,
  cause: unknown,
): ArgumentNotSerializableError | ResultNotSerializableError {
  const why = cause === undefined ? 'it exists in one process alone' : messageOf(cause)
  return new errorClass(`${field} cannot be sent to another machine: ${why}`, {
    field,
    expected: 'a value that can be cloned',
    hint: cloningHint,
    ...(cause === undefined ? {} : { cause }),
  })
}

/**
 * The path of the first object that a clone keeps only inside one process, such as a Blob, a key or
 * shared memory. The serializer of V8 would send an empty object instead.
 */
function processBoundPath(value: unknown, root: string): string | null {
  const waiting: (readonly [unknown, string])[] = [[value, root]]
  const seen = new Set<unknown>()
  for (;;) {
    const next = waiting.pop()
    if (next === undefined) return null
    const [current, path] = next
    if (typeof current !== 'object' || current === null || seen.has(current)) continue
    seen.add(current)
    if (isProcessBound(current)) return path
    for (const [part, step] of partsOf(current)) waiting.push([part, path + step])
  }
}

function isProcessBound(value: object): boolean {
  if (types.isSharedArrayBuffer(value)) return true
  if (ArrayBuffer.isView(value)) return types.isSharedArrayBuffer(value.buffer)
  if (Array.isArray(value) || isKnown(value)) return false
  const prototype: unknown = Object.getPrototypeOf(value)
  if (prototype === null || prototype === Object.prototype) return false
  // An instance of a class becomes a plain object, unless Node keeps its class.
  const clonePrototype: unknown = Object.getPrototypeOf(structuredClone(value))
  return clonePrototype !== Object.prototype
}

const isKnown = (value: object): boolean =>
  types.isMap(value) ||
  types.isSet(value) ||
  types.isDate(value) ||
  types.isRegExp(value) ||
  types.isNativeError(value) ||
  types.isAnyArrayBuffer(value) ||
  types.isBoxedPrimitive(value)

function* partsOf(value: object): Generator<readonly [unknown, string]> {
  if (types.isMap(value)) {
    for (const [key, part] of value) {
      yield [key, '.keys()']
      yield [part, `.get(${typeof key === 'string' ? JSON.stringify(key) : String(key)})`]
    }
  } else if (types.isSet(value)) {
    for (const part of value) yield [part, '.values()']
  } else if (Array.isArray(value)) {
    for (const [at, part] of value.entries()) yield [part, `[${at}]`]
  } else if (!ArrayBuffer.isView(value) && !types.isAnyArrayBuffer(value)) {
    for (const [key, part] of Object.entries(value)) {
      yield [part, /^[\w$]+$/.test(key) ? `.${key}` : `[${JSON.stringify(key)}]`]
    }
  }
}

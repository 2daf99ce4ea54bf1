/** Prepares values, so that other machines receive what `structuredClone` would return. */

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
import { SentException } from './codec.ts'

type SerializationError = typeof ArgumentNotSerializableError | typeof ResultNotSerializableError

/**
 * Returns the value to send, usually `value` itself. Throws with the path of an unsendable part.
 */
export function toPortable<T>(value: T, root: string, errorClass: SerializationError): T {
  if (isPlainValue(value)) return value
  let clone: T
  try {
    clone = structuredClone(value)
  } catch (cause) {
    throw createSerializationError(uncloneablePath(value, root), errorClass, cause)
  }
  const { processBoundPath, hasException } = inspectValue(value, root)
  if (processBoundPath !== null)
    throw createSerializationError(processBoundPath, errorClass, undefined)
  return hasException ? replaceExceptions(clone) : value
}

function createSerializationError(
  field: string,
  errorClass: SerializationError,
  cause: unknown,
): ArgumentNotSerializableError | ResultNotSerializableError {
  const why = cause === undefined ? 'it exists in this process only' : messageOf(cause)
  return new errorClass(`${field} cannot be sent to another machine: ${why}`, {
    field,
    expected: 'a value that can be cloned',
    hint: cloningHint,
    ...(cause === undefined ? {} : { cause }),
  })
}

interface Inspection {
  /**
   * The path of the first object that exists in this process only, such as a Blob, a CryptoKey or
   * shared memory. V8's serializer would send an empty object instead.
   */
  readonly processBoundPath: string | null
  /** Whether the value contains a DOMException, which V8's serializer would send as an `Error`. */
  readonly hasException: boolean
}

function inspectValue(value: unknown, root: string): Inspection {
  const waiting: (readonly [unknown, string])[] = [[value, root]]
  const seen = new Set<unknown>()
  let hasException = false
  for (;;) {
    const next = waiting.pop()
    if (next === undefined) return { processBoundPath: null, hasException }
    const [current, path] = next
    if (typeof current !== 'object' || current === null || seen.has(current)) continue
    seen.add(current)
    if (current instanceof DOMException) hasException = true
    else if (isProcessBound(current)) return { processBoundPath: path, hasException }
    else for (const [part, step] of partsOf(current)) waiting.push([part, path + step])
  }
}

/** Replaces DOMExceptions in the clone itself, because nothing else refers to the clone. */
function replaceExceptions<T>(clone: T): T {
  const sent = new Map<unknown, SentException>()
  const toSent = (part: unknown): unknown => {
    if (!(part instanceof DOMException)) return part
    const known = sent.get(part) ?? SentException.fromException(part)
    sent.set(part, known)
    return known
  }
  const waiting: unknown[] = [clone]
  const seen = new Set<unknown>()
  for (let current = waiting.pop(); current !== undefined; current = waiting.pop()) {
    if (typeof current !== 'object' || current === null || seen.has(current)) continue
    seen.add(current)
    for (const [part] of partsOf(current)) if (part !== undefined) waiting.push(part)
    mapParts(current, toSent)
  }
  return toSent(clone) as T
}

function mapParts(value: object, map: (part: unknown) => unknown): void {
  if (types.isMap(value)) {
    const entries = [...value]
    value.clear()
    for (const [key, part] of entries) value.set(map(key), map(part))
  } else if (types.isSet(value)) {
    const parts = [...value]
    value.clear()
    for (const part of parts) value.add(map(part))
  } else if (types.isNativeError(value)) {
    if (value.cause instanceof DOMException) value.cause = map(value.cause)
  } else if (!ArrayBuffer.isView(value)) {
    for (const [key, part] of Object.entries(value)) {
      if (part instanceof DOMException) Reflect.set(value, key, map(part))
    }
  }
}

function isProcessBound(value: object): boolean {
  if (types.isSharedArrayBuffer(value)) return true
  if (ArrayBuffer.isView(value)) return types.isSharedArrayBuffer(value.buffer)
  if (Array.isArray(value) || isBuiltIn(value)) return false
  const prototype: unknown = Object.getPrototypeOf(value)
  if (prototype === null || prototype === Object.prototype) return false
  // The clone of a class instance is a plain object, unless the class is one of Node's own.
  const clonePrototype: unknown = Object.getPrototypeOf(structuredClone(value))
  return clonePrototype !== Object.prototype
}

const isBuiltIn = (value: object): boolean =>
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
  } else if (types.isNativeError(value)) {
    // The clone of an error keeps only this nested value.
    yield [value.cause, '.cause']
  } else if (!ArrayBuffer.isView(value) && !types.isAnyArrayBuffer(value)) {
    for (const [key, part] of Object.entries(value)) {
      yield [part, /^[\w$]+$/.test(key) ? `.${key}` : `[${JSON.stringify(key)}]`]
    }
  }
}

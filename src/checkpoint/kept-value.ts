/** Values of tasks as bytes, for a later run: only those that come back equal. */

import { isDeepStrictEqual, types } from 'node:util'
import { deserialize, serialize } from 'node:v8'

/** A value that was kept, which may be `undefined`. */
export interface KeptValue {
  readonly value: unknown
}

/** `null` for a value that would come back as something else, such as an instance of a class. */
export function toBytes(value: unknown): Uint8Array | null {
  try {
    return comesBackEqual(value) ? serialize(value) : null
  } catch {
    return null
  }
}

/** The bytes become part of the value: the caller must not use them again. `null`: unreadable. */
export function fromBytes(bytes: Uint8Array): KeptValue | null {
  try {
    return { value: deserialize(bytes) as unknown }
  } catch {
    return null
  }
}

/** V8 writes deeper values, but the stack of a process may not be enough to read them back. */
const deepest = 500

/** Serializing an instance keeps its fields but not its class. Functions and symbols throw. */
function comesBackEqual(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return true
  const seen = new Set<object>()
  // In the order in which V8 writes them: an object is as deep as where it comes first.
  const waiting: { readonly part: object; readonly depth: number }[] = [{ part: value, depth: 1 }]
  for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
    const { part, depth } = next
    if (seen.has(part)) continue
    seen.add(part)
    const parts = partsOf(part)
    if (parts === null || depth > deepest) return false
    for (let at = parts.length - 1; at >= 0; at--) {
      const inner = parts[at]
      if (typeof inner === 'object' && inner !== null) {
        waiting.push({ part: inner, depth: depth + 1 })
      }
    }
  }
  return true
}

const none: readonly never[] = []

/** What has to come back equal as well; `null` when the object itself does not. */
function partsOf(value: object): readonly unknown[] | null {
  const prototype: unknown = Object.getPrototypeOf(value)
  if (Object.getOwnPropertySymbols(value).length > 0) return null
  if (ArrayBuffer.isView(value)) return isOwnView(value, prototype) ? none : null
  if (Array.isArray(value)) {
    return prototype === Array.prototype && hidesOnly(value, 1) ? Object.values(value) : null
  }
  if (prototype === Object.prototype) return isPlain(value) ? Object.values(value) : null
  const parts = partsOfKind(value, prototype)
  return parts !== null && hasNoFields(value) ? parts : null
}

function partsOfKind(value: object, prototype: unknown): readonly unknown[] | null {
  if (types.isMap(value)) return prototype === Map.prototype ? [...value].flat() : null
  if (types.isSet(value)) return prototype === Set.prototype ? [...value] : null
  if (types.isDate(value)) return prototype === Date.prototype ? none : null
  if (types.isArrayBuffer(value)) return prototype === ArrayBuffer.prototype ? none : null
  return null
}

/** What pretends to be an object of another kind is not plain, and neither are boxed values. */
const isPlain = (value: object): boolean =>
  kindOf(value) === '[object Object]' &&
  hidesOnly(value, 0) &&
  !types.isProxy(value) &&
  !types.isBoxedPrimitive(value) &&
  !types.isMap(value) &&
  !types.isSet(value) &&
  !types.isAnyArrayBuffer(value) &&
  !types.isPromise(value)

const kindOf = (value: object): string => Object.prototype.toString.call(value)

/** Whether no more than so many properties are not enumerable: those do not come back. */
const hidesOnly = (value: object, count: number): boolean =>
  Object.getOwnPropertyNames(value).length === Object.keys(value).length + count

const hasNoFields = (value: object): boolean => Object.getOwnPropertyNames(value).length === 0

/** Memory that several threads share cannot come back, and neither can fields of its own. */
const isOwnView = (value: ArrayBufferView, prototype: unknown): boolean =>
  !types.isSharedArrayBuffer(value.buffer) &&
  (prototype === Buffer.prototype || prototype === plainPrototypeOf(value)) &&
  hasNoFieldsBesides(value)

/** Compared with a view of the same bytes: a list of its fields would name every byte, too. */
function hasNoFieldsBesides(value: ArrayBufferView): boolean {
  if (types.isDataView(value)) return hasNoFields(value)
  const { buffer, byteOffset } = value
  const { length, constructor } = value as Uint8Array
  if (Buffer.isBuffer(value)) {
    return isDeepStrictEqual(value, Buffer.from(buffer as ArrayBuffer, byteOffset, length))
  }
  const Plain = constructor as Uint8ArrayConstructor
  return isDeepStrictEqual(value, new Plain(buffer as ArrayBuffer, byteOffset, length))
}

const plainPrototypeOf = (value: ArrayBufferView): unknown =>
  types.isDataView(value)
    ? DataView.prototype
    : (globalThis as unknown as Record<string, { readonly prototype: unknown } | undefined>)[
        (value as Uint8Array)[Symbol.toStringTag]
      ]?.prototype

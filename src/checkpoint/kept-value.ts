/** Serializes results of tasks for a later run, if deserializing would restore the same value. */

import { isDeepStrictEqual, types } from 'node:util'
import { DefaultDeserializer, serialize } from 'node:v8'

/** A stored value, which may be `undefined`. */
export interface KeptValue {
  readonly value: unknown
}

/** Serializes a value. Returns `null` if deserializing would not restore the same value. */
export function serializeValue(value: unknown): Uint8Array | null {
  try {
    return isRestorable(value) ? serialize(value) : null
  } catch {
    return null
  }
}

/** Deserializes a value. The value shares no memory with the bytes. Returns `null` on failure. */
export function deserializeValue(bytes: Uint8Array): KeptValue | null {
  try {
    const reader = new ValueReader(bytes)
    reader.readHeader()
    return { value: reader.readValue() as unknown }
  } catch {
    return null
  }
}

/** Node documents this method for subclasses, but Node's type definitions lack it. */
const readHostObject = Reflect.get(DefaultDeserializer.prototype, '_readHostObject') as (
  this: DefaultDeserializer,
) => ArrayBufferView

/** Copies the bytes of each view, because Node's views share memory with the input. */
class ValueReader extends DefaultDeserializer {
  _readHostObject(): ArrayBufferView {
    const view = readHostObject.call(this)
    const { buffer, byteOffset, byteLength } = view
    const copiedBuffer = (buffer as ArrayBuffer).slice(byteOffset, byteOffset + byteLength)
    if (Buffer.isBuffer(view)) return Buffer.from(copiedBuffer)
    return new (view.constructor as new (bytes: ArrayBuffer) => ArrayBufferView)(copiedBuffer)
  }
}

/** The maximum depth. V8 serializes deeper values, but may overflow the stack on deserializing. */
const maxDepth = 500

/** Whether deserializing restores the same value. A class instance would lose its class. */
function isRestorable(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return true
  const seen = new Set<object>()
  const ranges = new Map<ArrayBufferLike, ByteRange[]>()
  // A stack gives the same order of visits as in V8. The order matters, because it determines the
  // depth of a repeated object.
  const waiting: { readonly part: object; readonly depth: number }[] = [{ part: value, depth: 1 }]
  for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
    const { part, depth } = next
    if (seen.has(part)) continue
    seen.add(part)
    const parts = listParts(part)
    if (parts === null || depth > maxDepth) return false
    if (ArrayBuffer.isView(part)) addRange(ranges, part)
    else if (types.isArrayBuffer(part)) addRange(ranges, new Uint8Array(part))
    for (let at = parts.length - 1; at >= 0; at--) {
      const inner = parts[at]
      if (typeof inner === 'object' && inner !== null) {
        waiting.push({ part: inner, depth: depth + 1 })
      }
    }
  }
  return [...ranges.values()].every(areDisjoint)
}

type ByteRange = readonly [from: number, to: number]

function addRange(ranges: Map<ArrayBufferLike, ByteRange[]>, view: ArrayBufferView): void {
  const { buffer, byteOffset, byteLength } = view
  const known = ranges.get(buffer)
  const range: ByteRange = [byteOffset, byteOffset + byteLength]
  if (known === undefined) ranges.set(buffer, [range])
  else known.push(range)
}

/** Whether no views overlap. Overlapping views would not share memory after deserialization. */
const areDisjoint = (ranges: ByteRange[]): boolean =>
  ranges.length === 1 ||
  ranges
    .toSorted(([a], [b]) => a - b)
    .every(([from], at, sorted) => at === 0 || (sorted[at - 1]?.[1] ?? 0) <= from)

const noParts: readonly never[] = []

/**
 * Returns the values that an object contains; `null` if deserializing would not restore the object.
 */
function listParts(value: object): readonly unknown[] | null {
  const prototype: unknown = Object.getPrototypeOf(value)
  if (Object.getOwnPropertySymbols(value).length > 0) return null
  if (ArrayBuffer.isView(value)) return isPlainView(value, prototype) ? noParts : null
  if (Array.isArray(value)) {
    return prototype === Array.prototype && hasHiddenFields(value, 1) ? Object.values(value) : null
  }
  if (prototype === Object.prototype) return isPlain(value) ? listFieldValues(value) : null
  const parts = listBuiltInParts(value, prototype)
  return parts !== null && hasNoFields(value) ? parts : null
}

/** Returns the values of the fields; `null` if a field is a getter, whose value may vary. */
function listFieldValues(value: object): readonly unknown[] | null {
  const fields: unknown[] = []
  for (const name of Object.keys(value)) {
    const field = Object.getOwnPropertyDescriptor(value, name)
    if (field === undefined || !('value' in field)) return null
    fields.push(field.value)
  }
  return fields
}

function listBuiltInParts(value: object, prototype: unknown): readonly unknown[] | null {
  if (types.isMap(value)) return prototype === Map.prototype ? [...value].flat() : null
  if (types.isSet(value)) return prototype === Set.prototype ? [...value] : null
  if (types.isDate(value)) return prototype === Date.prototype ? noParts : null
  if (types.isArrayBuffer(value)) {
    return prototype === ArrayBuffer.prototype && !value.resizable ? noParts : null
  }
  return null
}

/**
 * Whether the object is plain. Excludes boxed primitives and other objects that only look plain.
 */
const isPlain = (value: object): boolean =>
  Object.prototype.toString.call(value) === '[object Object]' &&
  hasHiddenFields(value, 0) &&
  !types.isProxy(value) &&
  !types.isBoxedPrimitive(value) &&
  !types.isMap(value) &&
  !types.isSet(value) &&
  !types.isAnyArrayBuffer(value) &&
  !types.isPromise(value)

/** Whether exactly `count` properties are not enumerable. Serializing loses these properties. */
const hasHiddenFields = (value: object, count: number): boolean =>
  Object.getOwnPropertyNames(value).length === Object.keys(value).length + count

const hasNoFields = (value: object): boolean => Object.getOwnPropertyNames(value).length === 0

const isPlainView = (value: ArrayBufferView, prototype: unknown): boolean =>
  types.isArrayBuffer(value.buffer) &&
  !value.buffer.resizable &&
  (prototype === Buffer.prototype || prototype === builtInPrototypeOf(value)) &&
  hasOnlyBytes(value)

/**
 * Whether a view has no properties besides its bytes. Compares it with a new view of the same
 * bytes, because listing its keys would list the index of every byte.
 */
function hasOnlyBytes(value: ArrayBufferView): boolean {
  if (types.isDataView(value)) return hasNoFields(value)
  const { buffer, byteOffset } = value
  const { length, constructor } = value as Uint8Array
  if (Buffer.isBuffer(value)) {
    return isDeepStrictEqual(value, Buffer.from(buffer as ArrayBuffer, byteOffset, length))
  }
  const Plain = constructor as Uint8ArrayConstructor
  return isDeepStrictEqual(value, new Plain(buffer as ArrayBuffer, byteOffset, length))
}

const builtInPrototypeOf = (value: ArrayBufferView): unknown =>
  types.isDataView(value)
    ? DataView.prototype
    : (globalThis as unknown as Record<string, { readonly prototype: unknown } | undefined>)[
        (value as Uint8Array)[Symbol.toStringTag]
      ]?.prototype

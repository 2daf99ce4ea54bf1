/** Serializes task results for a later run, if they deserialize to an equal value. */

import { isDeepStrictEqual, types } from 'node:util'
import { DefaultDeserializer, serialize } from 'node:v8'

/** A stored value, which may be `undefined`. */
export interface KeptValue {
  readonly value: unknown
}

/** `null` for a value that would not deserialize to an equal one, such as a class instance. */
export function toBytes(value: unknown): Uint8Array | null {
  try {
    return comesBackEqual(value) ? serialize(value) : null
  } catch {
    return null
  }
}

/** The returned value shares no memory with the bytes. `null` if they cannot be deserialized. */
export function fromBytes(bytes: Uint8Array): KeptValue | null {
  try {
    const reader = new ValueReader(bytes)
    reader.readHeader()
    return { value: reader.readValue() as unknown }
  } catch {
    return null
  }
}

/** Documented for subclasses, but missing from Node's type definitions. */
const readView = Reflect.get(DefaultDeserializer.prototype, '_readHostObject') as (
  this: DefaultDeserializer,
) => ArrayBufferView

/** Copies the bytes of each view: Node's views would share the buffer that is read from. */
class ValueReader extends DefaultDeserializer {
  _readHostObject(): ArrayBufferView {
    const view = readView.call(this)
    const { buffer, byteOffset, byteLength } = view
    const own = (buffer as ArrayBuffer).slice(byteOffset, byteOffset + byteLength)
    if (Buffer.isBuffer(view)) return Buffer.from(own)
    return new (view.constructor as new (bytes: ArrayBuffer) => ArrayBufferView)(own)
  }
}

/** V8 can serialize deeper values, but deserializing them may overflow the stack. */
const maxDepth = 500

/** False for class instances: serializing keeps their fields but not their class. */
function comesBackEqual(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return true
  const seen = new Set<object>()
  const ranges = new Map<ArrayBufferLike, Range[]>()
  // In the order of V8's serializer, which determines the depth of an object that occurs twice.
  const waiting: { readonly part: object; readonly depth: number }[] = [{ part: value, depth: 1 }]
  for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
    const { part, depth } = next
    if (seen.has(part)) continue
    seen.add(part)
    const parts = partsOf(part)
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
  return [...ranges.values()].every(areApart)
}

/** A range of bytes in a buffer; the end is exclusive. */
type Range = readonly [from: number, to: number]

function addRange(ranges: Map<ArrayBufferLike, Range[]>, view: ArrayBufferView): void {
  const { buffer, byteOffset, byteLength } = view
  const known = ranges.get(buffer)
  const range: Range = [byteOffset, byteOffset + byteLength]
  if (known === undefined) ranges.set(buffer, [range])
  else known.push(range)
}

/** Overlapping views of one buffer would no longer share memory after deserialization. */
const areApart = (ranges: Range[]): boolean =>
  ranges.length === 1 ||
  ranges
    .toSorted(([a], [b]) => a - b)
    .every(([from], at, sorted) => at === 0 || (sorted[at - 1]?.[1] ?? 0) <= from)

const none: readonly never[] = []

/** Nested values, which must be serializable as well; `null` if the object itself is not. */
function partsOf(value: object): readonly unknown[] | null {
  const prototype: unknown = Object.getPrototypeOf(value)
  if (Object.getOwnPropertySymbols(value).length > 0) return null
  if (ArrayBuffer.isView(value)) return isOwnView(value, prototype) ? none : null
  if (Array.isArray(value)) {
    return prototype === Array.prototype && hidesOnly(value, 1) ? Object.values(value) : null
  }
  if (prototype === Object.prototype) return isPlain(value) ? fieldsOf(value) : null
  const parts = partsOfKind(value, prototype)
  return parts !== null && hasNoFields(value) ? parts : null
}

/** Returns `null` if a field is a getter, which may return a different value each time. */
function fieldsOf(value: object): readonly unknown[] | null {
  const fields: unknown[] = []
  for (const name of Object.keys(value)) {
    const field = Object.getOwnPropertyDescriptor(value, name)
    if (field === undefined || !('value' in field)) return null
    fields.push(field.value)
  }
  return fields
}

function partsOfKind(value: object, prototype: unknown): readonly unknown[] | null {
  if (types.isMap(value)) return prototype === Map.prototype ? [...value].flat() : null
  if (types.isSet(value)) return prototype === Set.prototype ? [...value] : null
  if (types.isDate(value)) return prototype === Date.prototype ? none : null
  if (types.isArrayBuffer(value)) {
    return prototype === ArrayBuffer.prototype && !value.resizable ? none : null
  }
  return null
}

/** Excludes boxed primitives and other objects that only look like plain ones. */
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

/** Whether exactly `count` properties are non-enumerable; serializing loses such properties. */
const hidesOnly = (value: object, count: number): boolean =>
  Object.getOwnPropertyNames(value).length === Object.keys(value).length + count

const hasNoFields = (value: object): boolean => Object.getOwnPropertyNames(value).length === 0

/** Excludes views of shared or resizable memory: serializing loses that, and any own properties. */
const isOwnView = (value: ArrayBufferView, prototype: unknown): boolean =>
  types.isArrayBuffer(value.buffer) &&
  !value.buffer.resizable &&
  (prototype === Buffer.prototype || prototype === plainPrototypeOf(value)) &&
  hasNoFieldsBesides(value)

/** Compares with a new view of the same bytes, because listing its keys would list every byte. */
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

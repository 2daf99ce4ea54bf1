/** Converts any value to frozen plain JSON, so that events can be shared, kept and written. */

import { types } from 'node:util'
import { tryRead } from './errors.ts'

/** A JSON value, read-only. */
export type JsonValue =
  | string
  | number
  | boolean
  | null
  | readonly JsonValue[]
  | { readonly [key: string]: JsonValue }

/** A JSON object, such as the attributes of an event. */
export type JsonObject = { readonly [key: string]: JsonValue }

const maxStringLength = 131_072
const maxDepth = 32
/** Limits per copy, which also limit the length of a line in the checkpoint file. */
const maxValues = 100_000
const maxCharacters = 8_388_608

export const emptyAttributes: JsonObject = Object.freeze({})

/** Whether a value is an object, but not an array. */
export const isPlainObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

export const isJsonText = (text: string): boolean =>
  tryRead(() => JSON.parse(text) as unknown) !== undefined

/** A frozen JSON copy of an object. Never throws and never changes the original. */
export function toJsonObject(value: object): JsonObject {
  const copy = toJsonValue(value)
  if (typeof copy === 'object' && copy !== null && !Array.isArray(copy)) return copy as JsonObject
  return Object.freeze({ value: copy })
}

/** Returns plain JSON, deeply frozen. Copies parts that are not frozen. */
export function toFrozen<Value extends JsonValue>(value: Value): Value {
  if (typeof value !== 'object' || value === null) return value
  if (Array.isArray(value)) {
    const items = value.map((item: JsonValue) => toFrozen(item))
    const isSame = Object.isFrozen(value) && items.every((item, at) => item === value[at])
    return isSame ? value : (Object.freeze(items) as unknown as Value)
  }
  const parts = Object.entries(value as JsonObject)
  const entries = parts.map(([key, part]) => [key, toFrozen(part)] as const)
  const isSame = Object.isFrozen(value) && entries.every(([, part], at) => part === parts[at]?.[1])
  return isSame ? value : (Object.freeze(Object.fromEntries(entries)) as Value)
}

/** A frozen JSON copy of any value. Parts that JSON cannot represent become marker strings. */
export function toJsonValue(value: unknown): JsonValue {
  return new JsonCopier().copy(value, 0)
}

/** Like `toJsonValue`, for several values that share one set of limits. */
export function createJsonCopier(): (value: unknown) => JsonValue {
  const copier = new JsonCopier()
  return (value) => copier.copy(value, 0)
}

/**
 * Returns JSON from which `JSON.parse` restores an equal value; `null` if there is none, as for a
 * Map, a Date, `undefined`, NaN or a cycle, or if it exceeds `maxBytes`. Never throws.
 */
export function toExactJson(value: unknown, maxBytes: number): string | null {
  try {
    if (!isExactJson(value, maxBytes)) return null
    const text = JSON.stringify(value)
    return Buffer.byteLength(text) <= maxBytes ? text : null
  } catch {
    // A proxy or getter has thrown, or the nesting is too deep for JSON.stringify.
    return null
  }
}

/**
 * Whether JSON can represent the value. Stops at the first part that it cannot represent, or when
 * the value is too large.
 */
function isExactJson(root: unknown, maxBytes: number): boolean {
  const waiting: unknown[] = [root]
  // Every value uses at least one byte, so the loop ends even for a cycle.
  let bytesLeft = maxBytes - 1
  while (waiting.length > 0) {
    const value = waiting.pop()
    if (typeof value === 'string') bytesLeft -= value.length + 1
    if (bytesLeft < 0) return false
    if (typeof value !== 'object' || value === null) {
      if (!isExactPrimitive(value)) return false
    } else {
      const parts = listExactParts(value, bytesLeft)
      if (parts === null) return false
      bytesLeft -= parts.length
      for (const part of parts) waiting.push(part)
    }
  }
  return true
}

/** Whether JSON can represent the primitive. It cannot represent `-0`, NaN and infinity. */
const isExactPrimitive = (value: unknown): boolean =>
  value === null ||
  typeof value === 'string' ||
  typeof value === 'boolean' ||
  (Number.isFinite(value) && !Object.is(value, -0))

/** The parts of a plain array or object, including keys; `null` for any other object. */
function listExactParts(value: object, max: number): unknown[] | null {
  if (types.isProxy(value) || 'toJSON' in value) return null
  const prototype: unknown = Object.getPrototypeOf(value)
  if (Array.isArray(value)) {
    const isPlain = prototype === Array.prototype && value.length <= max
    return isPlain && Reflect.ownKeys(value).length === value.length + 1 ? value : null
  }
  if (prototype !== Object.prototype) return null
  const parts: unknown[] = []
  for (const key of Reflect.ownKeys(value)) {
    const own = Object.getOwnPropertyDescriptor(value, key)
    if (typeof key === 'symbol' || own?.enumerable !== true || !('value' in own)) return null
    if (parts.push(key, own.value) > max) return null
  }
  return parts
}

class JsonCopier {
  readonly #path = new Set<object>()
  #valuesLeft = maxValues
  #charactersLeft = maxCharacters

  copy(value: unknown, depth: number): JsonValue {
    this.#valuesLeft--
    switch (typeof value) {
      case 'string':
        return this.#copyText(value)
      case 'number':
        return Number.isFinite(value) ? value : null
      case 'boolean':
        return value
      case 'undefined':
        return null
      case 'object':
        return value === null ? null : this.#copyObject(value, depth)
      default:
        return unserializable(typeof value === 'bigint' ? 'BigInt' : typeof value)
    }
  }

  get #isFull(): boolean {
    return this.#valuesLeft <= 0 || this.#charactersLeft <= 0
  }

  #copyText(text: string): string {
    const kept = text.length > maxStringLength ? truncate(text) : text
    this.#charactersLeft -= kept.length
    return this.#charactersLeft < 0 ? tooLarge : kept
  }

  #copyObject(value: object, depth: number): JsonValue {
    if (this.#path.has(value)) return unserializable('cycle')
    if (depth >= maxDepth) return unserializable('nested too deeply')
    this.#path.add(value)
    try {
      const shown = applyToJson(value)
      if (typeof shown !== 'object' || shown === null) return this.copy(shown, depth + 1)
      if (Array.isArray(shown)) return this.#copyItems(shown, depth)
      return this.#copyEntries(shown as Record<string, unknown>, depth)
    } catch {
      return unserializable('throws')
    } finally {
      this.#path.delete(value)
    }
  }

  #copyItems(items: readonly unknown[], depth: number): JsonValue {
    const copy: JsonValue[] = []
    const { length } = items
    for (let at = 0; at < length; at++) {
      if (this.#isFull) {
        copy.push(tooLarge)
        break
      }
      copy.push(this.#copyPart(() => items[at], depth) ?? this.copy(null, depth))
    }
    return Object.freeze(copy)
  }

  #copyEntries(entries: Readonly<Record<string, unknown>>, depth: number): JsonValue {
    const copy: Record<string, JsonValue> = {}
    for (const name of Object.keys(entries)) {
      const isFull = this.#isFull
      const key = this.#copyText(name)
      const part = isFull ? tooLarge : this.#copyPart(() => entries[name], depth)
      if (part === undefined) continue
      // Assigning to `__proto__` would set the prototype instead of creating a key.
      if (key === '__proto__') Object.defineProperty(copy, key, { value: part, enumerable: true })
      else copy[key] = part
      if (isFull) break
    }
    return Object.freeze(copy)
  }

  /** Copies a part. If its getter throws, only this part is replaced by a marker string. */
  #copyPart(read: () => unknown, depth: number): JsonValue | undefined {
    let part: unknown
    try {
      part = read()
    } catch {
      return unserializable('throws')
    }
    return part === undefined ? undefined : this.copy(part, depth + 1)
  }
}

/** Returns what `JSON.stringify` would serialize: applies `toJSON` and unboxes primitives. */
function applyToJson(value: object): unknown {
  const shown: unknown =
    'toJSON' in value && typeof value.toJSON === 'function' ? value.toJSON() : value
  if (types.isNumberObject(shown)) return Number(shown)
  if (types.isStringObject(shown)) return String(shown)
  if (types.isBooleanObject(shown)) return Boolean.prototype.valueOf.call(shown)
  if (types.isBigIntObject(shown)) return BigInt.prototype.valueOf.call(shown)
  return shown
}

const unserializable = (what: string): string => `[unserializable: ${what}]`
/** The text that replaces a part that exceeds a limit. */
export const tooLarge = unserializable('too large')

const truncationMark = /^\.\.\.\[truncated \d+\]$/

/** Truncates long text, but not a second time, because an error may be copied several times. */
function truncate(text: string): string {
  const isTruncated =
    text.length < maxStringLength + 40 && truncationMark.test(text.slice(maxStringLength))
  if (isTruncated) return text
  return `${text.slice(0, maxStringLength).toWellFormed()}...[truncated ${text.length}]`
}

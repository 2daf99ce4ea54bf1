/**
 * Turns any value into frozen plain JSON, so that an event can be shared, kept and written without
 * surprise.
 */

export type JsonValue =
  | string
  | number
  | boolean
  | null
  | readonly JsonValue[]
  | { readonly [key: string]: JsonValue }

export type JsonObject = { readonly [key: string]: JsonValue }

const longestString = 131_072
const deepest = 32
const mostNodes = 100_000

export const emptyAttributes: JsonObject = Object.freeze({})

/** A frozen copy of an object's JSON form. Never throws, never touches the original. */
export function toJsonObject(value: object): JsonObject {
  const copy = toJsonValue(value)
  if (typeof copy === 'object' && copy !== null && !Array.isArray(copy)) return copy as JsonObject
  return Object.freeze({ value: copy })
}

/** A frozen copy of any value's JSON form; parts that JSON cannot show become marker strings. */
export function toJsonValue(value: unknown): JsonValue {
  return new Copier().copy(value, 0)
}

class Copier {
  readonly #path = new Set<object>()
  #nodes = 0

  copy(value: unknown, depth: number): JsonValue {
    switch (typeof value) {
      case 'string':
        return value.length > longestString ? truncated(value) : value
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

  #copyObject(value: object, depth: number): JsonValue {
    if (this.#path.has(value)) return unserializable('cycle')
    if (depth >= deepest) return unserializable('nested too deeply')
    if (++this.#nodes > mostNodes) return unserializable('too large')
    this.#path.add(value)
    try {
      return this.#copyParts(value, depth)
    } catch (error) {
      return unserializable(error instanceof RangeError ? 'nested too deeply' : 'throws')
    } finally {
      this.#path.delete(value)
    }
  }

  #copyParts(value: object, depth: number): JsonValue {
    if (Array.isArray(value)) {
      return Object.freeze(value.map((item: unknown) => this.copy(item, depth + 1)))
    }
    if ('toJSON' in value && typeof value.toJSON === 'function') {
      return this.copy((value as { toJSON(): unknown }).toJSON(), depth + 1)
    }
    const copy: Record<string, JsonValue> = {}
    for (const key of Object.keys(value)) {
      const part = this.#readPart(value as Record<string, unknown>, key)
      if (part === undefined) continue
      const plain = part instanceof Failure ? part.marker : this.copy(part, depth + 1)
      // An assignment would change the prototype instead of making a key.
      if (key === '__proto__') Object.defineProperty(copy, key, { value: plain, enumerable: true })
      else copy[key] = plain
    }
    return Object.freeze(copy)
  }

  /** One throwing getter spoils its own key only. */
  #readPart(value: Record<string, unknown>, key: string): unknown {
    try {
      return value[key]
    } catch {
      return new Failure(unserializable('throws'))
    }
  }
}

class Failure {
  readonly marker: string
  constructor(marker: string) {
    this.marker = marker
  }
}

const unserializable = (what: string): string => `[unserializable: ${what}]`

function truncated(text: string): string {
  return `${text.slice(0, longestString).toWellFormed()}...[truncated ${text.length}]`
}

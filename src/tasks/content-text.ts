/**
 * Converts values to text that is the same for the same content, even across processes. Used for
 * cache keys and to compare the inputs of tasks. Values cannot be restored from the text.
 */

import { hash } from 'node:crypto'
import { isDeepStrictEqual, types } from 'node:util'
import { ValueError } from '../foundation/errors.ts'

const maxDepth = 1000
const maxContainers = 1_000_000

/** Prefixes each word with its length, so that different lists never give the same text. */
export const joinPrefixed = (words: readonly string[]): string =>
  words.map((word) => `${word.length}:${word}`).join('')

/**
 * SHA-256 in hex. Text with lone surrogates is hashed as UTF-16, because UTF-8 cannot encode them.
 */
export const digestOf = (text: string): string =>
  text.isWellFormed()
    ? hash('sha256', text, 'hex')
    : hash('sha256', Buffer.from(text, 'utf16le'), 'hex')

/**
 * Returns a text that replaces the content of an object; `undefined` to use the content.
 */
export type ReplacementText = (value: object) => string | undefined

export interface ContentOptions {
  readonly textOf?: ReplacementText
  /** Whether the order of keys matters, as it does for functions, which can observe it. */
  readonly isOrdered?: boolean
}

/**
 * Converts a value to text. Throws a `ValueError` with the path of a part that cannot be compared.
 */
export function contentText(path: string, value: unknown, options: ContentOptions = {}): string {
  if (typeof value !== 'object' || value === null) return primitiveText(value, path)
  return flatText(path, value) ?? new ContentWriter(options).write(path, value)
}

/** Stands for a hole of an array. A hole differs from an item that is `undefined`. */
const hole = '4:hole'
const missing = Symbol('missing')

/**
 * Returns the same as `ContentWriter`, but faster, for an array of primitives; otherwise `null`.
 */
function flatText(path: string, value: object): string | null {
  if (!isPlainArray(value) || hasFields(value)) return null
  const length = String(value.length)
  let text = `5:array${length.length}:${length}`
  for (let at = 0; at < value.length; at++) {
    const item = value[at]
    if (!isFlat(item)) return null
    text += primitiveText(item, path)
  }
  return text
}

interface PendingValue {
  readonly value: unknown
  readonly path: string
  readonly depth: number
}

/** Iterative, so that deep nesting does not overflow the call stack. */
class ContentWriter {
  readonly #parts: string[] = []
  readonly #pending: PendingValue[] = []
  readonly #options: ContentOptions
  /**
   * Objects that were already written, numbered. A second reference to an object differs from a
   * copy of the object, because a function can tell them apart.
   */
  readonly #seen = new Map<object, number>()

  constructor(options: ContentOptions) {
    this.#options = options
  }

  write(path: string, value: unknown): string {
    this.#pending.push({ value, path, depth: 0 })
    for (let next = this.#pending.pop(); next !== undefined; next = this.#pending.pop()) {
      this.#writeOne(next)
    }
    return this.#parts.join('')
  }

  #writeOne({ value, path, depth }: PendingValue): void {
    if (value === missing) return void this.#parts.push(hole)
    if (typeof value !== 'object' || value === null) {
      this.#parts.push(primitiveText(value, path))
      return
    }
    const text = this.#options.textOf?.(value)
    if (text !== undefined) {
      this.#parts.push(text)
      return
    }
    const knownNumber = this.#seen.get(value)
    if (knownNumber !== undefined) return this.#pushWords('seen', String(knownNumber))
    if (depth > maxDepth) throw notComparable(path, `a value nested more than ${maxDepth} deep`)
    if (this.#seen.size >= maxContainers)
      throw notComparable(path, `a value of more than ${maxContainers} objects`)
    this.#seen.set(value, this.#seen.size)
    this.#writeObject(value, path, depth)
  }

  #writeObject(value: object, path: string, depth: number): void {
    const prototype: unknown = Object.getPrototypeOf(value)
    if (prototype === Object.prototype) return this.#writePlain('object', value, path, depth)
    if (prototype === null) return this.#writePlain('bare object', value, path, depth)
    if (isPlainArray(value)) return this.#writeArray(value, path, depth)
    if (ArrayBuffer.isView(value)) return this.#writeBytes(value, path)
    if (Reflect.ownKeys(value).length > 0) throw notComparable(path, describeInstance(value))
    if (types.isDate(value) && prototype === Date.prototype) {
      return this.#pushWords('date', String(value.getTime()))
    }
    if (types.isSet(value) && prototype === Set.prototype) {
      return this.#writeItems('set', [...value], path, depth)
    }
    if (types.isMap(value) && prototype === Map.prototype) {
      return this.#writeItems('map', [...value], path, depth)
    }
    throw notComparable(path, `an instance of ${className(value)}`)
  }

  #writePlain(kind: string, value: object, path: string, depth: number): void {
    const names = Object.keys(value)
    if (hasHiddenFields(value, names.length)) throw notComparable(path, hiddenFields)
    if (this.#options.isOrdered !== true) names.sort()
    this.#pushWords(kind, String(names.length), ...names)
    this.#pushValues(names, (name) => readField(value, name, path), path, depth)
  }

  /** Arrays may have fields besides their items, such as `index` in the result of `exec`. */
  #writeArray(items: readonly unknown[], path: string, depth: number): void {
    if (!hasFields(items)) return this.#writeItems('array', items, path, depth)
    const names = Object.keys(items)
    if (hasHiddenFields(items, names.length + 1)) throw notComparable(path, hiddenFields)
    const fields = names.filter((name) => !isIndex(name))
    const values = fields.map((name) => [name, readField(items, name, path)] as const)
    const parts = [[...items], Object.fromEntries(values)]
    this.#writeItems('array with fields', parts, path, depth)
  }

  #writeBytes(value: ArrayBufferView, path: string): void {
    const kind = viewClassName(value)
    if (kind === null) throw notComparable(path, describeInstance(value))
    const bytes = new Uint8Array(value.buffer, value.byteOffset, value.byteLength)
    this.#pushWords('bytes', kind, String(value.byteLength), hash('sha256', bytes, 'hex'))
  }

  #pushWords(...words: readonly string[]): void {
    this.#parts.push(joinPrefixed(words))
  }

  #writeItems(kind: string, items: readonly unknown[], path: string, depth: number): void {
    this.#pushWords(kind, String(items.length))
    this.#pushValues([...items.keys()], (at) => (at in items ? items[at] : missing), path, depth)
  }

  /** Pushes the values in reverse, so that the first value is written next. */
  #pushValues<K extends string | number>(
    keys: readonly K[],
    valueOf: (key: K) => unknown,
    path: string,
    depth: number,
  ): void {
    for (const key of keys.toReversed()) {
      this.#pending.push({ value: valueOf(key), path: `${path}.${key}`, depth: depth + 1 })
    }
  }
}

function primitiveText(value: unknown, path: string): string {
  if (typeof value === 'function' || typeof value === 'symbol') {
    throw notComparable(path, `a ${typeof value}`)
  }
  const text = Object.is(value, -0) ? '-0' : String(value)
  const type = value === null ? 'null' : typeof value
  return `${type.length}:${type}${text.length}:${text}`
}

const flatTypes: ReadonlySet<string> = new Set(['string', 'number', 'boolean', 'bigint'])

/** Whether `primitiveText` is enough. It is not for `undefined`, which may stand for a hole. */
const isFlat = (item: unknown): boolean => item === null || flatTypes.has(typeof item)

const isPlainArray = (value: object): value is readonly unknown[] =>
  Array.isArray(value) && Object.getPrototypeOf(value) === Array.prototype

/**
 * Whether an array has fields besides its items. `ownKeys` lists them after `length`.
 */
const hasFields = (items: readonly unknown[]): boolean => Reflect.ownKeys(items).at(-1) !== 'length'

const isIndex = (name: string): boolean => /^(?:0|[1-9]\d*)$/.test(name)

/** Whether there are symbol keys or non-enumerable fields, which `Object.keys` omits. */
const hasHiddenFields = (value: object, count: number): boolean =>
  Object.getOwnPropertySymbols(value).length > 0 || Object.getOwnPropertyNames(value).length > count

/** Reads a field. Rejects getters, because they may return a different value each time. */
function readField(value: object, name: string, path: string): unknown {
  const field = Object.getOwnPropertyDescriptor(value, name)
  if (field !== undefined && 'value' in field) return field.value as unknown
  throw notComparable(`${path}.${name}`, 'a getter')
}

/**
 * The name of the built-in view class; `null` for a subclass, a view with fields of its own, or a
 * view of shared memory.
 */
function viewClassName(value: ArrayBufferView): string | null {
  const { buffer, byteOffset } = value
  const Plain = Buffer.isBuffer(value)
    ? Buffer
    : bufferViewClasses.get(Object.getPrototypeOf(value))
  if (Plain === undefined || types.isSharedArrayBuffer(buffer)) return null
  if (types.isDataView(value)) return Reflect.ownKeys(value).length === 0 ? 'DataView' : null
  const { length } = value as Uint8Array
  const plainView: unknown =
    Plain === Buffer
      ? Buffer.from(buffer, byteOffset, length)
      : new (Plain as Uint8ArrayConstructor)(buffer, byteOffset, length)
  // The comparison detects own fields. A list of the keys would contain the index of every byte.
  return isDeepStrictEqual(value, plainView) ? Plain.name : null
}

const bufferViewClasses = new Map<unknown, { readonly name: string }>(
  [
    Int8Array,
    Uint8Array,
    Uint8ClampedArray,
    Int16Array,
    Uint16Array,
    Int32Array,
    Uint32Array,
    Float32Array,
    Float64Array,
    BigInt64Array,
    BigUint64Array,
    DataView,
  ].map((one) => [one.prototype, one]),
)

const hiddenFields = 'an object with fields that are not enumerable'

const describeInstance = (value: object): string =>
  `an instance of ${className(value)}, or one with fields of its own,`

const className = (value: object): string => {
  const { constructor } = value as { constructor?: unknown }
  return typeof constructor === 'function' ? constructor.name : 'an unknown class'
}

const notComparable = (path: string, what: string): ValueError =>
  new ValueError(`${path}: ${what} cannot be compared by its content`, {
    field: path,
    hint: 'Give `cache: { key: (…args) => string }` to say which calls are equal.',
  })

/**
 * Converts values to text that is equal for equal content, even across processes. Used for keys of
 * results and to compare the inputs of tasks. Values cannot be restored from the text.
 */

import { hash } from 'node:crypto'
import { isDeepStrictEqual, types } from 'node:util'
import { ValueError } from '../foundation/errors.ts'

const deepest = 1000
/** The maximum number of objects and arrays in one value. */
const maxContainers = 1_000_000

/** Prefixes each word with its length, so that different lists never give the same text. */
export const joinWords = (words: readonly string[]): string =>
  words.map((word) => `${word.length}:${word}`).join('')

/** SHA-256 in hex. A text with lone surrogates is hashed as UTF-16: UTF-8 cannot encode them. */
export const digestOf = (text: string): string =>
  text.isWellFormed()
    ? hash('sha256', text, 'hex')
    : hash('sha256', Buffer.from(text, 'utf16le'), 'hex')

/** The text of an object that stands for another value; `undefined` for an ordinary object. */
export type TextOf = (value: object) => string | undefined

export interface ContentOptions {
  readonly textOf?: TextOf
  /** Whether the order of keys matters, because functions can observe it. */
  readonly isOrdered?: boolean
}

/** Throws a `ValueError` with the path of the first part that cannot be compared. */
export function contentText(path: string, value: unknown, options: ContentOptions = {}): string {
  if (typeof value !== 'object' || value === null) return primitiveText(value, path)
  return flatText(path, value) ?? new Writer(options).write(path, value)
}

/** Written for a hole of an array, which differs from `undefined`. */
const hole = '4:hole'
const missing = Symbol('missing')

/** A fast path for arrays of primitives, with the same text as `Writer`; otherwise `null`. */
function flatText(path: string, value: object): string | null {
  if (!isPlainArray(value) || hasFields(value)) return null
  const length = String(value.length)
  let text = `5:array${length.length}:${length}`
  for (const [at, item] of value.entries()) {
    // `undefined` may be a hole, which only `Writer` distinguishes.
    if (item === undefined || (typeof item === 'object' && item !== null)) return null
    text += primitiveText(item, `${path}.${at}`)
  }
  return text
}

interface Open {
  readonly value: unknown
  readonly path: string
  readonly depth: number
}

/** Iterative, so that deep nesting does not overflow the call stack. */
class Writer {
  readonly #parts: string[] = []
  readonly #open: Open[] = []
  readonly #options: ContentOptions
  /**
   * Objects already written, numbered. A reference to the same object differs from an equal copy,
   * because a function can tell them apart.
   */
  readonly #seen = new Map<object, number>()

  constructor(options: ContentOptions) {
    this.#options = options
  }

  write(path: string, value: unknown): string {
    this.#open.push({ value, path, depth: 0 })
    for (let next = this.#open.pop(); next !== undefined; next = this.#open.pop()) {
      this.#writeOne(next)
    }
    return this.#parts.join('')
  }

  #writeOne({ value, path, depth }: Open): void {
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
    const before = this.#seen.get(value)
    if (before !== undefined) return this.#words('seen', String(before))
    if (depth > deepest) throw notComparable(path, `a value nested more than ${deepest} deep`)
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
    if (Reflect.ownKeys(value).length > 0) throw notComparable(path, instanceWith(value))
    if (types.isDate(value) && prototype === Date.prototype) {
      return this.#words('date', String(value.getTime()))
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
    if (hidesFields(value, names.length)) throw notComparable(path, hidden)
    if (this.#options.isOrdered !== true) names.sort()
    this.#words(kind, String(names.length), ...names)
    this.#add(names, (name) => fieldOf(value, name, path), path, depth)
  }

  /** Arrays may have fields besides their items, such as `index` in the result of `exec`. */
  #writeArray(items: readonly unknown[], path: string, depth: number): void {
    if (!hasFields(items)) return this.#writeItems('array', items, path, depth)
    const names = Object.keys(items)
    if (hidesFields(items, names.length + 1)) throw notComparable(path, hidden)
    const fields = names.filter((name) => !isIndex(name))
    const values = fields.map((name) => [name, fieldOf(items, name, path)] as const)
    const parts = [[...items], Object.fromEntries(values)]
    this.#writeItems('array with fields', parts, path, depth)
  }

  #writeBytes(value: ArrayBufferView, path: string): void {
    const kind = viewKindOf(value)
    if (kind === null) throw notComparable(path, instanceWith(value))
    const bytes = new Uint8Array(value.buffer, value.byteOffset, value.byteLength)
    this.#words('bytes', kind, String(value.byteLength), hash('sha256', bytes, 'hex'))
  }

  #words(...words: readonly string[]): void {
    this.#parts.push(joinWords(words))
  }

  #writeItems(kind: string, items: readonly unknown[], path: string, depth: number): void {
    this.#words(kind, String(items.length))
    this.#add([...items.keys()], (at) => (at in items ? items[at] : missing), path, depth)
  }

  /** Pushes the values in reverse, so that the first value is written next. */
  #add<K extends string | number>(
    keys: readonly K[],
    valueOf: (key: K) => unknown,
    path: string,
    depth: number,
  ): void {
    for (const key of keys.toReversed()) {
      this.#open.push({ value: valueOf(key), path: `${path}.${key}`, depth: depth + 1 })
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

const isPlainArray = (value: object): value is readonly unknown[] =>
  Array.isArray(value) && Object.getPrototypeOf(value) === Array.prototype

/** `ownKeys` lists the indices first, then `length`, then other fields. */
const hasFields = (items: readonly unknown[]): boolean => Reflect.ownKeys(items).at(-1) !== 'length'

const isIndex = (name: string): boolean => /^(?:0|[1-9]\d*)$/.test(name)

/** Whether there are symbol keys or non-enumerable fields, which `Object.keys` omits. */
const hidesFields = (value: object, count: number): boolean =>
  Object.getOwnPropertySymbols(value).length > 0 || Object.getOwnPropertyNames(value).length > count

/** Rejects getters, which may return another value each time. */
function fieldOf(value: object, name: string, path: string): unknown {
  const field = Object.getOwnPropertyDescriptor(value, name)
  if (field !== undefined && 'value' in field) return field.value as unknown
  throw notComparable(`${path}.${name}`, 'a getter')
}

/** The name of the built-in view class; `null` for subclasses and views with own fields. */
function viewKindOf(value: ArrayBufferView): string | null {
  const { buffer, byteOffset } = value
  const Plain = Buffer.isBuffer(value) ? Buffer : viewClasses.get(Object.getPrototypeOf(value))
  if (Plain === undefined || types.isSharedArrayBuffer(buffer)) return null
  if (types.isDataView(value)) return Reflect.ownKeys(value).length === 0 ? 'DataView' : null
  const { length } = value as Uint8Array
  const same: unknown =
    Plain === Buffer
      ? Buffer.from(buffer, byteOffset, length)
      : new (Plain as Uint8ArrayConstructor)(buffer, byteOffset, length)
  // Finds own fields without listing the keys, which would include the index of every byte.
  return isDeepStrictEqual(value, same) ? Plain.name : null
}

const viewClasses = new Map<unknown, { readonly name: string }>(
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

const hidden = 'an object with fields that are not enumerable'

const instanceWith = (value: object): string =>
  `an instance of ${className(value)}, or one with fields of its own,`

/** The name of the value's class; its prototype may have no constructor. */
const className = (value: object): string => {
  const { constructor } = value as { constructor?: unknown }
  return typeof constructor === 'function' ? constructor.name : 'an unknown class'
}

const notComparable = (path: string, what: string): ValueError =>
  new ValueError(`${path}: ${what} cannot be compared by its content`, {
    field: path,
    hint: 'Give `cache: { key: (…args) => string }` to say which calls are equal.',
  })

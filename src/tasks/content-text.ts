/**
 * Values as text that is equal for equal content, also in another process: for keys of results and
 * for comparing the inputs of tasks. It does not come back to a value.
 */

import { hash } from 'node:crypto'
import { types } from 'node:util'
import { ValueError } from '../foundation/errors.ts'

const deepest = 1000
/** Shared objects are written wherever they occur: equal content must give equal text. */
const mostContainers = 1_000_000

/** Length-prefixed, so that different lists never give the same text. */
export const joinWords = (words: readonly string[]): string =>
  words.map((word) => `${word.length}:${word}`).join('')

/** SHA-256, in hex. UTF-8 has no halves of surrogate pairs: texts with one are UTF-16 here. */
export const digestOf = (text: string): string =>
  text.isWellFormed()
    ? hash('sha256', text, 'hex')
    : hash('sha256', Buffer.from(text, 'utf16le'), 'hex')

/** The text of an object that stands for another value; `undefined` for any other object. */
export type TextOf = (value: object) => string | undefined

/** Throws a `ValueError` that names a part without comparable content by its path. */
export function contentText(path: string, value: unknown, textOf?: TextOf): string {
  if (typeof value !== 'object' || value === null) return primitiveText(value, path)
  return flatText(path, value) ?? new Writer(textOf).write(path, value)
}

/** In the place of an item that an array does not have, which differs from `undefined`. */
const hole = '4:hole'
const missing = Symbol('missing')

/** The same as the writer's, for a list of primitives: most arguments are one. */
function flatText(path: string, value: object): string | null {
  if (!Array.isArray(value)) return null
  const length = String(value.length)
  let text = `5:array${length.length}:${length}`
  for (const [at, item] of (value as readonly unknown[]).entries()) {
    if (typeof item === 'object' && item !== null) return null
    text += item === undefined && !(at in value) ? hole : primitiveText(item, `${path}.${at}`)
  }
  return text
}

interface Open {
  readonly value: unknown
  readonly path: string
  readonly depth: number
}

/** Independent of the order of keys; iterates instead of recursing. */
class Writer {
  readonly #parts: string[] = []
  readonly #open: Open[] = []
  readonly #textOf: TextOf | undefined
  #containers = 0

  constructor(textOf: TextOf | undefined) {
    this.#textOf = textOf
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
    const text = this.#textOf?.(value)
    if (text !== undefined) {
      this.#parts.push(text)
      return
    }
    // Cycles end here as well.
    if (depth > deepest) throw notComparable(path, 'nested too deeply or in a cycle')
    if (++this.#containers > mostContainers) throw notComparable(path, 'one object too many')
    if (Array.isArray(value)) this.#writeArray(value as readonly unknown[], path, depth)
    else if (types.isDate(value)) this.#words('date', String(value.getTime()))
    else if (ArrayBuffer.isView(value)) {
      const bytes = new Uint8Array(value.buffer, value.byteOffset, value.byteLength)
      const digest = hash('sha256', bytes, 'hex')
      this.#words('bytes', value.constructor.name, String(value.byteLength), digest)
    } else if (types.isSet(value)) this.#writeItems('set', [...value], path, depth)
    else if (types.isMap(value)) this.#writeItems('map', [...value], path, depth)
    else if (isPlain(value)) {
      const names = Object.keys(value).toSorted()
      this.#words('object', String(names.length), ...names)
      const values = value as Readonly<Record<string, unknown>>
      this.#add(names, (name) => values[name], path, depth)
    } else throw notComparable(path, `an instance of ${value.constructor.name}`)
  }

  /** Such as what `exec` of a pattern returns: it has fields beside its items. */
  #writeArray(items: readonly unknown[], path: string, depth: number): void {
    if (!hasFields(items)) return this.#writeItems('array', items, path, depth)
    const fields = Object.entries(items).filter(([name]) => !isIndex(name))
    const parts = [[...items], Object.fromEntries(fields)]
    this.#writeItems('array with fields', parts, path, depth)
  }

  #words(...words: readonly string[]): void {
    this.#parts.push(joinWords(words))
  }

  #writeItems(kind: string, items: readonly unknown[], path: string, depth: number): void {
    this.#words(kind, String(items.length))
    this.#add([...items.keys()], (at) => (at in items ? items[at] : missing), path, depth)
  }

  /** Pushed in reverse, so that the first is written next. */
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

const isIndex = (name: string): boolean => /^(?:0|[1-9]\d*)$/.test(name)

/** The indices come first in the list of keys. */
function hasFields(items: readonly unknown[]): boolean {
  const keys = Object.keys(items)
  const last = keys.at(-1)
  return last !== undefined && (keys.length > items.length || !isIndex(last))
}

function isPlain(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value)
  return prototype === Object.prototype || prototype === null
}

const notComparable = (path: string, what: string): ValueError =>
  new ValueError(`${path}: ${what} cannot be compared by its content`, {
    field: path,
    hint: 'Give `cache: { key: (…args) => string }` to say which calls are equal.',
  })

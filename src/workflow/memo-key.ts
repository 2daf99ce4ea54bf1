/** The key under which a result is stored: a hash of the function and its arguments. */

import { createHash, type Hash } from 'node:crypto'
import { types } from 'node:util'
import { ValueError } from '../foundation/errors.ts'
import { definitionOf } from '../tasks/define-task.ts'
import type { Plan } from './plan.ts'

/** Changed when the encoding changes. */
const version = 'tutti-memo-3'
const deepest = 1000
/** Shared objects are encoded wherever they occur: equal content must give equal keys. */
const mostContainers = 1_000_000

/**
 * Equal for equal calls, also in another process. The function's source text and the sampling
 * options of a prompt count; what the function calls does not. A key of the caller's own replaces
 * the arguments. Throws a `ValueError` that names an argument that has no comparable content.
 */
export function memoKey(plan: Plan, args: readonly unknown[]): string {
  const { cache, name, work } = plan.options
  const hash = createHash('sha256')
  write(hash, version, plan.kind, name)
  write(hash, definitionOf(plan.body)?.module ?? '', String(plan.body))
  const { backend: _, timeoutSeconds: _limit, priority: _rank, resources: _share, ...rest } = work
  new Encoder(hash).encode('options', rest)
  if (typeof cache === 'object') {
    const { key } = cache
    write(hash, 'key', typeof key === 'string' ? key : keyOf(key, args))
  } else {
    write(hash, 'content')
    new Encoder(hash).encode('args', args)
  }
  return hash.digest('hex')
}

function keyOf(key: (...args: never[]) => string, args: readonly unknown[]): string {
  const given: unknown = key(...(args as never[]))
  if (typeof given === 'string') return given
  throw new ValueError('`cache.key` gave no string', { field: 'cache.key', got: given })
}

/** Length-prefixed, so that different lists never give the same bytes. */
function write(hash: Hash, ...words: string[]): void {
  for (const word of words) hash.update(`${word.length}:${word}`)
}

interface Open {
  readonly value: unknown
  readonly path: string
  readonly depth: number
}

/** Encodes values independently of the order of keys; iterates instead of recursing. */
class Encoder {
  readonly #hash: Hash
  readonly #open: Open[] = []
  #containers = 0

  constructor(hash: Hash) {
    this.#hash = hash
  }

  encode(path: string, value: unknown): void {
    this.#open.push({ value, path, depth: 0 })
    for (let next = this.#open.pop(); next !== undefined; next = this.#open.pop()) {
      this.#encode(next)
    }
  }

  #encode({ value, path, depth }: Open): void {
    if (typeof value !== 'object' || value === null) return this.#encodePrimitive(value, path)
    // Cycles end here as well.
    if (depth > deepest) throw notComparable(path, 'nested too deeply or in a cycle')
    if (++this.#containers > mostContainers) throw notComparable(path, 'one object too many')
    if (Array.isArray(value)) {
      this.#encodeItems('array', value as readonly unknown[], path, depth)
    } else if (types.isDate(value)) write(this.#hash, 'date', String(value.getTime()))
    else if (ArrayBuffer.isView(value)) {
      write(this.#hash, 'bytes', value.constructor.name, String(value.byteLength))
      this.#hash.update(Buffer.from(value.buffer, value.byteOffset, value.byteLength))
    } else if (types.isSet(value)) this.#encodeItems('set', [...value], path, depth)
    else if (types.isMap(value)) this.#encodeItems('map', [...value], path, depth)
    else if (isPlain(value)) {
      const names = Object.keys(value).toSorted()
      write(this.#hash, 'object', String(names.length))
      for (const name of names) write(this.#hash, name)
      const values = value as Readonly<Record<string, unknown>>
      this.#add(names, (name) => values[name], path, depth)
    } else throw notComparable(path, `an instance of ${value.constructor.name}`)
  }

  #encodeItems(kind: string, items: readonly unknown[], path: string, depth: number): void {
    write(this.#hash, kind, String(items.length))
    this.#add([...items.keys()], (at) => items[at], path, depth)
  }

  /** Pushed in reverse, so that the first is encoded next. */
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

  #encodePrimitive(value: unknown, path: string): void {
    if (typeof value === 'function' || typeof value === 'symbol') {
      throw notComparable(path, `a ${typeof value}`)
    }
    const text = Object.is(value, -0) ? '-0' : String(value)
    write(this.#hash, value === null ? 'null' : typeof value, text)
  }
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

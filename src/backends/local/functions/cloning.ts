/** Whether a value can be sent to another thread or process, and which part of it cannot. */

import { types } from 'node:util'
import { serialize } from 'node:v8'

const deepest = 64

/** Advice for users about a value that cannot be cloned. */
export const cloningHint = 'Send plain data; make functions and connections inside the task.'

/** Whether the value is a primitive, which is copied whenever it is passed. */
export function isPlainValue(value: unknown): boolean {
  const type = typeof value
  return value === null || (type !== 'object' && type !== 'function' && type !== 'symbol')
}

/** The maximum number of objects checked in a value. Checking all would cost as much as cloning. */
const maxChecked = 1000

/**
 * Throws for an object that only inherits from a built-in class, such as
 * `Object.create(new Map())`: a clone of it would be an empty object.
 */
export function expectGenuine(value: unknown): void {
  const waiting = [value]
  const seen = new Set<unknown>()
  for (let current = waiting.pop(); seen.size < maxChecked; current = waiting.pop()) {
    if (typeof current === 'object' && current !== null && !seen.has(current)) {
      seen.add(current)
      const prototype: unknown = Object.getPrototypeOf(current)
      if (Array.isArray(current)) addSome(waiting, current)
      else if (prototype === null || prototype === Object.prototype) {
        addSome(waiting, Object.values(current))
      } else if (isDisguised(current)) {
        throw new TypeError('it inherits from a built-in class, but is no instance of it')
      }
    }
    if (waiting.length === 0) return
  }
}

/** Adds at most `maxChecked` parts: the last ones, because `waiting` is read from its end. */
function addSome(waiting: unknown[], parts: readonly unknown[]): void {
  for (let at = Math.max(0, parts.length - maxChecked); at < parts.length; at++) {
    waiting.push(parts[at])
  }
}

/** Classes whose prototypes have no internal state, so that only `instanceof` finds their heirs. */
const builtIns = [Map, Set, Date, RegExp, ArrayBuffer] as const

function isDisguised(value: object): boolean {
  if (hasInternalState(value)) return false
  for (let one: object | null = value; one !== null; one = prototypeOf(one)) {
    if (hasInternalState(one)) return true
  }
  return builtIns.some((builtIn) => value instanceof builtIn)
}

const prototypeOf = (value: object): object | null => Object.getPrototypeOf(value) as object | null

/** Whether an object has internal state, which a clone of an inheriting object would lack. */
const hasInternalState = (value: object): boolean =>
  typeof value === 'function' ||
  Array.isArray(value) ||
  ArrayBuffer.isView(value) ||
  stateful.some((isOne) => isOne(value))

const stateful = [
  types.isMap,
  types.isSet,
  types.isDate,
  types.isRegExp,
  types.isAnyArrayBuffer,
  types.isNativeError,
  types.isPromise,
  types.isBoxedPrimitive,
  types.isWeakMap,
  types.isWeakSet,
] as const

function isCloneable(value: unknown): boolean {
  try {
    structuredClone(value)
    expectGenuine(value)
    return true
  } catch {
    return false
  }
}

/**
 * Whether the value can be sent to another process. Some cloneable values cannot, such as shared
 * memory.
 */
function isSerializable(value: unknown): boolean {
  try {
    serialize(value)
    return true
  } catch {
    return false
  }
}

/**
 * The path of the first part that cannot be cloned, such as `args[1].callback`. The search enters
 * plain objects, arrays, maps and sets; any other object is named as a whole.
 */
export function uncloneablePath(value: unknown, root: string): string {
  const isSendable = isCloneable(value) ? isSerializable : isCloneable
  let path = root
  let current = value
  const seen = new Set<unknown>()
  for (let depth = 0; depth < deepest; depth++) {
    seen.add(current)
    const wrong = partsOf(current).find(
      ({ part }) => !isPlainValue(part) && !seen.has(part) && !isSendable(part),
    )
    if (wrong === undefined) return path
    path += wrong.step
    current = wrong.part
  }
  return path
}

interface Part {
  readonly step: string
  readonly part: unknown
}

/** The parts of a value; none if reading them throws, as for a revoked proxy. */
function partsOf(value: unknown): readonly Part[] {
  try {
    return typeof value === 'object' && value !== null ? partsOfObject(value) : []
  } catch {
    return []
  }
}

function partsOfObject(value: object): readonly Part[] {
  if (Array.isArray(value)) {
    // Unlike `map`, `Array.from` fills the holes of a sparse array.
    return Array.from(value as unknown[], (part, at) => ({ step: `[${at}]`, part }))
  }
  if (value instanceof Map) {
    return Array.from(value, ([key, part]: [unknown, unknown]) => [
      { step: `.get(${keyText(key)})`, part },
      { step: '.keys()', part: key },
    ]).flat()
  }
  if (value instanceof Set) return Array.from(value, (part) => ({ step: '.values()', part }))
  const prototype: unknown = Object.getPrototypeOf(value)
  if (prototype !== null && prototype !== Object.prototype) return []
  return Object.keys(value).flatMap((key) => {
    try {
      const part = (value as Record<string, unknown>)[key]
      return [{ step: /^[\w$]+$/.test(key) ? `.${key}` : `[${JSON.stringify(key)}]`, part }]
    } catch {
      return [{ step: `.${key}`, part: () => {} }]
    }
  })
}

const keyText = (key: unknown): string =>
  typeof key === 'string' ? JSON.stringify(key) : typeof key === 'number' ? String(key) : '…'

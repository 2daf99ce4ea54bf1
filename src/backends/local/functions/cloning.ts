/**
 * Checks whether values can be sent to another thread or process, and finds the parts that cannot.
 */

import { types } from 'node:util'
import { serialize } from 'node:v8'

const maxDepth = 64

export const cloningHint = 'Send plain data; make functions and connections inside the task.'

/** Whether the value is a primitive that can be cloned. */
export function isPlainValue(value: unknown): boolean {
  const type = typeof value
  return value === null || (type !== 'object' && type !== 'function' && type !== 'symbol')
}

/** The maximum number of checked objects. Checking more of them would cost as much as cloning. */
const maxChecked = 1000

/**
 * Throws if the value contains an object that only inherits from a built-in class, such as
 * `Object.create(new Map())`, because its clone would be an empty object.
 */
export function expectNoFakeBuiltIn(value: unknown): void {
  const waiting = [value]
  const seen = new Set<unknown>()
  for (let current = waiting.pop(); seen.size < maxChecked; current = waiting.pop()) {
    if (typeof current === 'object' && current !== null && !seen.has(current)) {
      seen.add(current)
      const prototype: unknown = Object.getPrototypeOf(current)
      if (Array.isArray(current)) pushLast(waiting, current)
      else if (prototype === null || prototype === Object.prototype) {
        pushLast(waiting, Object.values(current))
      } else if (isFakeBuiltIn(current)) {
        throw new TypeError('it inherits from a built-in class, but is no instance of it')
      }
    }
    if (waiting.length === 0) return
  }
}

/**
 * Adds parts to the end of `waiting`. Only the last `maxChecked` parts are added, because `waiting`
 * is read from its end.
 */
function pushLast(waiting: unknown[], parts: readonly unknown[]): void {
  for (let at = Math.max(0, parts.length - maxChecked); at < parts.length; at++) {
    waiting.push(parts[at])
  }
}

/**
 * Built-in classes whose prototypes have no internal state. Only `instanceof` finds objects that
 * inherit from such a prototype.
 */
const builtIns = [Map, Set, Date, RegExp, ArrayBuffer] as const

function isFakeBuiltIn(value: object): boolean {
  if (hasInternalState(value)) return false
  for (let one: object | null = value; one !== null; one = prototypeOf(one)) {
    if (hasInternalState(one)) return true
  }
  return builtIns.some((builtIn) => value instanceof builtIn)
}

const prototypeOf = (value: object): object | null => Object.getPrototypeOf(value) as object | null

const hasInternalState = (value: object): boolean =>
  typeof value === 'function' ||
  Array.isArray(value) ||
  ArrayBuffer.isView(value) ||
  builtInChecks.some((isOne) => isOne(value))

const builtInChecks = [
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
    expectNoFakeBuiltIn(value)
    return true
  } catch {
    return false
  }
}

/**
 * Whether the value can be sent to another process. Some values that can be cloned, such as shared
 * memory, cannot be sent.
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
 * Returns the path of the first part that cannot be cloned, such as `args[1].callback`. The search
 * enters only plain objects, arrays, maps and sets.
 */
export function uncloneablePath(value: unknown, root: string): string {
  const isSendable = isCloneable(value) ? isSerializable : isCloneable
  let path = root
  let current = value
  const seen = new Set<unknown>()
  for (let depth = 0; depth < maxDepth; depth++) {
    seen.add(current)
    const wrong = partsOf(current).find(
      ({ part }) => !isPlainValue(part) && !seen.has(part) && !isSendable(part),
    )
    if (wrong === undefined) return path
    path += wrong.pathStep
    current = wrong.part
  }
  return path
}

interface ValuePart {
  readonly pathStep: string
  readonly part: unknown
}

/** The parts of a value; empty if reading them throws, as for a revoked proxy. */
function partsOf(value: unknown): readonly ValuePart[] {
  try {
    return typeof value === 'object' && value !== null ? partsOfObject(value) : []
  } catch {
    return []
  }
}

function partsOfObject(value: object): readonly ValuePart[] {
  if (Array.isArray(value)) {
    // Unlike `map`, `Array.from` also visits the holes of a sparse array.
    return Array.from(value as unknown[], (part, at) => ({ pathStep: `[${at}]`, part }))
  }
  if (value instanceof Map) {
    return Array.from(value, ([key, part]: [unknown, unknown]) => [
      { pathStep: `.get(${describeKey(key)})`, part },
      { pathStep: '.keys()', part: key },
    ]).flat()
  }
  if (value instanceof Set) return Array.from(value, (part) => ({ pathStep: '.values()', part }))
  const prototype: unknown = Object.getPrototypeOf(value)
  if (prototype !== null && prototype !== Object.prototype) return []
  return Object.keys(value).flatMap((key) => {
    try {
      const part = (value as Record<string, unknown>)[key]
      return [{ pathStep: /^[\w$]+$/.test(key) ? `.${key}` : `[${JSON.stringify(key)}]`, part }]
    } catch {
      return [{ pathStep: `.${key}`, part: () => {} }]
    }
  })
}

const describeKey = (key: unknown): string =>
  typeof key === 'string' ? JSON.stringify(key) : typeof key === 'number' ? String(key) : '…'

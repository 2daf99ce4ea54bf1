/** Template values with the semantics of Python. */

import { spend, spendChars, spendItems, TemplateError, withDepthLimit } from './limits.ts'

/** The value of a name that does not exist: empty when printed, an error when used. */
export class Undefined {
  /** The message of the error, such as `'x' is undefined`. */
  readonly message: string

  constructor(message: string) {
    this.message = message
  }
}

/**
 * A float without a fraction. A class, because JavaScript cannot distinguish it from an integer.
 */
export class Float {
  readonly value: number

  constructor(value: number) {
    this.value = value
  }
}

/** Text that is marked as safe. Text that is appended to it is escaped for HTML. */
export class Markup {
  readonly text: string

  constructor(text: string) {
    this.text = text
  }
}

export class Tuple extends Array<Value> {}

/** The result of a filter such as `map`. Truthy even if empty, like a generator in Python. */
export class Lazy extends Array<Value> {}

export type Key = string | number | boolean | null
export class Dict extends Map<Key, Value> {}
export class Namespace extends Map<string, Value> {}

/** Named arguments. */
export type Named = ReadonlyMap<string, Value>

interface Attributes {
  get(name: string): Value | undefined
}

/** A function, a method or a macro. */
export class Callable {
  readonly name: string
  readonly call: (args: readonly Value[], named: Named) => Value
  readonly attributes: Attributes

  constructor(
    name: string,
    call: (args: readonly Value[], named: Named) => Value,
    attributes: Attributes = new Map(),
  ) {
    this.name = name
    this.call = call
    this.attributes = attributes
  }
}

export type Value =
  | null
  | boolean
  | number
  | string
  | Float
  | Markup
  | Undefined
  | Value[]
  | Dict
  | Namespace
  | Callable

/** Converts a JSON value. Omits members that are `undefined`. */
export function toValue(json: unknown): Value {
  if (json === null || json === undefined) return null
  if (typeof json === 'string' || typeof json === 'boolean' || typeof json === 'number') return json
  if (Array.isArray(json)) return json.map(toValue)
  if (typeof json !== 'object') throw new TypeError(`a template cannot read a ${typeof json}`)
  if (json instanceof Callable) return json
  const dict = new Dict()
  for (const [key, value] of Object.entries(json)) {
    if (value !== undefined) dict.set(key, toValue(value))
  }
  return dict
}

export function isTrue(value: Value): boolean {
  if (value === null || value instanceof Undefined) return false
  if (value instanceof Float) return value.value !== 0
  if (value instanceof Markup) return value.text !== ''
  if (value instanceof Lazy) return true
  if (Array.isArray(value)) return value.length > 0
  if (value instanceof Dict) return value.size > 0
  return typeof value === 'object' || Boolean(value)
}

/** The Python name of the type, for messages. */
export function typeName(value: Value): string {
  if (value === null) return 'NoneType'
  if (value instanceof Undefined) return 'Undefined'
  if (value instanceof Float) return 'float'
  if (value instanceof Tuple) return 'tuple'
  if (value instanceof Lazy) return 'generator'
  if (Array.isArray(value)) return 'list'
  if (value instanceof Dict) return 'dict'
  if (value instanceof Namespace) return 'Namespace'
  if (value instanceof Callable) return 'function'
  if (typeof value === 'number') return Number.isInteger(value) ? 'int' : 'float'
  return typeof value === 'boolean' ? 'bool' : 'str'
}

/** Returns the value. Throws if it is undefined. */
export function defined(value: Value): Exclude<Value, Undefined> {
  if (value instanceof Undefined) throw new TemplateError(value.message)
  return value
}

/** The text of a string or `Markup`; `null` for other values. */
export function textOf(value: Value): string | null {
  if (typeof value === 'string') return value
  return value instanceof Markup ? value.text : null
}

/** The numeric value of a number or boolean; `null` for other values. */
export function numberOf(value: Value): number | null {
  if (typeof value === 'number') return value
  if (typeof value === 'boolean') return Number(value)
  return value instanceof Float ? value.value : null
}

export const isFloat = (value: Value): boolean =>
  value instanceof Float || (typeof value === 'number' && !Number.isInteger(value))

export const toFloat = (value: number): Value =>
  Number.isInteger(value) ? new Float(value) : value

/** Used instead of `??`, which would also replace `null`. */
export const valueOr = (value: Value | undefined, otherwise: Value): Value =>
  value === undefined ? otherwise : value

/** The text of a value, as from `str` in Python. */
export function toText(value: Value): string {
  const text = textOf(value)
  if (text !== null) return text
  return value instanceof Undefined ? '' : toRepr(value)
}

export function toRepr(value: Value): string {
  spend(1)
  if (value === null) return 'None'
  if (value === true) return 'True'
  if (value === false) return 'False'
  const text = textOf(value)
  if (text !== null) {
    spendChars(text.length)
    return value instanceof Markup ? `Markup(${quote(text)})` : quote(text)
  }
  const number = numberOf(value)
  if (number !== null) return numberText(number, isFloat(value))
  if (Array.isArray(value) || value instanceof Dict) return inside(() => reprOfParts(value))
  return value instanceof Undefined ? 'Undefined' : `<${typeName(value)}>`
}

/** Limits the depth, because a list may contain itself. */
export const inside = <T>(action: () => T): T =>
  withDepthLimit(action, 'a value is nested too deeply')

function reprOfParts(value: Value[] | Dict): string {
  if (value instanceof Tuple) {
    return `(${value.map(toRepr).join(', ')}${value.length === 1 ? ',' : ''})`
  }
  if (Array.isArray(value)) return `[${Array.from(value, toRepr).join(', ')}]`
  return `{${Array.from(value, ([key, item]) => `${toRepr(key)}: ${toRepr(item)}`).join(', ')}}`
}

export function numberText(value: number, isWhole: boolean): string {
  if (Number.isNaN(value)) return 'nan'
  if (!Number.isFinite(value)) return value > 0 ? 'inf' : '-inf'
  if (Number.isInteger(value) && Math.abs(value) < 1e16) {
    const sign = Object.is(value, -0) && isWhole ? '-' : ''
    return isWhole ? `${sign}${value}.0` : `${value}`
  }
  if (Number.isInteger(value) && !isWhole) {
    spend(16)
    return BigInt(value).toString()
  }
  const [digits = '', exponent] = shortest(value).split('e')
  if (exponent === undefined) return digits
  const power = Number(exponent)
  return `${digits}e${power < 0 ? '-' : '+'}${String(Math.abs(power)).padStart(2, '0')}`
}

/** Python switches to an exponent for small numbers earlier than JavaScript does. */
function shortest(value: number): string {
  const size = Math.abs(value)
  return size < 1e-4 || size >= 1e16 ? value.toExponential() : String(value)
}

function quote(text: string): string {
  const mark = text.includes("'") && !text.includes('"') ? '"' : "'"
  const escaped = text
    .replaceAll('\\', '\\\\')
    .replaceAll('\n', String.raw`\n`)
    .replaceAll('\r', String.raw`\r`)
    .replaceAll('\t', String.raw`\t`)
    // oxlint-disable-next-line no-control-regex -- these are what Python escapes
    .replaceAll(/[\u0000-\u001F\u007F-\u00A0\u00AD]/g, escapeCode)
  return mark + (mark === "'" ? escaped.replaceAll("'", String.raw`\'`) : escaped) + mark
}

const escapeCode = (letter: string): string =>
  String.raw`\x${letter.charCodeAt(0).toString(16).padStart(2, '0')}`

export function isEqual(one: Value, other: Value): boolean {
  spend(1 / 4)
  const number = numberOf(one)
  if (number !== null) return number === numberOf(other)
  const text = textOf(one)
  if (text !== null) {
    const same = textOf(other)
    if (text.length === same?.length) spend(text.length / 1024)
    return text === same
  }
  if (one instanceof Undefined) return other instanceof Undefined
  if (Array.isArray(one)) {
    if (!Array.isArray(other) || one instanceof Tuple !== other instanceof Tuple) return false
    if (one.length !== other.length) return false
    return inside(() => one.every((item, at) => isEqual(item, other[at] ?? null)))
  }
  if (!(one instanceof Dict) || !(other instanceof Dict)) return one === other
  if (one.size !== other.size) return false
  return inside(() =>
    Array.from(one).every(([key, item]) => {
      const same = other.get(key)
      return same !== undefined && isEqual(item, same)
    }),
  )
}

/** Negative if the first value is less. Throws for values that have no order. */
export function compare(one: Value, other: Value): number {
  spend(1 / 4)
  const [left, right] = [numberOf(one), numberOf(other)]
  if (left !== null && right !== null) return left - right
  const [text, otherText] = [textOf(one), textOf(other)]
  if (text !== null && otherText !== null) return compareText(text, otherText)
  if (Array.isArray(one) && Array.isArray(other)) return inside(() => compareItems(one, other))
  defined(one)
  defined(other)
  throw new TemplateError(
    `'<' not supported between instances of '${typeName(one)}' and '${typeName(other)}'`,
  )
}

function compareItems(one: readonly Value[], other: readonly Value[]): number {
  for (const [at, item] of one.entries()) {
    const same = other[at]
    if (same === undefined) return 1
    if (!isEqual(item, same)) return compare(item, same)
  }
  return one.length - other.length
}

/** Compares by code points, not by UTF-16 units: surrogates come last. */
function compareText(one: string, other: string): number {
  if (one === other) return 0
  const shorter = Math.min(one.length, other.length)
  let at = 0
  while (at < shorter && one.charCodeAt(at) === other.charCodeAt(at)) at++
  spendChars(at)
  if (at === shorter) return one.length - other.length
  const [left, right] = [one.charCodeAt(at), other.charCodeAt(at)]
  const isHalf = (unit: number): boolean => isHigh(unit) || isLow(unit)
  return isHalf(left) === isHalf(right) ? left - right : isHalf(left) ? 1 : -1
}

/** Python treats a negative count as zero. */
export function spaces(count: number): string {
  spendChars(count)
  return ' '.repeat(Math.max(0, count))
}

/** Charges for a value that an operation reads or creates, by its length. */
export function spendFor(value: Value): void {
  const text = textOf(value)
  if (text !== null) spendChars(text.length)
  else if (Array.isArray(value)) spendItems(value.length)
  else if (value instanceof Dict) spendItems(value.size)
}

/** The items that `for` and filters iterate over. */
export function iterate(value: Value): readonly Value[] {
  if (Array.isArray(value)) return value
  if (value instanceof Undefined) return []
  if (value instanceof Dict) return [...value.keys()]
  const text = textOf(value)
  if (text === null) throw new TemplateError(`'${typeName(value)}' object is not iterable`)
  spendItems(text.length)
  return Array.from(text)
}

/** Converts a value to the key of a dict. Throws for values that cannot be keys. */
export function toKey(value: Value): Key {
  const text = textOf(value)
  if (text !== null) return text
  if (value instanceof Float) return value.value
  if (value === null || typeof value === 'number' || typeof value === 'boolean') return value
  throw new TemplateError(`unhashable type: '${typeName(value)}'`)
}

export function lengthOf(value: Value): number {
  if (value instanceof Undefined) return 0
  if (value instanceof Dict) return value.size
  const text = textOf(value)
  if (text !== null) return countLetters(text)
  if (Array.isArray(value)) return value.length
  throw new TemplateError(`object of type '${typeName(value)}' has no len()`)
}

/** A surrogate pair counts as one letter. */
function countLetters(text: string): number {
  let count = text.length
  for (let at = 1; at < text.length; at++) {
    if (isLow(text.charCodeAt(at)) && isHigh(text.charCodeAt(at - 1))) count--
  }
  return count
}

const isHigh = (unit: number): boolean => unit >= 0xd800 && unit <= 0xdbff
const isLow = (unit: number): boolean => unit >= 0xdc00 && unit <= 0xdfff

const htmlLetters: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&#34;',
  "'": '&#39;',
}

/** Escapes text, except text that is marked as safe. */
export function toMarkup(value: Value): Markup {
  if (value instanceof Markup) return value
  return new Markup(toText(value).replaceAll(/[&<>"']/g, (letter) => htmlLetters[letter] ?? letter))
}

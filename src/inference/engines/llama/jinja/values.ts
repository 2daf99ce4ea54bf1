/** Template values with the semantics of Python. */

import { spend, spendChars, spendItems, TemplateError, withDepthLimit } from './limits.ts'

/** A name that does not exist. It prints as empty text, and operations with it throw. */
export class Undefined {
  readonly message: string

  constructor(message: string) {
    this.message = message
  }
}

/** A float without a fraction, which JavaScript cannot distinguish from an integer. */
export class Float {
  readonly value: number

  constructor(value: number) {
    this.value = value
  }
}

/** Text that is marked as safe. Text that is appended to it is HTML-escaped. */
export class Markup {
  readonly text: string

  constructor(text: string) {
    this.text = text
  }
}

export class Tuple extends Array<Value> {}

/** The result of a filter such as `map`. Like a generator in Python, it is truthy even if empty. */
export class LazyList extends Array<Value> {}

export type DictKey = string | number | boolean | null
export class Dict extends Map<DictKey, Value> {}
export class Namespace extends Map<string, Value> {}

export type NamedArguments = ReadonlyMap<string, Value>

interface Attributes {
  get(name: string): Value | undefined
}

export class Callable {
  readonly name: string
  readonly call: (args: readonly Value[], named: NamedArguments) => Value
  readonly attributes: Attributes

  constructor(
    name: string,
    call: (args: readonly Value[], named: NamedArguments) => Value,
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

/** Converts JSON to a template value. Omits members that are `undefined`. */
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
  if (value instanceof LazyList) return true
  if (Array.isArray(value)) return value.length > 0
  if (value instanceof Dict) return value.size > 0
  return typeof value === 'object' || Boolean(value)
}

export function typeName(value: Value): string {
  if (value === null) return 'NoneType'
  if (value instanceof Undefined) return 'Undefined'
  if (value instanceof Float) return 'float'
  if (value instanceof Tuple) return 'tuple'
  if (value instanceof LazyList) return 'generator'
  if (Array.isArray(value)) return 'list'
  if (value instanceof Dict) return 'dict'
  if (value instanceof Namespace) return 'Namespace'
  if (value instanceof Callable) return 'function'
  if (typeof value === 'number') return Number.isInteger(value) ? 'int' : 'float'
  return typeof value === 'boolean' ? 'bool' : 'str'
}

export function expectDefined(value: Value): Exclude<Value, Undefined> {
  if (value instanceof Undefined) throw new TemplateError(value.message)
  return value
}

/** Returns the text of a string or `Markup`, or `null` for other values. */
export function asText(value: Value): string | null {
  if (typeof value === 'string') return value
  return value instanceof Markup ? value.text : null
}

/** Returns a number or a boolean as a number, as in Python, and `null` for other values. */
export function asNumber(value: Value): number | null {
  if (typeof value === 'number') return value
  if (typeof value === 'boolean') return Number(value)
  return value instanceof Float ? value.value : null
}

export const isFloat = (value: Value): boolean =>
  value instanceof Float || (typeof value === 'number' && !Number.isInteger(value))

export const toFloat = (value: number): Value =>
  Number.isInteger(value) ? new Float(value) : value

/** Like `??`, but keeps `null`. */
export const valueOr = (value: Value | undefined, otherwise: Value): Value =>
  value === undefined ? otherwise : value

export function toText(value: Value): string {
  const text = asText(value)
  if (text !== null) return text
  return value instanceof Undefined ? '' : toRepr(value)
}

export function toRepr(value: Value): string {
  spend(1)
  if (value === null) return 'None'
  if (value === true) return 'True'
  if (value === false) return 'False'
  const text = asText(value)
  if (text !== null) {
    spendChars(text.length)
    return value instanceof Markup ? `Markup(${quoteText(text)})` : quoteText(text)
  }
  const number = asNumber(value)
  if (number !== null) return numberToText(number, isFloat(value))
  if (Array.isArray(value) || value instanceof Dict) return withValueDepth(() => partsToRepr(value))
  return value instanceof Undefined ? 'Undefined' : `<${typeName(value)}>`
}

/** Limits the depth of nested values, because a list may contain itself. */
export const withValueDepth = <T>(action: () => T): T =>
  withDepthLimit(action, 'a value is nested too deeply')

function partsToRepr(value: Value[] | Dict): string {
  if (value instanceof Tuple) {
    return `(${value.map(toRepr).join(', ')}${value.length === 1 ? ',' : ''})`
  }
  if (Array.isArray(value)) return `[${Array.from(value, toRepr).join(', ')}]`
  return `{${Array.from(value, ([key, item]) => `${toRepr(key)}: ${toRepr(item)}`).join(', ')}}`
}

export function numberToText(value: number, isWhole: boolean): string {
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
  const [digits = '', exponent] = shortestText(value).split('e')
  if (exponent === undefined) return digits
  const power = Number(exponent)
  return `${digits}e${power < 0 ? '-' : '+'}${String(Math.abs(power)).padStart(2, '0')}`
}

/** Like Python, uses an exponent below 1e-4 and from 1e16. The limits of JavaScript are wider. */
function shortestText(value: number): string {
  const size = Math.abs(value)
  return size < 1e-4 || size >= 1e16 ? value.toExponential() : String(value)
}

function quoteText(text: string): string {
  const mark = text.includes("'") && !text.includes('"') ? '"' : "'"
  const escaped = text
    .replaceAll('\\', '\\\\')
    .replaceAll('\n', String.raw`\n`)
    .replaceAll('\r', String.raw`\r`)
    .replaceAll('\t', String.raw`\t`)
    // oxlint-disable-next-line no-control-regex -- these are what Python escapes
    .replaceAll(/[\u0000-\u001F\u007F-\u00A0\u00AD]/g, escapeCharacter)
  return mark + (mark === "'" ? escaped.replaceAll("'", String.raw`\'`) : escaped) + mark
}

const escapeCharacter = (letter: string): string =>
  String.raw`\x${letter.charCodeAt(0).toString(16).padStart(2, '0')}`

export function isEqual(one: Value, other: Value): boolean {
  spend(1 / 4)
  const number = asNumber(one)
  if (number !== null) return number === asNumber(other)
  const text = asText(one)
  if (text !== null) {
    const same = asText(other)
    if (text.length === same?.length) spend(text.length / 1024)
    return text === same
  }
  if (one instanceof Undefined) return other instanceof Undefined
  if (Array.isArray(one)) {
    if (!Array.isArray(other) || one instanceof Tuple !== other instanceof Tuple) return false
    if (one.length !== other.length) return false
    return withValueDepth(() => one.every((item, at) => isEqual(item, other[at] ?? null)))
  }
  if (!(one instanceof Dict) || !(other instanceof Dict)) return one === other
  if (one.size !== other.size) return false
  return withValueDepth(() =>
    Array.from(one).every(([key, item]) => {
      const otherValue = other.get(key)
      return otherValue !== undefined && isEqual(item, otherValue)
    }),
  )
}

/** Returns a negative number if `one` is less. Throws for values that have no order. */
export function compareValues(one: Value, other: Value): number {
  spend(1 / 4)
  const [left, right] = [asNumber(one), asNumber(other)]
  if (left !== null && right !== null) return left - right
  const [text, otherText] = [asText(one), asText(other)]
  if (text !== null && otherText !== null) return compareText(text, otherText)
  if (Array.isArray(one) && Array.isArray(other))
    return withValueDepth(() => compareItems(one, other))
  expectDefined(one)
  expectDefined(other)
  throw new TemplateError(
    `'<' not supported between instances of '${typeName(one)}' and '${typeName(other)}'`,
  )
}

function compareItems(one: readonly Value[], other: readonly Value[]): number {
  for (const [at, item] of one.entries()) {
    const otherItem = other[at]
    if (otherItem === undefined) return 1
    if (!isEqual(item, otherItem)) return compareValues(item, otherItem)
  }
  return one.length - other.length
}

/** Compares by code points, so that characters above U+FFFF come last. */
function compareText(one: string, other: string): number {
  if (one === other) return 0
  const shorter = Math.min(one.length, other.length)
  let at = 0
  while (at < shorter && one.charCodeAt(at) === other.charCodeAt(at)) at++
  spendChars(at)
  if (at === shorter) return one.length - other.length
  const [left, right] = [one.charCodeAt(at), other.charCodeAt(at)]
  const isHalf = (unit: number): boolean => isHighSurrogate(unit) || isLowSurrogate(unit)
  return isHalf(left) === isHalf(right) ? left - right : isHalf(left) ? 1 : -1
}

/** Returns `count` spaces. As in Python, a negative count is treated as zero. */
export function repeatSpace(count: number): string {
  spendChars(count)
  return ' '.repeat(Math.max(0, count))
}

/** Charges steps for the length of a value that is read or created. */
export function spendFor(value: Value): void {
  const text = asText(value)
  if (text !== null) spendChars(text.length)
  else if (Array.isArray(value)) spendItems(value.length)
  else if (value instanceof Dict) spendItems(value.size)
}

export function iterate(value: Value): readonly Value[] {
  if (Array.isArray(value)) return value
  if (value instanceof Undefined) return []
  if (value instanceof Dict) return [...value.keys()]
  const text = asText(value)
  if (text === null) throw new TemplateError(`'${typeName(value)}' object is not iterable`)
  spendItems(text.length)
  return Array.from(text)
}

/** Returns a value as a key. Throws for values that cannot be keys. */
export function toKey(value: Value): DictKey {
  const text = asText(value)
  if (text !== null) return text
  if (value instanceof Float) return value.value
  if (value === null || typeof value === 'number' || typeof value === 'boolean') return value
  throw new TemplateError(`unhashable type: '${typeName(value)}'`)
}

export function getLength(value: Value): number {
  if (value instanceof Undefined) return 0
  if (value instanceof Dict) return value.size
  const text = asText(value)
  if (text !== null) return countLetters(text)
  if (Array.isArray(value)) return value.length
  throw new TemplateError(`object of type '${typeName(value)}' has no len()`)
}

function countLetters(text: string): number {
  let count = text.length
  for (let at = 1; at < text.length; at++) {
    if (isLowSurrogate(text.charCodeAt(at)) && isHighSurrogate(text.charCodeAt(at - 1))) count--
  }
  return count
}

const isHighSurrogate = (unit: number): boolean => unit >= 0xd800 && unit <= 0xdbff
const isLowSurrogate = (unit: number): boolean => unit >= 0xdc00 && unit <= 0xdfff

const htmlEscapes: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&#34;',
  "'": '&#39;',
}

/** Escapes text, unless it is already marked as safe. */
export function toMarkup(value: Value): Markup {
  if (value instanceof Markup) return value
  return new Markup(toText(value).replaceAll(/[&<>"']/g, (letter) => htmlEscapes[letter] ?? letter))
}

/** Formats text as Python does: `str.format`, the operator `%`, and JSON. */

import { spend, spendChars, TemplateError } from './limits.ts'
import {
  defined,
  Dict,
  inside,
  isFloat,
  isTrue,
  iterate,
  type Key,
  lengthOf,
  type Named,
  Namespace,
  numberOf,
  numberText,
  spaces,
  spendFor,
  textOf,
  toRepr,
  toText,
  Tuple,
  typeName,
  Undefined,
  type Value,
  valueOr,
} from './values.ts'

interface FormatArguments {
  readonly args: readonly Value[]
  readonly named: Named
  /** Whether a value has a method of that name. */
  isMethod(of: Value, name: string): boolean
}

function fail(message: string): never {
  throw new TemplateError(message)
}

/** Pads the text to a width in code points. */
export function pad(text: string, width: number, by: string, side: string): string {
  const missing = Math.max(0, width - lengthOf(text))
  const left = side === '>' ? missing : side === '^' ? Math.floor(missing / 2) : 0
  spendChars(missing * by.length)
  return by.repeat(left) + text + by.repeat(missing - left)
}

export function zeroFill(text: string, width: number, signs = '-+'): string {
  const sign = text !== '' && signs.includes(text.charAt(0)) ? text.charAt(0) : ''
  return sign + pad(text.slice(sign.length), width - sign.length, '0', '>')
}

/** `'{} and {name.part[0]:>8.2f}'.format(…)`. Throws for unsupported features. */
export function format(text: string, given: FormatArguments): string {
  const { args, named } = given
  let next = 0
  return text.replaceAll(/\{\{|\}\}|\{([^{}]*)\}|[{}]/g, (whole: string, field?: string) => {
    if (whole === '{{' || whole === '}}') return whole.slice(1)
    const found = field === undefined ? null : fieldPattern.exec(field)
    if (found === null) fail(`format does not support '${whole}'${fieldHint(whole)}`)
    const [, key = '', path = '', how, specification = ''] = found
    const value = /^\d*$/.test(key) ? args[key === '' ? next++ : Number(key)] : named.get(key)
    if (value === undefined) fail(`format has no value for {${key}}`)
    spend(2)
    const steps = Array.from(path.matchAll(/\.([^.[]+)|\[([^\]]+)\]/g))
    const part = steps.reduce<Value>((of, [, name, index]) => {
      if (name === undefined) return partOf(of, toIndex(index))
      if (given.isMethod(of, name)) fail(`format does not support the method '${name}' in braces`)
      return partOf(of, name)
    }, value)
    const shown = how === undefined ? part : how === 'r' ? toRepr(part) : toText(part)
    const written = specification === '' ? toText(shown) : formatValue(shown, specification)
    spendChars(written.length)
    return written
  })
}

const fieldHint = (field: string): string =>
  field.length === 1 ? ' that is single or around other braces' : ''

const fieldPattern = /^(\w*)((?:\.\w+|\[[^\]]+\])*)(?:!([sr]))?(?::(.*))?$/su

const toIndex = (text = ''): string | number => (/^\d+$/.test(text) ? Number(text) : text)

/** The member or item of a value; undefined if there is none. */
function partOf(of: Value, key: string | number): Value {
  const whole = defined(of)
  const none = new Undefined(`'${typeName(whole)} object' has no attribute '${key}'`)
  if (whole instanceof Dict) return valueOr(whole.get(key), none)
  if (whole instanceof Namespace) return valueOr(whole.get(String(key)), none)
  if (typeof key !== 'number' || (!Array.isArray(whole) && textOf(whole) === null)) return none
  spendFor(textOf(whole))
  return valueOr(iterate(whole)[key], none)
}

const specificationPattern = /^(?:(.)?([<>^]))?([-+ ]?)(0?)(\d{0,3})(,?)(?:\.(\d{1,2}))?([sdf]?)$/su

const withCommas = (digits: string): string => digits.replaceAll(/\B(?=(?:\d{3})+$)/g, ',')

const firstLetters = (text: string, count: number): string =>
  Array.from(text.slice(0, 2 * count))
    .slice(0, count)
    .join('')

/** Formats a value according to a specification such as `>8.2f`. */
function formatValue(value: Value, specification: string): string {
  const unsupported = `format does not support ':${specification}' for ${typeName(value)}`
  const found = specificationPattern.exec(specification) ?? fail(unsupported)
  const [, fill, align, sign = '', zero = '', width = '', comma = '', places, kind = ''] = found
  const text = textOf(value)
  const by = fill ?? (zero === '' ? ' ' : '0')
  if (text !== null) {
    if (sign + comma !== '' || kind === 'd' || kind === 'f') fail(unsupported)
    const cut = places === undefined ? text : firstLetters(text, Number(places))
    return pad(cut, Number(width), by, align ?? '<')
  }
  const number = numberOf(value)
  const isPlain = places === undefined && (kind === '' || (kind === 'd' && !isFloat(value)))
  const isKnown = (isPlain || kind === 'f') && (zero === '' || comma === '')
  if (number === null || !isKnown) fail(unsupported)
  const plain = isPlain
    ? numberText(number, isFloat(value))
    : fixedText(number, Number(places ?? 6))
  const digits = comma === '' ? plain : plain.replace(/\d+/, withCommas)
  const signed = sign === '' || sign === '-' || digits.startsWith('-') ? digits : sign + digits
  return zero !== '' && align === undefined
    ? zeroFill(signed, Number(width), '-+ ')
    : pad(signed, Number(width), by, align ?? '>')
}

/** The maximum that JavaScript supports. Further digits would be zeros. */
const maxPlaces = 100
/** With this many more places, a half is represented exactly. */
const morePlaces = 25

/** Formats a number with `wanted` decimal places. Halves are rounded to the nearest even digit. */
function fixedText(value: number, wanted: number): string {
  const places = Math.min(wanted, maxPlaces)
  const size = Math.abs(value)
  if (!Number.isFinite(size)) return numberText(value, true)
  const sign = value < 0 || Object.is(value, -0) ? '-' : ''
  if (size >= 1e21) return `${sign}${BigInt(size)}${places > 0 ? `.${'0'.repeat(places)}` : ''}`
  if (places + morePlaces > maxPlaces) return sign + size.toFixed(places)
  const exact = size.toFixed(places + morePlaces)
  const cut = exact.slice(0, -morePlaces).replace(/\.$/, '')
  const isEvenHalf = /[02468]$/.test(cut) && /^50*$/.test(exact.slice(-morePlaces))
  return sign + (isEvenHalf ? cut : size.toFixed(places))
}

/** Evaluates `'%s has %d' % (a, b)`. */
export function formatPercent(
  pattern: string,
  given: Value,
  named: ReadonlyMap<string, Value> = new Map(),
): string {
  const values = given instanceof Tuple ? given : [given]
  let next = 0
  return pattern.replaceAll(
    /%(?:\((\w+)\))?([-0+ ]*)((?:[1-9]\d*)?)(?:\.(\d+))?([sdifrx%])/g,
    (_, name: string | undefined, flags: string, width: string, places: string, kind: string) => {
      if (kind === '%') return '%'
      const value = name === undefined ? values[next++] : memberOf(given, named, name)
      if (value === undefined) throw new TemplateError('not enough arguments for format string')
      spendChars(Number(width))
      const text = formatOne(value, kind, places)
      const written = flags.includes('-')
        ? text.padEnd(Number(width))
        : text.padStart(Number(width), flags.includes('0') ? '0' : ' ')
      spendChars(written.length)
      return written
    },
  )
}

const memberOf = (
  given: Value,
  named: ReadonlyMap<string, Value>,
  name: string,
): Value | undefined => named.get(name) ?? (given instanceof Dict ? given.get(name) : undefined)

function formatOne(value: Value, kind: string, places: string | undefined): string {
  if (kind === 's') return toText(value)
  if (kind === 'r') return toRepr(value)
  const number = numberOf(value)
  if (number === null) throw new TemplateError(`%${kind} format: a number is required`)
  if (kind === 'f') return fixedText(number, Number(places ?? 6))
  return kind === 'x' ? Math.trunc(number).toString(16) : String(Math.trunc(number))
}

interface JsonStyle {
  readonly indent: string | null
  readonly item: string
  readonly key: string
  readonly isAscii: boolean
  readonly isSorted: boolean
}

/** The filter `tojson`. */
export function toJson(value: Value, args: readonly Value[], named: Named): Value {
  const option = (at: number, name: string): Value => named.get(name) ?? args[at] ?? null
  const width = option(1, 'indent')
  const separators = option(2, 'separators')
  const [item, key] = Array.isArray(separators) ? separators : [undefined, undefined]
  const indent = width === null ? null : (textOf(width) ?? spaces(numberOf(width) ?? 0))
  return write(value, '\n', {
    indent,
    item: item === undefined ? (indent === null ? ', ' : ',') : toText(item),
    key: key === undefined ? ': ' : toText(key),
    isAscii: isTrue(option(0, 'ensure_ascii')),
    isSorted: isTrue(option(3, 'sort_keys')),
  })
}

/** `line` is the line break with the indentation of the enclosing level. */
function write(value: Value, line: string, style: JsonStyle): string {
  spend(1)
  if (value === null || typeof value === 'boolean') return String(value)
  const text = textOf(value)
  if (text !== null) return writeText(text, style)
  const number = numberOf(value)
  if (number !== null) return writeNumber(number, isFloat(value))
  if (isList(value) || value instanceof Dict) return inside(() => writeParts(value, line, style))
  throw new TemplateError(`Object of type ${typeName(value)} is not JSON serializable`)
}

const isList = (value: Value): value is Value[] =>
  Array.isArray(value) && (value.constructor === Array || value instanceof Tuple)

function writeParts(value: Value[] | Dict, line: string, style: JsonStyle): string {
  const inner = style.indent === null ? '' : line + style.indent
  const outer = style.indent === null ? '' : line
  const below = line + (style.indent ?? '')
  spendChars(inner.length * (isList(value) ? value.length : value.size))
  if (Array.isArray(value)) {
    if (value.length === 0) return '[]'
    const items = value.map((item) => write(item, below, style))
    return `[${inner}${items.join(style.item + inner)}${outer}]`
  }
  if (value.size === 0) return '{}'
  const entries = style.isSorted ? sortedEntries(value) : [...value]
  const members = entries.map(
    ([key, item]) => writeKey(key, style) + style.key + write(item, below, style),
  )
  return `{${inner}${members.join(style.item + inner)}${outer}}`
}

const sortedEntries = (dict: Dict): readonly (readonly [Key, Value])[] =>
  [...dict].toSorted(([one], [other]) => (String(one) < String(other) ? -1 : 1))

const writeKey = (key: Key, style: JsonStyle): string =>
  typeof key === 'string' ? writeText(key, style) : `"${String(key)}"`

function writeNumber(value: number, isWhole: boolean): string {
  if (Number.isNaN(value)) return 'NaN'
  if (!Number.isFinite(value)) return value > 0 ? 'Infinity' : '-Infinity'
  return numberText(value, isWhole)
}

function writeText(text: string, { isAscii }: JsonStyle): string {
  spendChars(text.length)
  // JSON.stringify escapes lone surrogates, which Python would write unchanged.
  const json = JSON.stringify(text).replaceAll('\u007F', isAscii ? String.raw`\u007f` : '\u007F')
  if (!isAscii) return json
  return json.replaceAll(
    /[\u0080-\uFFFF]/g,
    (letter) => String.raw`\u${letter.charCodeAt(0).toString(16).padStart(4, '0')}`,
  )
}

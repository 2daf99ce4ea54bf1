/** Formats text as Python does: `str.format`, the operator `%`, and JSON. */

import { fail, spend, spendChars } from './limits.ts'
import {
  expectDefined,
  Dict,
  withValueDepth,
  isFloat,
  isTrue,
  iterate,
  type DictKey,
  getLength,
  type NamedArguments,
  Namespace,
  asNumber,
  numberToText,
  repeatSpace,
  spendFor,
  asText,
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
  readonly named: NamedArguments
  isMethod(of: Value, name: string): boolean
}

/** Pads a text. The width is in code points. */
export function padText(text: string, width: number, by: string, side: string): string {
  const missing = Math.max(0, width - getLength(text))
  const left = side === '>' ? missing : side === '^' ? Math.floor(missing / 2) : 0
  spendChars(missing * by.length)
  return by.repeat(left) + text + by.repeat(missing - left)
}

export function zeroFill(text: string, width: number, signs = '-+'): string {
  const sign = text !== '' && signs.includes(text.charAt(0)) ? text.charAt(0) : ''
  return sign + padText(text.slice(sign.length), width - sign.length, '0', '>')
}

/** Evaluates `'{} and {name.part[0]:>8.2f}'.format(…)`. Throws for unsupported features. */
export function formatText(text: string, given: FormatArguments): string {
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
      if (name === undefined) return resolvePart(of, toIndex(index))
      if (given.isMethod(of, name)) fail(`format does not support the method '${name}' in braces`)
      return resolvePart(of, name)
    }, value)
    const shown = how === undefined ? part : how === 'r' ? toRepr(part) : toText(part)
    const written =
      specification === '' ? toText(shown) : formatBySpecification(shown, specification)
    spendChars(written.length)
    return written
  })
}

const fieldHint = (field: string): string =>
  field.length === 1 ? ' that is single or around other braces' : ''

const fieldPattern = /^(\w*)((?:\.\w+|\[[^\]]+\])*)(?:!([sr]))?(?::(.*))?$/su

const toIndex = (text = ''): string | number => (/^\d+$/.test(text) ? Number(text) : text)

function resolvePart(of: Value, key: string | number): Value {
  const whole = expectDefined(of)
  const none = new Undefined(`'${typeName(whole)} object' has no attribute '${key}'`)
  if (whole instanceof Dict) return valueOr(whole.get(key), none)
  if (whole instanceof Namespace) return valueOr(whole.get(String(key)), none)
  if (typeof key !== 'number' || (!Array.isArray(whole) && asText(whole) === null)) return none
  spendFor(asText(whole))
  return valueOr(iterate(whole)[key], none)
}

const specificationPattern = /^(?:(.)?([<>^]))?([-+ ]?)(0?)(\d{0,3})(,?)(?:\.(\d{1,2}))?([sdf]?)$/su

const takeLetters = (text: string, count: number): string =>
  Array.from(text.slice(0, 2 * count))
    .slice(0, count)
    .join('')

function formatBySpecification(value: Value, specification: string): string {
  const unsupported = `format does not support ':${specification}' for ${typeName(value)}`
  const found = specificationPattern.exec(specification) ?? fail(unsupported)
  const [, fill, align, sign = '', zero = '', width = '', comma = '', places, kind = ''] = found
  const text = asText(value)
  const by = fill ?? (zero === '' ? ' ' : '0')
  if (text !== null) {
    if (sign + comma !== '' || kind === 'd' || kind === 'f') fail(unsupported)
    const cut = places === undefined ? text : takeLetters(text, Number(places))
    return padText(cut, Number(width), by, align ?? '<')
  }
  const number = asNumber(value)
  const isPlain = places === undefined && (kind === '' || (kind === 'd' && !isFloat(value)))
  const isKnown = (isPlain || kind === 'f') && (zero === '' || comma === '')
  if (number === null || !isKnown) fail(unsupported)
  const plain = isPlain
    ? numberToText(number, isFloat(value))
    : toFixedText(number, Number(places ?? 6))
  const digits =
    comma === ''
      ? plain
      : plain.replace(/\d+/, (whole) => whole.replaceAll(/\B(?=(?:\d{3})+$)/g, ','))
  const signed = sign === '' || sign === '-' || digits.startsWith('-') ? digits : sign + digits
  return zero !== '' && align === undefined
    ? zeroFill(signed, Number(width), '-+ ')
    : padText(signed, Number(width), by, align ?? '>')
}

/** The maximum of `toFixed` in JavaScript. Further digits would be zeros. */
const maxDecimalPlaces = 100
/** The number of additional places that are computed to recognize an exact half. */
const extraDecimalPlaces = 25

/** Formats a number with a fixed number of places. Halves are rounded to the nearest even digit. */
function toFixedText(value: number, wanted: number): string {
  const places = Math.min(wanted, maxDecimalPlaces)
  const size = Math.abs(value)
  if (!Number.isFinite(size)) return numberToText(value, true)
  const sign = value < 0 || Object.is(value, -0) ? '-' : ''
  if (size >= 1e21) return `${sign}${BigInt(size)}${places > 0 ? `.${'0'.repeat(places)}` : ''}`
  if (places + extraDecimalPlaces > maxDecimalPlaces) return sign + size.toFixed(places)
  const exact = size.toFixed(places + extraDecimalPlaces)
  const cut = exact.slice(0, -extraDecimalPlaces).replace(/\.$/, '')
  const isEvenHalf = /[02468]$/.test(cut) && /^50*$/.test(exact.slice(-extraDecimalPlaces))
  return sign + (isEvenHalf ? cut : size.toFixed(places))
}

/** Evaluates `'%s has %d' % (a, b)`. */
export function formatPercent(
  pattern: string,
  given: Value,
  keywords: NamedArguments = new Map(),
): string {
  const values = given instanceof Tuple ? given : [given]
  let next = 0
  return pattern.replaceAll(
    /%(?:\((\w+)\))?([-0+ ]*)((?:[1-9]\d*)?)(?:\.(\d+))?([sdifrx%])/g,
    (_, name: string | undefined, flags: string, width: string, places: string, kind: string) => {
      if (kind === '%') return '%'
      const named = name !== undefined && given instanceof Dict ? given.get(name) : undefined
      const value = name === undefined ? values[next++] : (keywords.get(name) ?? named)
      if (value === undefined) fail('not enough arguments for format string')
      spendChars(Number(width))
      const text = formatPrintfValue(value, kind, places)
      const written = flags.includes('-')
        ? text.padEnd(Number(width))
        : text.padStart(Number(width), flags.includes('0') ? '0' : ' ')
      spendChars(written.length)
      return written
    },
  )
}

function formatPrintfValue(value: Value, kind: string, places: string | undefined): string {
  if (kind === 's') return toText(value)
  if (kind === 'r') return toRepr(value)
  const number = asNumber(value)
  if (number === null) fail(`%${kind} format: a number is required`)
  if (kind === 'f') return toFixedText(number, Number(places ?? 6))
  return kind === 'x' ? Math.trunc(number).toString(16) : String(Math.trunc(number))
}

interface JsonStyle {
  readonly indent: string | null
  readonly itemSeparator: string
  readonly keySeparator: string
  readonly isAscii: boolean
  readonly isSorted: boolean
}

export function toJson(
  value: Value,
  ensureAscii: Value = false,
  width: Value = null,
  separators: Value = null,
  sortKeys: Value = false,
): Value {
  const indent = width === null ? null : (asText(width) ?? repeatSpace(asNumber(width) ?? 0))
  const [item = indent === null ? ', ' : ',', key = ': '] = Array.isArray(separators)
    ? separators.map(toText)
    : []
  return writeValue(value, '\n', {
    indent,
    itemSeparator: item,
    keySeparator: key,
    isAscii: isTrue(ensureAscii),
    isSorted: isTrue(sortKeys),
  })
}

/** Writes a value as JSON. `line` is the line break with the indentation of the enclosing level. */
function writeValue(value: Value, line: string, style: JsonStyle): string {
  spend(1)
  if (value === null || typeof value === 'boolean') return String(value)
  const text = asText(value)
  if (text !== null) return writeText(text, style)
  const number = asNumber(value)
  if (number !== null) return writeNumber(number, isFloat(value))
  if (isList(value) || value instanceof Dict)
    return withValueDepth(() => writeParts(value, line, style))
  return fail(`Object of type ${typeName(value)} is not JSON serializable`)
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
    const items = value.map((item) => writeValue(item, below, style))
    return `[${inner}${items.join(style.itemSeparator + inner)}${outer}]`
  }
  if (value.size === 0) return '{}'
  const entries = [...value]
  if (style.isSorted) entries.sort(([one], [other]) => (String(one) < String(other) ? -1 : 1))
  const members = entries.map(
    ([key, item]) => writeKey(key, style) + style.keySeparator + writeValue(item, below, style),
  )
  return `{${inner}${members.join(style.itemSeparator + inner)}${outer}}`
}

const writeKey = (key: DictKey, style: JsonStyle): string =>
  typeof key === 'string' ? writeText(key, style) : `"${String(key)}"`

function writeNumber(value: number, isWhole: boolean): string {
  if (Number.isNaN(value)) return 'NaN'
  if (!Number.isFinite(value)) return value > 0 ? 'Infinity' : '-Infinity'
  return numberToText(value, isWhole)
}

function writeText(text: string, { isAscii }: JsonStyle): string {
  spendChars(text.length)
  // `JSON.stringify` escapes lone surrogates, which Python would write unchanged.
  const json = JSON.stringify(text).replaceAll('\u007F', isAscii ? String.raw`\u007f` : '\u007F')
  if (!isAscii) return json
  return json.replaceAll(
    /[\u0080-\uFFFF]/g,
    (letter) => String.raw`\u${letter.charCodeAt(0).toString(16).padStart(4, '0')}`,
  )
}

/** Formats text as Python does: `str.format` and JSON. */

import { fail, spend, spendChars } from './limits.ts'
import {
  Dict,
  withValueDepth,
  isFloat,
  isTrue,
  type DictKey,
  type NamedArguments,
  asNumber,
  numberToText,
  repeatSpace,
  asText,
  toText,
  Tuple,
  typeName,
  type Value,
} from './values.ts'

/** Evaluates `'{} {0} {name}'.format(…)`. Throws for members, conversions and specifications. */
export function formatText(text: string, args: readonly Value[], named: NamedArguments): string {
  let next = 0
  return text.replaceAll(/\{\{|\}\}|\{(\w*)\}|[{}]/g, (whole: string, key?: string) => {
    if (whole === '{{' || whole === '}}') return whole.slice(1)
    if (key === undefined) fail('format supports only {}, {0} and {name}')
    const value = /^\d*$/.test(key) ? args[key === '' ? next++ : Number(key)] : named.get(key)
    if (value === undefined) fail(`format has no value for ${whole}`)
    const written = toText(value)
    spend(2)
    spendChars(written.length)
    return written
  })
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
  const outerLine = style.indent === null ? '' : line
  const innerLine = line + (style.indent ?? '')
  spendChars(inner.length * (isList(value) ? value.length : value.size))
  if (Array.isArray(value)) {
    if (value.length === 0) return '[]'
    const items = value.map((item) => writeValue(item, innerLine, style))
    return `[${inner}${items.join(style.itemSeparator + inner)}${outerLine}]`
  }
  if (value.size === 0) return '{}'
  const entries = [...value]
  if (style.isSorted) entries.sort(([one], [other]) => (String(one) < String(other) ? -1 : 1))
  const members = entries.map(
    ([key, item]) => writeKey(key, style) + style.keySeparator + writeValue(item, innerLine, style),
  )
  return `{${inner}${members.join(style.itemSeparator + inner)}${outerLine}}`
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

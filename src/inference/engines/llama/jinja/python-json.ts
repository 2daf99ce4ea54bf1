/** Writes JSON as Python does, because models were trained with that format. */

import { spend, spendChars, TemplateError } from './limits.ts'
import {
  Dict,
  inside,
  isFloat,
  isTrue,
  type Key,
  type Named,
  numberOf,
  numberText,
  spaces,
  textOf,
  Tuple,
  toText,
  typeName,
  type Value,
} from './values.ts'

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

/** `line` is the line break with the indentation of the level that contains the value. */
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

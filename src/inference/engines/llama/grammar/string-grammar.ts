/** GBNF expressions for texts: JSON strings, keys of objects, and choices of texts. Pure. */

import { tryRead } from '../../../../foundation/errors.ts'
import { toGbnfCode, type Lengths, patternGrammar } from './pattern-grammar.ts'
import { impossibleSchema, type Schema, SchemaError } from './schema-keywords.ts'

export function stringGrammar(schema: Schema): string {
  const { minLength: min = 0, maxLength: max = Infinity, pattern, format } = schema
  const lengths = { min: Number(min), max: Number(max) }
  if (lengths.min > lengths.max) throw impossibleSchema('no text has both lengths')
  if (typeof pattern === 'string') return patternString(pattern, lengths)
  if (typeof format === 'string' && !storageFormats.has(format))
    return formatString(format, lengths)
  if (lengths.min === 0 && lengths.max === Infinity) return 'string'
  const range = `{${lengths.min},${lengths.max === Infinity ? '' : lengths.max}}`
  return String.raw`"\"" char${range} "\""`
}

const quotePattern = (pattern: string, lengths: Lengths): string =>
  String.raw`"\"" ${patternGrammar(pattern, 'json', lengths)} "\""`

/** If a pattern cannot be converted, uses a known format whose texts all match the pattern. */
function patternString(pattern: string, lengths: Lengths): string {
  try {
    return quotePattern(pattern, lengths)
  } catch (error) {
    const format = formatsByPattern.get(pattern)
    if (format === undefined) throw error
    return formatString(format, lengths)
  }
}

function formatString(format: string, lengths: Lengths): string {
  const forms = Object.hasOwn(stringFormats, format) ? stringFormats[format] : undefined
  if (forms === undefined) throw new SchemaError(`\`format\`: \`${format}\` cannot be enforced`)
  for (const form of forms) {
    const text = tryRead(() => quotePattern(form, lengths))
    if (text !== undefined) return text
  }
  throw new SchemaError('`format` with this `minLength` or `maxLength` cannot be enforced')
}

const year = String.raw`\d{4}`
const month = '(?:0[1-9]|1[0-2])'
const day = '(?:0[1-9]|1\\d|2[0-8])'
const time = String.raw`(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d`
const zone = String.raw`(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)`
const byte = String.raw`(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)`
const hex = '[0-9a-f]'

/** A host name with up to `labels` labels before the last one, which has only letters. */
const hostPattern = (labels: number, letters: number): string =>
  String.raw`(?:[a-z0-9](?:[a-z0-9-]{0,${letters - 2}}[a-z0-9])?\.){1,${labels}}[a-z]{2,6}`
const widestHost = hostPattern(4, 32)
const emailUser = (parts: number, letters: number): string =>
  `[a-z0-9]{1,${letters}}(?:[._+-][a-z0-9]{1,${letters}}){0,${parts - 1}}`
const uriPath = (parts: number, letters: number): string =>
  `(?:/[A-Za-z0-9._~-]{0,${letters}}){0,${parts}}`
const uris = [
  `^https?://${widestHost}${uriPath(6, 32)}$`,
  `^https?://${hostPattern(3, 16)}${uriPath(4, 16)}$`,
  `^https?://${hostPattern(2, 8)}${uriPath(1, 8)}$`,
  `^https?://${hostPattern(1, 8)}$`,
]

/** Patterns by format, widest first. They exclude some valid texts, such as days after the 28th. */
const stringFormats: Readonly<Record<string, readonly string[]>> = {
  date: [`^${year}-${month}-${day}$`],
  time: [`^${time}${zone}$`],
  'date-time': [`^${year}-${month}-${day}T${time}${zone}$`, `^${year}-${month}-${day}T${time}Z$`],
  duration: [String.raw`^P(?:\d{1,4}D(?:T\d{1,2}H)?|T\d{1,4}(?:H|M|S))$`],
  uuid: [`^${hex}{8}-${hex}{4}-[1-5]${hex}{3}-[89ab]${hex}{3}-${hex}{12}$`],
  email: [
    `^${emailUser(3, 16)}@${widestHost}$`,
    `^${emailUser(2, 8)}@${hostPattern(2, 8)}$`,
    `^${emailUser(1, 8)}@${hostPattern(1, 8)}$`,
  ],
  hostname: [`^${widestHost}$`, `^${hostPattern(2, 16)}$`, `^${hostPattern(1, 8)}$`],
  ipv4: [String.raw`^${byte}\.${byte}\.${byte}\.${byte}$`],
  ipv6: [`^(?:${hex}{1,4}:){7}${hex}{1,4}$`],
  uri: uris,
  url: uris,
}

/**
 * The formats of patterns of zod that may not be convertible. All texts of a format match the
 * pattern.
 */
const formatsByPattern: ReadonlyMap<string, string> = new Map(
  Object.entries({
    email: [
      String.raw`^(?:[A-Za-z0-9_'+\-]+\.)*[A-Za-z0-9_'+\-]*[A-Za-z0-9_+-]@`,
      String.raw`(?:[A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$`,
    ],
    'email of zod up to 4.3': [
      String.raw`^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@`,
      String.raw`([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$`,
    ],
    duration: [
      String.raw`^P(?:(\d+W)|(?!.*W)(?=\d|T\d)(\d+Y)?(\d+M)?(\d+D)?`,
      String.raw`(T(?=\d)(\d+H)?(\d+M)?(\d+([.,]\d+)?S)?)?)$`,
    ],
    hostname: [
      String.raw`^(?=.{1,253}\.?$)[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?`,
      String.raw`(?:\.[a-zA-Z0-9](?:[-0-9a-zA-Z]{0,61}[0-9a-zA-Z])?)*\.?$`,
    ],
  }).map(([name, parts]) => [parts.join(''), name.split(' ', 1).join('')]),
)

/** Formats that only say how a value is stored. They do not restrict texts. */
export const storageFormats: ReadonlySet<string> = new Set(
  'int32 int64 float double byte binary password'.split(' '),
)

interface KeyTrie {
  readonly next: Map<string, KeyTrie>
  isName: boolean
  /** Whether a name continues with a character that JSON escapes. */
  isEscaped: boolean
}

const emptyTrie = (): KeyTrie => ({ next: new Map(), isName: false, isEscaped: false })

/**
 * The number of letters of a name that are compared. If a name is longer, all keys that begin with
 * these letters are excluded.
 */
const maxComparedLetters = 64

/**
 * Matches keys that differ from all `names`. Escapes may only follow the first difference, because
 * before it they could spell a name.
 */
export function otherKeyGrammar(names: readonly string[]): string {
  const root = emptyTrie()
  for (const name of names) addName(root, name)
  return String.raw`"\"" ${excludeNames(root, 0)} "\""`
}

function addName(root: KeyTrie, name: string): void {
  let at = root
  for (const letter of Array.from(name).slice(0, maxComparedLetters)) {
    if (/["\\\p{Cc}]/u.test(letter)) {
      at.isEscaped = true
      return
    }
    const next = at.next.get(letter) ?? emptyTrie()
    at.next.set(letter, next)
    at = next
  }
  at.isName = true
}

function excludeNames({ next, isName, isEscaped }: KeyTrie, depth: number): string {
  if (next.size === 0 && !isEscaped) return 'char+'
  const codes = Array.from(next.keys(), (letter) => toGbnfCode(letter.codePointAt(0) ?? 0))
  const others = String.raw`[^"\\\x7F\x00-\x1F${codes.join('')}] char*`
  const deeperNodes = depth + 1 < maxComparedLetters ? [...next.values()] : []
  const known = deeperNodes.map((one, at) => `[${codes[at] ?? ''}] ${excludeNames(one, depth + 1)}`)
  return `( ${[others, ...known].join(' | ')} )${isName ? '' : '?'}`
}

/** More texts than this are grouped by common prefixes, which takes fewer steps. */
const maxListed = 16
const maxDepth = 100

export function textChoice(texts: readonly string[]): string {
  const distinct = [...new Set(texts)]
  if (distinct.length <= maxListed) return distinct.map(quoteLiteral).join(' | ')
  const letters = distinct.map((text) => Array.from(text))
  return groupTexts(letters, 0, 0)
}

/** Writes a GBNF literal, which has fewer escapes than a JSON string. */
export function quoteLiteral(text: string): string {
  const escaped = text.replaceAll('\\', String.raw`\\`).replaceAll('"', String.raw`\"`)
  return `"${escaped.replaceAll('\n', String.raw`\n`)}"`
}

function groupTexts(texts: readonly (readonly string[])[], from: number, depth: number): string {
  if (depth >= maxDepth)
    return texts.map((text) => quoteLiteral(text.slice(from).join(''))).join(' | ')
  const groups = Map.groupBy(texts, (text) => text[from] ?? '')
  return Array.from(groups.values(), (group) => groupByPrefix(group, from, depth)).join(' | ')
}

/** Writes the common part of texts, then their continuations. */
function groupByPrefix(texts: readonly (readonly string[])[], from: number, depth: number): string {
  const [first = []] = texts
  const differs = (at: number): boolean => texts.some((text) => text[at] !== first[at])
  let to = from
  while (to < first.length && !differs(to)) to++
  const common = quoteLiteral(first.slice(from, to).join(''))
  return texts.length === 1 ? common : `${common} ( ${groupTexts(texts, to, depth + 1)} )`
}

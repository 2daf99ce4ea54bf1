/** Expressions for texts: JSON strings, keys of objects, and choices of texts. Pure. */

import { codeText, type Lengths, patternGrammar } from './pattern-grammar.ts'
import { impossible, type Schema, SchemaFault } from './schema-keywords.ts'

/** Throws an `Error` that names what cannot be enforced. */
export function stringGrammar(schema: Schema): string {
  const { minLength: min = 0, maxLength: max = Infinity, pattern, format } = schema
  const lengths = { min: Number(min), max: Number(max) }
  if (lengths.min > lengths.max) throw impossible('no text has both lengths')
  if (typeof pattern === 'string') return ofPattern(pattern, lengths)
  if (typeof format === 'string' && !freeFormats.has(format)) return ofFormat(format, lengths)
  if (lengths.min === 0 && lengths.max === Infinity) return 'string'
  const range = `{${lengths.min},${lengths.max === Infinity ? '' : lengths.max}}`
  return String.raw`"\"" char${range} "\""`
}

const inQuotes = (pattern: string, lengths: Lengths): string =>
  String.raw`"\"" ${patternGrammar(pattern, 'json', lengths)} "\""`

/** Replaces an unconvertible pattern with a format whose texts are known to match it. */
function ofPattern(pattern: string, lengths: Lengths): string {
  try {
    return inQuotes(pattern, lengths)
  } catch (error) {
    const format = formatsOfPatterns.get(pattern)
    if (format === undefined) throw error
    return ofFormat(format, lengths)
  }
}

/** Uses the widest pattern of the format that allows these lengths. */
function ofFormat(format: string, lengths: Lengths): string {
  const forms = Object.hasOwn(stringFormats, format) ? stringFormats[format] : undefined
  if (forms === undefined) throw new SchemaFault(`\`format\`: \`${format}\` cannot be enforced`)
  for (const form of forms) {
    try {
      return inQuotes(form, lengths)
    } catch {}
  }
  throw new SchemaFault('`format` with this `minLength` or `maxLength` cannot be enforced')
}

const year = String.raw`\d{4}`
const month = '(?:0[1-9]|1[0-2])'
const day = '(?:0[1-9]|1\\d|2[0-8])'
const time = String.raw`(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d`
const zone = String.raw`(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)`
const byte = String.raw`(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)`
const hex = '[0-9a-f]'

/** A host name with up to `labels` labels before the last label, which has only letters. */
const host = (labels: number, letters: number): string =>
  String.raw`(?:[a-z0-9](?:[a-z0-9-]{0,${letters - 2}}[a-z0-9])?\.){1,${labels}}[a-z]{2,6}`
const wideHost = host(4, 32)
const user = (parts: number, letters: number): string =>
  `[a-z0-9]{1,${letters}}(?:[._+-][a-z0-9]{1,${letters}}){0,${parts - 1}}`
const path = (parts: number, letters: number): string =>
  `(?:/[A-Za-z0-9._~-]{0,${letters}}){0,${parts}}`
const uris = [
  `^https?://${wideHost}${path(6, 32)}$`,
  `^https?://${host(3, 16)}${path(4, 16)}$`,
  `^https?://${host(2, 8)}${path(1, 8)}$`,
  `^https?://${host(1, 8)}$`,
]

/**
 * Narrower than the formats, so that every match is valid: days end with the 28th. The widest
 * pattern comes first; others are for texts with a smaller maximum length.
 */
const stringFormats: Readonly<Record<string, readonly string[]>> = {
  date: [`^${year}-${month}-${day}$`],
  time: [`^${time}${zone}$`],
  'date-time': [`^${year}-${month}-${day}T${time}${zone}$`, `^${year}-${month}-${day}T${time}Z$`],
  duration: [String.raw`^P(?:\d{1,4}D(?:T\d{1,2}H)?|T\d{1,4}(?:H|M|S))$`],
  uuid: [`^${hex}{8}-${hex}{4}-[1-5]${hex}{3}-[89ab]${hex}{3}-${hex}{12}$`],
  email: [
    `^${user(3, 16)}@${wideHost}$`,
    `^${user(2, 8)}@${host(2, 8)}$`,
    `^${user(1, 8)}@${host(1, 8)}$`,
  ],
  hostname: [`^${wideHost}$`, `^${host(2, 16)}$`, `^${host(1, 8)}$`],
  ipv4: [String.raw`^${byte}\.${byte}\.${byte}\.${byte}$`],
  ipv6: [`^(?:${hex}{1,4}:){7}${hex}{1,4}$`],
  uri: uris,
  url: uris,
}

/**
 * Patterns that zod writes for formats, with look-around or without a length limit. They match
 * every text that the patterns above match.
 */
const formatsOfPatterns: ReadonlyMap<string, string> = new Map(
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

/** Formats about the storage of a value, which do not restrict generated values. */
export const freeFormats: ReadonlySet<string> = new Set(
  'int32 int64 float double byte binary password'.split(' '),
)

interface Letters {
  readonly next: Map<string, Letters>
  isName: boolean
  /** Whether a name continues with a letter that JSON escapes. */
  isEscaped: boolean
}

const noLetters = (): Letters => ({ next: new Map(), isName: false, isEscaped: false })

/** The number of compared letters. Keys that begin like a longer name are also excluded. */
const maxLetters = 64

/**
 * An expression for a key that equals none of the names. Escapes are allowed only once the key
 * differs from all names, because an escape could spell a letter of a name.
 */
export function otherKey(names: readonly string[]): string {
  const root = noLetters()
  for (const name of names) add(root, name)
  return String.raw`"\"" ${spell(root, 0)} "\""`
}

function add(root: Letters, name: string): void {
  let at = root
  for (const letter of Array.from(name).slice(0, maxLetters)) {
    if (/["\\\p{Cc}]/u.test(letter)) {
      at.isEscaped = true
      return
    }
    const next = at.next.get(letter) ?? noLetters()
    at.next.set(letter, next)
    at = next
  }
  at.isName = true
}

function spell({ next, isName, isEscaped }: Letters, depth: number): string {
  if (next.size === 0 && !isEscaped) return 'char+'
  const codes = Array.from(next.keys(), (letter) => codeText(letter.codePointAt(0) ?? 0))
  const others = String.raw`[^"\\\x7F\x00-\x1F${codes.join('')}] char*`
  const longer = depth + 1 < maxLetters ? [...next.values()] : []
  const known = longer.map((one, at) => `[${codes[at] ?? ''}] ${spell(one, depth + 1)}`)
  return `( ${[others, ...known].join(' | ')} )${isName ? '' : '?'}`
}

/**
 * More texts are grouped by common prefixes, because llama.cpp compares all with the same
 * beginning.
 */
const maxListed = 16
/** The maximum depth of nested brackets. */
const maxDepth = 100

/** An expression that matches any of the texts. */
export function textChoice(texts: readonly string[]): string {
  const distinct = [...new Set(texts)]
  if (distinct.length <= maxListed) return distinct.map(quoted).join(' | ')
  const letters = distinct.map((text) => Array.from(text))
  return alternatives(letters, 0, 0)
}

/** A GBNF string literal, which has fewer escapes than JSON. */
export function quoted(text: string): string {
  const escaped = text.replaceAll('\\', String.raw`\\`).replaceAll('"', String.raw`\"`)
  return `"${escaped.replaceAll('\n', String.raw`\n`)}"`
}

/** The rest of texts that are equal before `from`. */
function alternatives(texts: readonly (readonly string[])[], from: number, depth: number): string {
  if (depth >= maxDepth) return texts.map((text) => quoted(text.slice(from).join(''))).join(' | ')
  const groups = Map.groupBy(texts, (text) => text[from] ?? '')
  return Array.from(groups.values(), (group) => sequence(group, from, depth)).join(' | ')
}

/** The rest of texts with the same letter at `from`: the common part, then the alternatives. */
function sequence(texts: readonly (readonly string[])[], from: number, depth: number): string {
  const [first = []] = texts
  const differs = (at: number): boolean => texts.some((text) => text[at] !== first[at])
  let to = from
  while (to < first.length && !differs(to)) to++
  const common = quoted(first.slice(from, to).join(''))
  return texts.length === 1 ? common : `${common} ( ${alternatives(texts, to, depth + 1)} )`
}

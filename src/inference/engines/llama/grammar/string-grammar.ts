/** Expressions for JSON strings with a pattern, a format or a length. Pure. */

import { type Lengths, patternGrammar } from './pattern-grammar.ts'
import { impossible, type Schema, SchemaFault } from './schema-keywords.ts'
import { formatsOfPatterns, freeFormats, stringFormats } from './string-formats.ts'

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

/** A pattern that cannot be converted is replaced by a format whose texts it is known to allow. */
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

/** The grammar (GBNF) of a required format of the output. Pure. */

import type { OutputFormat } from '../../../generation/inference-engine.ts'
import { textChoice } from './choice-grammar.ts'
import { objectGrammar, toJsonGrammar } from './json-grammar.ts'
import { patternGrammar } from './pattern-grammar.ts'

/** Throws an `Error` that names what cannot be enforced. */
export function grammarOf(format: Exclude<OutputFormat, { kind: 'text' }>): string {
  if (format.kind === 'json_object') return objectGrammar
  if (format.kind === 'json_schema') return toJsonGrammar(format.schema)
  if (format.kind === 'regex') return `root ::= ${patternGrammar(format.pattern, 'answer')}`
  if (format.kind === 'choice') return `root ::= ${textChoice(format.choices)}`
  return format.grammar
}

/** The GBNF grammar of a required output format. Pure. */

import type { OutputFormat, ToolDefinition } from '../../../generation/inference-engine.ts'
import { objectGrammar, toCallGrammar, toJsonGrammar } from './json-grammar.ts'
import { patternGrammar } from './pattern-grammar.ts'
import { textChoice } from './string-grammar.ts'

export type GrammarFormat =
  | Exclude<OutputFormat, { kind: 'text' }>
  | { readonly kind: 'call'; readonly tools: readonly ToolDefinition[] }

export function toGrammar(format: GrammarFormat): string {
  if (format.kind === 'call') return toCallGrammar(format.tools)
  if (format.kind === 'json_object') return objectGrammar
  if (format.kind === 'json_schema') return toJsonGrammar(format.schema)
  if (format.kind === 'regex') return `root ::= ${patternGrammar(format.pattern, 'answer')}`
  if (format.kind === 'choice') return `root ::= ${textChoice(format.choices)}`
  return format.grammar
}

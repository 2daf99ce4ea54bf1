/** Reads the fields of a body that require a format of the answer. */

import type { OutputFormat } from '../../generation/inference-engine.ts'
import { wrongValue } from './invalid-request.ts'
import type { ChatBody, CompletionBody } from './request-schema.ts'

interface Guide {
  readonly field: string
  readonly value: unknown
  readonly toFormat: (value: unknown, field: string) => OutputFormat
}

/** The given fields that require a format, besides `response_format`. Only one may be given. */
function guidesOf(body: ChatBody | CompletionBody): Guide[] {
  const structured = body.structured_outputs
  const guides: Guide[] = [
    { field: 'guided_json', value: body.guided_json, toFormat: schemaFormat },
    { field: 'json_schema', value: body.json_schema, toFormat: schemaFormat },
    { field: 'guided_regex', value: body.guided_regex, toFormat: regexFormat },
    { field: 'guided_choice', value: body.guided_choice, toFormat: choiceFormat },
    { field: 'guided_grammar', value: body.guided_grammar, toFormat: grammarFormat },
    { field: 'grammar', value: body.grammar, toFormat: grammarFormat },
    { field: 'structured_outputs.json', value: structured?.json, toFormat: schemaFormat },
    { field: 'structured_outputs.regex', value: structured?.regex, toFormat: regexFormat },
    { field: 'structured_outputs.choice', value: structured?.choice, toFormat: choiceFormat },
    { field: 'structured_outputs.grammar', value: structured?.grammar, toFormat: grammarFormat },
    {
      field: 'structured_outputs.json_object',
      value: structured?.json_object === true ? true : undefined,
      toFormat: () => ({ kind: 'json_object' }),
    },
  ]
  return guides.filter(({ value }) => isAsked(value))
}

/** `undefined` for any text. Throws `HttpError` if more than one field requires a format. */
export function outputFormatOf(body: ChatBody | CompletionBody): OutputFormat | undefined {
  const format = toFormat(body.response_format)
  const [first, second] = guidesOf(body)
  if (first === undefined) return format
  const { field } = first
  const other = second?.field ?? (format === undefined ? undefined : 'response_format')
  if (other === undefined) return first.toFormat(first.value, field)
  throw wrongValue(field, `Invalid value for '${field}': it is not allowed with '${other}'.`)
}

const regexFormat = (value: unknown, field: string): OutputFormat => ({
  kind: 'regex',
  pattern: String(value),
  field,
})

const choiceFormat = (value: unknown, field: string): OutputFormat => ({
  kind: 'choice',
  choices: value as readonly string[],
  field,
})

const grammarFormat = (value: unknown, field: string): OutputFormat => ({
  kind: 'grammar',
  grammar: String(value),
  field,
})

const isAsked = (value: unknown): boolean => value !== undefined && value !== null && value !== ''

function toFormat(format: ChatBody['response_format']): OutputFormat | undefined {
  if (format === undefined || format === null || format.type === 'text') return undefined
  if (format.type === 'json_schema') {
    return { kind: 'json_schema', schema: format.json_schema.schema }
  }
  return format.schema === undefined || format.schema === null
    ? { kind: 'json_object' }
    : { kind: 'json_schema', schema: format.schema }
}

/** vLLM accepts a schema as an object or as JSON text. */
function schemaFormat(value: unknown, field: string): OutputFormat {
  if (typeof value === 'object' && value !== null)
    return { kind: 'json_schema', schema: value, field }
  try {
    const schema: unknown = JSON.parse(String(value))
    if (typeof schema === 'object' && schema !== null) return { kind: 'json_schema', schema, field }
  } catch {}
  throw wrongValue(field, `Invalid value for '${field}': expected a JSON schema.`)
}

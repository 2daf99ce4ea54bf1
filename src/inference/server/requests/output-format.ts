/** The fields of a body that say what an answer must look like. */

import type { OutputFormat } from '../../generation/inference-engine.ts'
import { wrongValue } from './invalid-request.ts'
import type { ChatBody, CompletionBody } from './request-schema.ts'

/** The names of vLLM and llama-server, each with the format that it asks for. */
const guides = {
  guided_json: (value) => schemaFormat(value, 'guided_json'),
  json_schema: (value) => schemaFormat(value, 'json_schema'),
  guided_regex: (value) => ({ kind: 'regex', pattern: String(value), field: 'guided_regex' }),
  guided_choice: (value) => ({
    kind: 'choice',
    choices: value as readonly string[],
    field: 'guided_choice',
  }),
  guided_grammar: (value) => ({
    kind: 'grammar',
    grammar: String(value),
    field: 'guided_grammar',
  }),
  grammar: (value) => ({ kind: 'grammar', grammar: String(value), field: 'grammar' }),
} as const satisfies Record<string, (value: unknown) => OutputFormat>

/** `undefined` for any text; more than one field that says so is an `HttpError`. */
export function outputFormatOf(body: ChatBody | CompletionBody): OutputFormat | undefined {
  const format = 'response_format' in body ? toFormat(body.response_format) : undefined
  const given = Object.entries(guides).filter(([name]) =>
    isAsked(body[name as keyof typeof guides]),
  )
  const [first, second] = given
  if (first === undefined) return format
  const other = second?.[0] ?? (format === undefined ? undefined : 'response_format')
  const [name, toGuide] = first
  if (other === undefined) return toGuide(body[name as keyof typeof guides])
  throw wrongValue(name, `Invalid value for '${name}': it is not allowed with '${other}'.`)
}

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

/** vLLM takes a schema as an object, or as JSON text. */
function schemaFormat(value: unknown, field: string): OutputFormat {
  if (typeof value === 'object' && value !== null)
    return { kind: 'json_schema', schema: value, field }
  try {
    const schema: unknown = JSON.parse(String(value))
    if (typeof schema === 'object' && schema !== null) return { kind: 'json_schema', schema, field }
  } catch {}
  throw wrongValue(field, `Invalid value for '${field}': expected a JSON schema.`)
}

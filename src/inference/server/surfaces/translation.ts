/** Reads the body of another API as a chat request, so that a request means the same everywhere. */

import { isPlainObject } from '../../../foundation/json-value.ts'
import { HttpError } from '../../../runtime/http/http-error.ts'
import { extractText } from '../../generation/fields/message-text.ts'
import type { WireFields } from '../../generation/pass-through.ts'
import { findFirstProblems, isValid } from '../../schema/problems.ts'
import type { z } from '../../schema/schema.ts'
import { toRequestError, wrongValueError } from '../requests/invalid-request.ts'
import type { RequestReader, TextRequest } from '../requests/request-reader.ts'

/** Returns the body if it fits the schema. Throws `HttpError` for the first wrong field. */
export function expectValid<S extends z.ZodType>(schema: S, body: unknown): z.input<S> {
  if (isValid(schema, body)) return body
  const [first] = findFirstProblems(schema, body)
  if (first === undefined) throw new TypeError('the compiled check and the schema disagree')
  throw toRequestError(first, body)
}

/** A message of a chat body, and the path of its source in the client's body. */
export interface TranslatedMessage {
  readonly message: WireFields
  readonly path: string
}

export interface Translation {
  readonly messages: readonly TranslatedMessage[]
  /** The other fields of the chat body. */
  readonly fields: WireFields
  /** The client's names of fields, by their names in the chat body. */
  readonly names: Readonly<Record<string, string>>
  /** Whether, or how much, the model should reason. Models without a choice ignore it. */
  readonly thinking?: boolean | string | undefined
  /** Whether the answer continues the last message if it is the assistant's. Default `false`. */
  readonly continuesAnswer?: boolean
}

const continuedField = 'continue_final_message'

/**
 * Returns the fields that make the answer continue the last message if it is the assistant's.
 * Engines that do not support these fields begin a new message.
 */
function toContinuedFields(
  { messages, continuesAnswer = false }: Translation,
  { fields, isPassedOn }: RequestReader['rules'],
): WireFields {
  const { role, content, tool_calls: calls } = messages.at(-1)?.message ?? {}
  const isText = role === 'assistant' && calls === undefined && extractText(content) !== ''
  if (!continuesAnswer || !isText) return {}
  if (isPassedOn) return { [continuedField]: true, add_generation_prompt: false }
  return fields.includes(continuedField) ? { [continuedField]: true } : {}
}

export function readTranslated(
  translation: Translation,
  { requests }: { readonly requests: RequestReader },
): TextRequest {
  const { messages, fields, names, thinking } = translation
  const { max_tokens: max } = fields
  const continued = toContinuedFields(translation, requests.rules)
  const body: Record<string, unknown> = {
    ...continued,
    ...fields,
    // Clients of these APIs always send a limit, which may exceed the context of a small model.
    ...(typeof max === 'number' ? { max_tokens: Math.min(max, requests.rules.contextLength) } : {}),
    messages: messages.map((one) => one.message),
  }
  if (requests.rules.isPassedOn && thinking !== undefined) {
    const variables = { enable_thinking: thinking !== false }
    body['chat_template_kwargs'] = { ...variables, ...(fields['chat_template_kwargs'] as object) }
  }
  try {
    const request = expectOneAnswer(requests.readChat(body))
    if (requests.rules.isPassedOn || thinking === undefined) return request
    const inputs = request.inputs.map((input) => ({ ...input, thinking }))
    return { ...request, inputs }
  } catch (error) {
    if (!(error instanceof HttpError) || error.param === null) throw error
    throw withParam(error, error.param, toSourcePath(error.param, messages, names))
  }
}

/**
 * Throws if a request is for several answers or for log probabilities, for which the other APIs
 * have no place.
 */
export function expectOneAnswer<Request extends TextRequest>(request: Request): Request {
  if (request.n !== 1) {
    throw wrongValueError('n', "Invalid value for 'n': this API has one answer per request.")
  }
  if (typeof request.sampling.logprobs !== 'number') return request
  const message = "Invalid value for 'logprobs': this server does not return them in this API."
  throw wrongValueError('logprobs', message)
}

function toSourcePath(
  path: string,
  messages: readonly TranslatedMessage[],
  names: Translation['names'],
): string {
  const at = /^messages\[(\d+)\]/.exec(path)?.[1]
  if (at !== undefined) return messages[Number(at)]?.path ?? 'messages'
  if (path === continuedField) return messages.at(-1)?.path ?? 'messages'
  for (const [name, source] of Object.entries(names)) {
    const rest = path.slice(name.length)
    if (path.startsWith(name) && /^(?:$|[.[])/.test(rest)) return `${source}${rest}`
  }
  return path
}

function withParam(error: HttpError, old: string, param: string): HttpError {
  const { status, message, code, headers, details } = error
  const renamed = message.replaceAll(`'${old}'`, () => `'${param}'`)
  return new HttpError(status, renamed, { code, param, headers, details })
}

/** The field of a chat body that requires JSON that fits a schema. */
export const toFormatFields = (schema: object, name = 'answer'): WireFields => ({
  response_format: { type: 'json_schema', json_schema: { name, schema } },
})

/** Reads a number in the details of token usage, which servers behind an engine may leave out. */
export function readCount(details: WireFields | undefined, group: string, name: string): number {
  const fields = details?.[group]
  const count = isPlainObject(fields) ? fields[name] : undefined
  return typeof count === 'number' ? count : 0
}

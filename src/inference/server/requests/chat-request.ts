/** Reads the body of `POST /v1/chat/completions`. */

import { readFormat, readToolChoice, readTools } from './chat-tools.ts'
import { readMessages } from './chat-messages.ts'
import { FieldReader, wrongValue } from './field-reader.ts'
import {
  readIgnored,
  readModel,
  readSampling,
  readStreaming,
  readUrgency,
  type RequestRules,
  type TextRequest,
} from './text-request.ts'

/** The request, or an `HttpError` that names the wrong field. */
export function readChatRequest(body: unknown, rules: RequestRules): TextRequest {
  const fields = new FieldReader(body, '')
  const model = readModel(fields, rules)
  const messages = readMessages(fields.required('messages'))
  const tools = readTools(fields)
  const toolChoice = readToolChoice(fields, tools)
  const format = readFormat(fields)
  fields.string('user', 512)
  const request = {
    model,
    inputs: [
      {
        kind: 'chat' as const,
        messages,
        ...(tools === undefined ? {} : { tools }),
        ...(toolChoice === undefined ? {} : { toolChoice }),
      },
    ],
    n: fields.integer('n', { min: 1, max: Math.min(128, rules.maxPrompts) }) ?? 1,
    sampling: readSampling(fields, rules, {
      logprobs: readLogprobs(fields),
      ...(format === undefined ? {} : { format }),
    }),
    ...readUrgency(fields),
    ...readStreaming(fields),
  }
  return { ...request, ignored: readIgnored(fields, rules) }
}

function readLogprobs(fields: FieldReader): number | null {
  const isAsked = fields.boolean('logprobs') ?? false
  const top = fields.integer('top_logprobs', { min: 0, max: 20 })
  if (isAsked) return top ?? 0
  if (top === undefined || top === 0) return null
  throw wrongValue(
    'top_logprobs',
    "Invalid value for 'top_logprobs': it is only allowed when 'logprobs' is true.",
  )
}

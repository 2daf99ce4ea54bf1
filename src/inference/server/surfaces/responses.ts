/** The surface `POST /v1/responses`. */

import { newUuid } from '../../../foundation/ids.ts'
import type { HttpError } from '../../../runtime/http/http-error.ts'
import type { Usage } from '../../generation/inference-engine.ts'
import type { GenerationResult } from '../../generation/text-generator.ts'
import { z } from '../../schema/schema.ts'
import type { StreamWriter } from '../replies/stream-writer.ts'
import type { DocumentedRoute } from '../openapi.ts'
import { unknownPathError } from '../unknown-path.ts'
import { eventStreamType, toErrorFields } from './chunk-stream.ts'
import { type AnswerPart, listParts, PartStream } from './part-stream.ts'
import { type ResponseRequest, responseRequest, toTranslation } from './response-request.ts'
import { toItemId, toResponseId } from './response-store.ts'
import type { CompanionContext, Surface } from './surface.ts'
import { expectValid, readCount, readTranslated } from './translation.ts'

const count = z.int().min(0)
const responseSchema = z.looseObject({
  id: z.string(),
  object: z.literal('response'),
  created_at: z.int(),
  status: z.enum(['in_progress', 'completed', 'incomplete', 'failed']),
  model: z.string(),
  output: z.array(z.looseObject({ type: z.enum(['message', 'function_call', 'reasoning']) })),
  incomplete_details: z.object({ reason: z.string() }).nullable(),
  usage: z
    .object({
      input_tokens: count,
      input_tokens_details: z.object({ cached_tokens: count }),
      output_tokens: count,
      output_tokens_details: z.object({ reasoning_tokens: count }),
      total_tokens: count,
    })
    .nullable(),
})

export const responses: Surface = {
  path: '/v1/responses',
  document: {
    summary: 'Answers a conversation, of which the server keeps the latest.',
    body: 'ResponseRequest',
    ok: 'Response',
    streamType: eventStreamType,
  },
  schemas: { ResponseRequest: responseRequest, Response: responseSchema },
  bodyLimit: 'chatBodyBytes',
  promptField: 'input',
  read(body, context, { owner }) {
    const fields = expectValid(responseRequest, body)
    const { input, previous_response_id: previousId, store } = fields
    const items = context.responses.resolve(owner, input, previousId)
    const request = readTranslated(toTranslation(fields, items), context)
    const id = toResponseId(newUuid())
    const created = Math.floor(context.clock.now())
    const headJson = createHeadJson(id, request.model, created, fields)
    const onEnded = (json: string): void => {
      if (store === false) return
      const earlier = items.map(({ item }) => item)
      context.responses.add(owner, id, earlier, json)
    }
    return {
      request,
      format: {
        streamType: eventStreamType,
        toBody([result]) {
          const outcome = toOutcome(id, result, listParts(result))
          const json = `{${headJson},${toFieldsJson(outcome)}}`
          onEnded(json)
          return json
        },
        createStream: (writer) => new ResponseStream(writer, id, headJson, onEnded),
      },
    }
  },
  toErrorBody: toErrorFields,
  toFailure: (problem) => toEvent('error', 0, toFailureJson(problem)),
}

/** The routes that read and delete a stored response. */
export function createResponseRoutes({
  responses: store,
}: CompanionContext): readonly DocumentedRoute[] {
  const path = `${responses.path}/*`
  const expectId = (id: string): string => {
    if (id.includes('/')) throw unknownPathError(`${responses.path}/${id}`)
    return id
  }
  return [
    {
      method: 'GET',
      path,
      document: { summary: 'A stored response.', ok: 'Response' },
      answer(exchange, _, id) {
        const json = store.getJson(exchange.key?.name ?? '', expectId(id))
        exchange.sendText(200, json, ['content-type', 'application/json'])
      },
    },
    {
      method: 'DELETE',
      path,
      document: { summary: 'Deletes a stored response.' },
      answer(exchange, _, id) {
        store.delete(exchange.key?.name ?? '', expectId(id))
        exchange.sendJson(200, { id, object: 'response', deleted: true })
      },
    },
  ]
}

type OnEnded = (json: string) => void

/**
 * Writes the fields of a response that its request decides, without braces. Writes JSON text by
 * text, because few of the many fields differ from request to request.
 */
function createHeadJson(
  id: string,
  model: string,
  created: number,
  fields: ResponseRequest,
): string {
  const effort = toJson(fields.reasoning?.effort)
  return (
    `"id":"${id}","object":"response","created_at":${created},"error":null,` +
    `"instructions":${toJson(fields.instructions)},` +
    `"max_output_tokens":${toJson(fields.max_output_tokens)},` +
    `"metadata":${toJson(fields['metadata'], '{}')},` +
    `"model":${JSON.stringify(model)},` +
    `"parallel_tool_calls":${toJson(fields.parallel_tool_calls, 'true')},` +
    `"previous_response_id":${toJson(fields.previous_response_id)},` +
    `"reasoning":{"effort":${effort},"summary":null},` +
    `"store":${toJson(fields.store, 'true')},` +
    `"temperature":${toJson(fields['temperature'])},` +
    `"text":{"format":${toJson(fields.text?.format, '{"type":"text"}')}},` +
    `"tool_choice":${toJson(fields.tool_choice, '"auto"')},` +
    `"tools":${toJson(fields.tools, '[]')},` +
    `"top_p":${toJson(fields['top_p'])},"truncation":"disabled"`
  )
}

const toJson = (value: unknown, missing = 'null'): string =>
  value === undefined || value === null ? missing : JSON.stringify(value)

/** Returns the fields of a response that its answer decides. */
function toOutcome(
  responseId: string,
  { finishReason, usage }: GenerationResult,
  parts: readonly AnswerPart[],
) {
  const reason =
    finishReason === 'length'
      ? 'max_output_tokens'
      : finishReason === 'content_filter'
        ? 'content_filter'
        : null
  const status = reason === null ? 'completed' : 'incomplete'
  const output = parts.map((part) => toItem(responseId, part, status))
  const details = reason === null ? null : { reason }
  return { status, incomplete_details: details, output, usage: toUsageFields(usage) }
}

const toUsageFields = ({ promptTokens, completionTokens, details }: Usage): object => ({
  input_tokens: promptTokens,
  input_tokens_details: {
    cached_tokens: readCount(details, 'prompt_tokens_details', 'cached_tokens'),
  },
  output_tokens: completionTokens,
  output_tokens_details: {
    reasoning_tokens: readCount(details, 'completion_tokens_details', 'reasoning_tokens'),
  },
  total_tokens: promptTokens + completionTokens,
})

const itemPrefixes = { text: 'msg', call: 'fc', reasoning: 'rs' } as const

function toItem(
  responseId: string,
  { kind, index, text, call }: AnswerPart,
  status: string,
): object {
  const id = toItemId(itemPrefixes[kind], responseId, index)
  if (kind === 'call') {
    const { id: callId, name } = call ?? { id: '', name: '' }
    return { id, type: 'function_call', status, call_id: callId, name, arguments: text }
  }
  const isOpen = status === 'in_progress'
  if (kind === 'reasoning') {
    return { id, type: 'reasoning', status, summary: isOpen ? [] : [toSummary(text)] }
  }
  return { id, type: 'message', status, role: 'assistant', content: isOpen ? [] : [toPart(text)] }
}

const toPart = (text: string): object => ({ type: 'output_text', text, annotations: [] })

/** Clients show the summary of a reasoning, so the reasoning itself is sent as its summary. */
const toSummary = (text: string): object => ({ type: 'summary_text', text })

/** Joins prepared pieces of JSON, because streams have many events with the same fields. */
class ResponseStream extends PartStream {
  readonly #id: string
  readonly #headJson: string
  readonly #onEnded: OnEnded
  #sequence = 0
  /** The fields that all events of the open part share. */
  #placeJson = ''

  constructor(writer: StreamWriter, id: string, headJson: string, onEnded: OnEnded) {
    super(writer)
    this.#id = id
    this.#headJson = headJson
    this.#onEnded = onEnded
  }

  protected toOpening(): string {
    const unknown = { status: 'in_progress', incomplete_details: null, output: [], usage: null }
    const response = `"response":${this.#toResponseJson(unknown)}`
    return (
      this.#toEvent('response.created', response) + this.#toEvent('response.in_progress', response)
    )
  }

  protected toPartOpening(part: AnswerPart): string {
    const { kind, index } = part
    const item = toItem(this.#id, part, 'in_progress')
    const opening = this.#toEvent(
      'response.output_item.added',
      toFieldsJson({ output_index: index, item }),
    )
    this.#placeJson = toFieldsJson({
      item_id: toItemId(itemPrefixes[kind], this.#id, index),
      output_index: index,
      ...(kind === 'text' ? { content_index: 0 } : {}),
      ...(kind === 'reasoning' ? { summary_index: 0 } : {}),
    })
    return opening + this.#toPartEvent(part, 'added', '')
  }

  protected toPartDelta({ kind }: AnswerPart, text: string): string {
    const logprobs = kind === 'text' ? ',"logprobs":[]' : ''
    const fields = `${this.#placeJson},"delta":${JSON.stringify(text)}${logprobs}`
    return this.#toEvent(`response.${eventNames[kind]}.delta`, fields)
  }

  protected toPartClosing(part: AnswerPart): string {
    const { kind, index, text, call } = part
    const whole = toFieldsJson({
      ...(kind === 'call' ? { name: call?.name, arguments: text } : { text }),
      ...(kind === 'text' ? { logprobs: [] } : {}),
    })
    const type = `response.${eventNames[kind]}.done`
    const done = this.#toEvent(type, `${this.#placeJson},${whole}`)
    const partDone = this.#toPartEvent(part, 'done', text)
    const item = toItem(this.#id, part, 'completed')
    const fields = toFieldsJson({ output_index: index, item })
    return done + partDone + this.#toEvent('response.output_item.done', fields)
  }

  protected toClosing(result: GenerationResult, parts: readonly AnswerPart[]): string {
    const outcome = toOutcome(this.#id, result, parts)
    const json = this.#toResponseJson(outcome)
    this.#onEnded(json)
    return this.#toEvent(`response.${outcome.status}`, `"response":${json}`)
  }

  protected toFailure(problem: HttpError): string {
    return this.#toEvent('error', toFailureJson(problem))
  }

  /** Texts and summaries are parts within an item. A call has no parts. */
  #toPartEvent({ kind }: AnswerPart, end: 'added' | 'done', text: string): string {
    if (kind === 'call') return ''
    const [name, part] =
      kind === 'text' ? ['content_part', toPart(text)] : ['reasoning_summary_part', toSummary(text)]
    return this.#toEvent(`response.${name}.${end}`, `${this.#placeJson},${toFieldsJson({ part })}`)
  }

  #toResponseJson(outcome: object): string {
    return `{${this.#headJson},${toFieldsJson(outcome)}}`
  }

  #toEvent(type: string, fieldsJson: string): string {
    return toEvent(type, this.#sequence++, fieldsJson)
  }
}

const toEvent = (type: string, sequence: number, fieldsJson: string): string =>
  `event: ${type}\ndata: {"type":"${type}","sequence_number":${sequence},${fieldsJson}}\n\n`

const toFailureJson = ({ code, message, param }: HttpError): string =>
  toFieldsJson({ code, message, param })

/** Returns the JSON of an object without its braces. */
const toFieldsJson = (fields: object): string => JSON.stringify(fields).slice(1, -1)

const eventNames = {
  text: 'output_text',
  call: 'function_call_arguments',
  reasoning: 'reasoning_summary_text',
} as const

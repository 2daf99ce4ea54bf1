/** The surface `POST /v1/messages`, Anthropic's API. */

import type { IncomingHttpHeaders } from 'node:http'
import { tryRead } from '../../../foundation/errors.ts'
import { newUuid } from '../../../foundation/ids.ts'
import { definedFields } from '../../../foundation/options.ts'
import type { HttpError } from '../../../runtime/http/http-error.ts'
import type { FinishReason, Usage } from '../../generation/inference-engine.ts'
import { extractPrompt } from '../../generation/fields/message-text.ts'
import { toInferenceCode } from '../../generation/inference-errors.ts'
import type { PassThroughDelta, PassThroughInput } from '../../generation/pass-through.ts'
import type { GenerationResult, TextGenerator } from '../../generation/text-generator.ts'
import { z } from '../../schema/schema.ts'
import type { DocumentedRoute } from '../openapi.ts'
import type { StreamWriter } from '../replies/stream-writer.ts'
import { type AnswerPart, listParts, PartStream } from './part-stream.ts'
import { eventStreamType } from './chunk-stream.ts'
import type { TextRequest } from '../requests/request-reader.ts'
import type { CompanionContext, Surface, SurfaceContext } from './surface.ts'
import { messageRequest, toTranslation } from './message-request.ts'
import { expectValid, readCount, readTranslated } from './translation.ts'

const count = z.int().min(0)
const contentBlock = z.discriminatedUnion('type', [
  z.object({ type: z.literal('text'), text: z.string(), citations: z.null() }),
  z.object({ type: z.literal('thinking'), thinking: z.string(), signature: z.string() }),
  z.object({
    type: z.literal('tool_use'),
    id: z.string(),
    name: z.string(),
    input: z.looseObject({}),
  }),
])

const replySchemas = {
  Message: z.object({
    id: z.string(),
    type: z.literal('message'),
    role: z.literal('assistant'),
    model: z.string(),
    content: z.array(contentBlock),
    stop_reason: z.enum(['end_turn', 'max_tokens', 'stop_sequence', 'tool_use', 'refusal']),
    stop_sequence: z.string().nullable(),
    usage: z.object({
      input_tokens: count,
      output_tokens: count,
      cache_creation_input_tokens: count,
      cache_read_input_tokens: count.describe('Tokens of the input that came from a cache.'),
    }),
  }),
  MessageTokens: z.object({ input_tokens: count }),
  MessageError: z.object({
    type: z.literal('error'),
    error: z.object({ type: z.string(), message: z.string() }),
  }),
}

export const messages: Surface = {
  path: '/v1/messages',
  document: {
    summary: 'Answers a conversation, in the form of the Anthropic API.',
    body: 'MessageRequest',
    ok: 'Message',
    failure: 'MessageError',
    streamType: eventStreamType,
  },
  schemas: { MessageRequest: messageRequest, ...replySchemas },
  bodyLimit: 'chatBodyBytes',
  promptField: 'messages',
  read(body, context) {
    const request = readTranslated(toTranslation(expectValid(messageRequest, body)), context)
    const head = { id: `msg_${newUuid()}`, model: request.model }
    return {
      request,
      format: {
        streamType: eventStreamType,
        toBody: ([result]) => toMessage(head, result),
        createStream: (writer) => new MessageStream(writer, head),
      },
    }
  },
  toErrorBody: ({ status, message }) => ({
    type: 'error',
    error: { type: toErrorType(status), message },
  }),
  toFailure: (_, body) => toEvent('error', body),
}

const readMessages = (body: unknown, context: SurfaceContext): TextRequest =>
  readTranslated(toTranslation(expectValid(messageRequest, body)), context)

export const createCountTokensRoute = (context: CompanionContext): DocumentedRoute => ({
  method: 'POST',
  path: `${messages.path}/count_tokens`,
  document: {
    summary: 'The number of tokens of a conversation.',
    body: 'MessageRequest',
    ok: 'MessageTokens',
    failure: 'MessageError',
  },
  bodyBytes: context.limits.chatBodyBytes,
  check: (_, body) => void readMessages(body, context),
  async answer(exchange, body) {
    const [input] = readMessages(body, context).inputs
    if (input === undefined) throw new TypeError('a chat has one input')
    exchange.sendJson(200, { input_tokens: await countTokens(context.generator, input) })
  },
})

/** If the engine does not report prompts, counts the tokens of the texts of messages and tools. */
async function countTokens(generator: TextGenerator, input: PassThroughInput): Promise<number> {
  try {
    return (await generator.readPrompt(input)).tokens.length
  } catch (error) {
    if (toInferenceCode(error) !== 'unsupported') throw error
    const tools = input.kind === 'chat' ? (input.tools ?? []) : []
    const texts = [extractPrompt(input), ...tools.map((tool) => JSON.stringify(tool))]
    return (await generator.tokenize(texts.join('\n'))).length
  }
}

/** Clients of this API send this header with every request. */
export const isAnthropicClient = (headers: IncomingHttpHeaders): boolean =>
  headers['anthropic-version'] !== undefined

/** The form of a model in `GET /v1/models` for clients of this API. */
export const toModelInfo = (id: string, createdSeconds: number, contextLength: number) => ({
  type: 'model',
  id,
  display_name: id,
  created_at: new Date(createdSeconds * 1000).toISOString(),
  max_input_tokens: contextLength,
  max_tokens: contextLength,
})

export const toModelPage = (data: readonly { readonly id: string }[]): object => ({
  data,
  has_more: false,
  first_id: data[0]?.id ?? null,
  last_id: data.at(-1)?.id ?? null,
})

interface MessageHead {
  readonly id: string
  readonly model: string
}

function toMessage({ id, model }: MessageHead, result: GenerationResult): object {
  return {
    id,
    type: 'message',
    role: 'assistant',
    model,
    content: listParts(result).map(toBlock),
    ...toStopFields(result),
    usage: toUsageFields(result.usage),
  }
}

function toBlock({ kind, text, call }: AnswerPart): object {
  if (kind === 'text') return { type: 'text', text, citations: null }
  if (kind === 'reasoning') return { type: 'thinking', thinking: text, signature: '' }
  // Arguments that were cut at the maximum number of tokens are not JSON.
  return { type: 'tool_use', ...call, input: tryRead(() => JSON.parse(text) as unknown) ?? {} }
}

const stopReasons: Readonly<Record<FinishReason, string>> = {
  stop: 'end_turn',
  length: 'max_tokens',
  tool_calls: 'tool_use',
  content_filter: 'refusal',
}

/** Some servers behind an engine report which of the stop texts ended the answer. */
function toStopFields({ finishReason, fields }: GenerationResult): object {
  const stop = fields?.choice?.['stop_reason']
  if (typeof stop === 'string') return { stop_reason: 'stop_sequence', stop_sequence: stop }
  return { stop_reason: stopReasons[finishReason] ?? 'end_turn', stop_sequence: null }
}

/** In this API, the tokens of the input do not include those that came from a cache. */
function toUsageFields({ promptTokens, completionTokens, details }: Usage): object {
  const cached = readCount(details, 'prompt_tokens_details', 'cached_tokens')
  return {
    input_tokens: promptTokens - cached,
    output_tokens: completionTokens,
    cache_creation_input_tokens: 0,
    cache_read_input_tokens: cached,
  }
}

class MessageStream extends PartStream {
  readonly #head: MessageHead

  constructor(writer: StreamWriter, head: MessageHead) {
    super(writer)
    this.#head = head
  }

  protected toOpening({ promptTokens = 0 }: PassThroughDelta): string {
    const { id, model } = this.#head
    const usage = toUsageFields({ promptTokens, completionTokens: 0 })
    const message = { id, type: 'message', role: 'assistant', model, content: [], usage }
    const unknown = { stop_reason: null, stop_sequence: null }
    return toEvent('message_start', { message: { ...message, ...unknown } })
  }

  protected toPartOpening({ index, kind, call }: AnswerPart): string {
    const block = toBlock({ kind, index, text: '', ...definedFields({ call }) })
    return toEvent('content_block_start', { index, content_block: block })
  }

  protected toPartDelta({ index, kind }: AnswerPart, text: string): string {
    const { type, field } = deltaNames[kind]
    return (
      `event: content_block_delta\ndata: {"type":"content_block_delta","index":${index},` +
      `"delta":{"type":"${type}","${field}":${JSON.stringify(text)}}}\n\n`
    )
  }

  protected toPartClosing({ index, kind }: AnswerPart): string {
    const signature = { index, delta: { type: 'signature_delta', signature: '' } }
    const last = kind === 'reasoning' ? toEvent('content_block_delta', signature) : ''
    return last + toEvent('content_block_stop', { index })
  }

  protected toClosing(result: GenerationResult): string {
    const usage = toUsageFields(result.usage)
    return toEvent('message_delta', { delta: toStopFields(result), usage }) + lastEvent
  }

  protected toFailure(_: HttpError, body: object): string {
    return toEvent('error', body)
  }
}

const toEvent = (type: string, fields: object): string =>
  `event: ${type}\ndata: ${JSON.stringify({ type, ...fields })}\n\n`

const lastEvent = toEvent('message_stop', {})

/** The type of a delta, and its field with the text, by the kind of the part. */
const deltaNames = {
  reasoning: { type: 'thinking_delta', field: 'thinking' },
  text: { type: 'text_delta', field: 'text' },
  call: { type: 'input_json_delta', field: 'partial_json' },
} as const

const errorTypes: Readonly<Record<number, string>> = {
  401: 'authentication_error',
  403: 'permission_error',
  404: 'not_found_error',
  408: 'timeout_error',
  413: 'request_too_large',
  429: 'rate_limit_error',
  503: 'overloaded_error',
  504: 'timeout_error',
}

const toErrorType = (status: number): string =>
  errorTypes[status] ?? (status >= 500 ? 'api_error' : 'invalid_request_error')

/** The surface `POST /v1/responses`. */

import { newUuid } from '../../../foundation/ids.ts'
import type { HttpError } from '../../../runtime/http/http-error.ts'
import type { Usage } from '../../generation/inference-engine.ts'
import type { GenerationResult } from '../../generation/text-generator.ts'
import { z } from '../../schema/schema.ts'
import type { StreamWriter } from '../replies/stream-writer.ts'
import { eventStreamType, toErrorFields } from './chunk-stream.ts'
import { type AnswerPart, listParts, PartStream } from './part-stream.ts'
import {
  type Item,
  type ResponseRequest,
  responseRequest,
  toTranslation,
} from './response-request.ts'
import { toItemId, toResponseId } from './response-store.ts'
import type { Surface } from './surface.ts'
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
  read(body, context) {
    const fields = expectValid(responseRequest, body)
    const { input, previous_response_id: previousId, store } = fields
    const items = context.responses.resolve(input, previousId)
    const request = readTranslated(toTranslation(fields, items), context)
    const id = toResponseId(newUuid())
    const head = createHead(id, request.model, Math.floor(context.clock.now()), fields)
    const onEnded = (output: readonly object[]): void => {
      if (store === false) return
      const earlier = items.map(({ item }) => item)
      context.responses.add(id, earlier, output as readonly Item[])
    }
    return {
      request,
      format: {
        streamType: eventStreamType,
        toBody: ([result]) => toResponse(head, result, listParts(result), onEnded),
        createStream: (writer) => new ResponseStream(writer, head, onEnded),
      },
    }
  },
  toErrorBody: toErrorFields,
}

type Head = ReturnType<typeof createHead>
type OnEnded = (output: readonly object[]) => void

/** The fields of a response that its request decides. */
const createHead = (id: string, model: string, created: number, fields: ResponseRequest) => ({
  id,
  object: 'response',
  created_at: created,
  error: null,
  instructions: fields.instructions ?? null,
  max_output_tokens: fields.max_output_tokens ?? null,
  metadata: fields['metadata'] ?? {},
  model,
  parallel_tool_calls: fields.parallel_tool_calls ?? true,
  previous_response_id: fields.previous_response_id ?? null,
  reasoning: { effort: fields.reasoning?.effort ?? null, summary: null },
  store: fields.store ?? true,
  temperature: fields['temperature'] ?? null,
  text: { format: fields.text?.format ?? { type: 'text' } },
  tool_choice: fields.tool_choice ?? 'auto',
  tools: fields.tools ?? [],
  top_p: fields['top_p'] ?? null,
  truncation: 'disabled',
})

function toResponse(
  head: Head,
  { finishReason, usage }: GenerationResult,
  parts: readonly AnswerPart[],
  onEnded: OnEnded,
): object {
  const reason =
    finishReason === 'length'
      ? 'max_output_tokens'
      : finishReason === 'content_filter'
        ? 'content_filter'
        : null
  const status = reason === null ? 'completed' : 'incomplete'
  const output = parts.map((part) => toItem(head.id, part, status))
  onEnded(output)
  const details = reason === null ? null : { reason }
  return { ...head, status, incomplete_details: details, output, usage: toUsageFields(usage) }
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

class ResponseStream extends PartStream {
  readonly #head: Head
  readonly #onEnded: OnEnded
  #sequence = 0

  constructor(writer: StreamWriter, head: Head, onEnded: OnEnded) {
    super(writer)
    this.#head = head
    this.#onEnded = onEnded
  }

  protected toOpening(): string {
    const unknown = { status: 'in_progress', incomplete_details: null, output: [], usage: null }
    const response = { ...this.#head, ...unknown }
    return (
      this.#toEvent('response.created', { response }) +
      this.#toEvent('response.in_progress', { response })
    )
  }

  protected toPartOpening(part: AnswerPart): string {
    const item = toItem(this.#head.id, part, 'in_progress')
    const added = { output_index: part.index, item }
    const opening = this.#toEvent('response.output_item.added', added)
    if (part.kind === 'call') return opening
    const [name, empty] =
      part.kind === 'text'
        ? ['content_part', toPart('')]
        : ['reasoning_summary_part', toSummary('')]
    return (
      opening + this.#toEvent(`response.${name}.added`, { ...this.#toPlace(part), part: empty })
    )
  }

  protected toPartDelta(part: AnswerPart, text: string): string {
    return this.#toEvent(`response.${eventNames[part.kind]}.delta`, {
      ...this.#toPlace(part),
      delta: text,
      ...(part.kind === 'text' ? { logprobs: [] } : {}),
    })
  }

  protected toPartClosing(part: AnswerPart): string {
    const { kind, index, text, call } = part
    const place = this.#toPlace(part)
    const item = toItem(this.#head.id, part, 'completed')
    const done = this.#toEvent(`response.${eventNames[kind]}.done`, {
      ...place,
      ...(kind === 'call' ? { name: call?.name, arguments: text } : { text }),
      ...(kind === 'text' ? { logprobs: [] } : {}),
    })
    const [name, whole] =
      kind === 'text' ? ['content_part', toPart(text)] : ['reasoning_summary_part', toSummary(text)]
    const partDone =
      kind === 'call' ? '' : this.#toEvent(`response.${name}.done`, { ...place, part: whole })
    const closing = this.#toEvent('response.output_item.done', { output_index: index, item })
    return done + partDone + closing
  }

  protected toClosing(result: GenerationResult, parts: readonly AnswerPart[]): string {
    const response = toResponse(this.#head, result, parts, this.#onEnded)
    const { status } = response as { readonly status: string }
    return this.#toEvent(`response.${status}`, { response })
  }

  protected toFailure({ code, message, param }: HttpError): string {
    return this.#toEvent('error', { code, message, param })
  }

  #toPlace({ kind, index }: AnswerPart): object {
    const place = {
      item_id: toItemId(itemPrefixes[kind], this.#head.id, index),
      output_index: index,
    }
    if (kind === 'call') return place
    return kind === 'text' ? { ...place, content_index: 0 } : { ...place, summary_index: 0 }
  }

  #toEvent(type: string, fields: object): string {
    const data = JSON.stringify({ type, sequence_number: this.#sequence++, ...fields })
    return `event: ${type}\ndata: ${data}\n\n`
  }
}

const eventNames = {
  text: 'output_text',
  call: 'function_call_arguments',
  reasoning: 'reasoning_summary_text',
} as const

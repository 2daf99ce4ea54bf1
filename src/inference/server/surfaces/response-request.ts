/** The body of `POST /v1/responses`: its schema, and its translation to a chat request. */

import { HttpError } from '../../../runtime/http/http-error.ts'
import type { WireFields } from '../../generation/pass-through.ts'
import { annotate, z } from '../../schema/schema.ts'
import { model, streamFields } from '../requests/request-schema.ts'
import { isGiven } from '../requests/typed-request.ts'
import { toFormatFields, type TranslatedMessage, type Translation } from './translation.ts'

const textPart = z.object({
  type: z.enum(['input_text', 'output_text', 'text']),
  text: z.string(),
})
const partSchema = z.union([
  textPart,
  z.object({ type: z.literal('refusal'), refusal: z.string() }),
  z.object({ type: z.literal('input_image'), image_url: z.string() }),
  z.object({
    type: z.literal('input_file'),
    file_data: z.string(),
    filename: z.string().nullish(),
  }),
])
const contentSchema = annotate(z.union([z.string(), z.array(partSchema)]), {
  expected: 'a string or an array of content parts',
})
const messageSchema = z.object({
  type: z.literal('message').nullish(),
  role: z.enum(['user', 'assistant', 'system', 'developer']),
  content: contentSchema,
})
const itemReference = z.object({ type: z.literal('item_reference').nullish(), id: z.string() })
const itemSchema = annotate(
  z.union([
    messageSchema,
    z.object({
      type: z.literal('function_call'),
      call_id: z.string(),
      name: z.string(),
      arguments: z.string(),
    }),
    z.object({
      type: z.literal('function_call_output'),
      call_id: z.string(),
      output: contentSchema,
    }),
    z.object({
      type: z.literal('reasoning'),
      summary: z.array(z.object({ text: z.string() })).nullish(),
      content: z.array(z.object({ text: z.string() })).nullish(),
    }),
    itemReference,
  ]),
  { expected: 'a message, a call of a function, its output, reasoning or a reference to an item' },
)

export type Item = z.infer<typeof itemSchema>
export type ItemReference = z.infer<typeof itemReference>

const notSupported = 'This server supports functions only'

/** Other fields, such as `seed` and `min_p`, are read like those of a chat request. */
export const responseRequest = z.looseObject({
  model,
  input: annotate(z.union([z.string(), z.array(itemSchema)]), {
    expected: 'a string or an array of items',
  }).describe('The prompt, or the items of the conversation.'),
  instructions: z.string().nullish().describe('The system prompt. Later requests do not keep it.'),
  previous_response_id: z.string().nullish().describe('The response that `input` follows.'),
  store: z.boolean().nullish().describe('Whether later requests may name it. Default true.'),
  max_output_tokens: z.int().nullish().describe('Most tokens of an answer.'),
  stream: streamFields.stream,
  tools: z
    .array(
      z.looseObject({
        type: annotate(z.literal('function'), { reason: notSupported }),
        name: z.string(),
        description: z.string().nullish(),
        parameters: z.looseObject({}).nullish().describe('A JSON schema.'),
      }),
    )
    .nullish()
    .describe('Functions that the model may call.'),
  tool_choice: annotate(
    z.union([
      z.enum(['none', 'auto', 'required']),
      z.looseObject({ type: z.literal('function'), name: z.string() }),
    ]),
    { expected: "one of 'none', 'auto', 'required' or a function" },
  ).nullish(),
  parallel_tool_calls: z.boolean().nullish(),
  text: z
    .looseObject({
      format: z
        .discriminatedUnion('type', [
          z.looseObject({ type: z.literal('text') }),
          z.looseObject({ type: z.literal('json_object') }),
          z.looseObject({
            type: z.literal('json_schema'),
            name: z.string().nullish(),
            schema: z.looseObject({}),
          }),
        ])
        .nullish(),
      verbosity: z.string().nullish(),
    })
    .nullish()
    .describe('Plain text, any JSON object, or JSON that fits a schema.'),
  reasoning: z
    .looseObject({ effort: z.string().nullish() })
    .nullish()
    .describe('How much the model reasons, if its chat template knows it.'),
  background: annotate(z.literal(false), { reason: 'This server answers at once' }).nullish(),
  conversation: z.null().optional().describe('Not supported; use `previous_response_id`.'),
  prompt: z.null().optional().describe('Not supported.'),
})

export type ResponseRequest = z.infer<typeof responseRequest>

/** An item of a conversation, and where the client wrote it. */
export interface SourceItem {
  readonly item: Item
  readonly path: string
}

const names = {
  max_tokens: 'max_output_tokens',
  response_format: 'text.format',
  reasoning_effort: 'reasoning.effort',
  verbosity: 'text.verbosity',
  'tool_choice.function.name': 'tool_choice.name',
}

/** Translates a request whose references to earlier items have been resolved. */
export function toTranslation(body: ResponseRequest, items: readonly SourceItem[]): Translation {
  // A single destructuring pattern, because each rest element copies the object.
  const {
    instructions,
    max_output_tokens: maxTokens,
    tools,
    tool_choice: choice,
    parallel_tool_calls: parallel,
    text,
    reasoning,
    input: _input,
    previous_response_id: _previous,
    store: _store,
    background: _background,
    include: _include,
    truncation: _truncation,
    conversation: _conversation,
    prompt: _prompt,
    ...passed
  } = body
  const head = { message: { role: 'system', content: instructions }, path: 'instructions' }
  const hasTools = isGiven(tools) && tools.length > 0
  const isNamed = isGiven(choice) && typeof choice !== 'string'
  const isNeeded = choice === 'required' || isNamed
  const value = isNamed ? { type: 'function', function: { name: choice.name } } : choice
  const { format, verbosity } = text ?? {}
  return {
    messages: [...(isGiven(instructions) ? [head] : []), ...toMessages(items)],
    fields: {
      ...passed,
      ...(isGiven(maxTokens) ? { max_tokens: maxTokens } : {}),
      ...(hasTools ? { tools: tools.map(toTool) } : {}),
      ...(isGiven(choice) && (hasTools || isNeeded) ? { tool_choice: value } : {}),
      ...(isGiven(parallel) && hasTools ? { parallel_tool_calls: parallel } : {}),
      ...(isGiven(format) ? toResponseFormat(format) : {}),
      ...(isGiven(verbosity) ? { verbosity } : {}),
      ...(isGiven(reasoning?.effort) ? { reasoning_effort: reasoning.effort } : {}),
    },
    names,
  }
}

type Format = NonNullable<NonNullable<ResponseRequest['text']>['format']>

function toResponseFormat(format: Format): WireFields {
  if (format.type !== 'json_schema') return { response_format: { type: format.type } }
  return toFormatFields(format.schema, format.name ?? undefined)
}

function toTool(tool: NonNullable<ResponseRequest['tools']>[number]): WireFields {
  const { name, description, parameters } = tool
  const described = isGiven(description) ? { description } : {}
  return {
    type: 'function',
    function: { name, ...described, ...(parameters ? { parameters } : {}) },
  }
}

interface AssistantMessage {
  role: 'assistant'
  content: unknown
  reasoning_content?: string
  tool_calls?: WireFields[]
}

/** Reasoning, text and calls that follow each other become one message of the assistant. */
function toMessages(items: readonly SourceItem[]): readonly TranslatedMessage[] {
  const messages: TranslatedMessage[] = []
  let open: AssistantMessage | null = null
  const openMessage = (path: string): AssistantMessage => {
    const message: AssistantMessage = { role: 'assistant', content: '' }
    messages.push({ message: message as unknown as WireFields, path })
    return message
  }
  for (const { item: one, path } of items) {
    if ('role' in one && one.role === 'assistant') {
      // A text after a text or a call belongs to the next message.
      if (open === null || open.content !== '' || open.tool_calls !== undefined) {
        open = openMessage(path)
      }
      open.content = toContent(one.content)
    } else if (one.type === 'reasoning') {
      if (open === null || open.content !== '' || open.tool_calls !== undefined) {
        open = openMessage(path)
      }
      const texts = one.content ?? one.summary ?? []
      open.reasoning_content =
        (open.reasoning_content ?? '') + texts.map(({ text }) => text).join('')
    } else if (one.type === 'function_call') {
      open ??= openMessage(path)
      const { call_id: id, name, arguments: given } = one
      const call = { id, type: 'function', function: { name, arguments: given } }
      open.tool_calls = [...(open.tool_calls ?? []), call]
    } else if (one.type === 'function_call_output') {
      open = null
      const message = { role: 'tool', tool_call_id: one.call_id, content: toContent(one.output) }
      messages.push({ message, path })
    } else if ('role' in one) {
      open = null
      messages.push({ message: { role: one.role, content: toContent(one.content) }, path })
    }
  }
  return messages
}

/** Converts content to parts. A single text becomes a string. */
function toContent(given: z.infer<typeof contentSchema>): unknown {
  if (typeof given === 'string') return given
  const [first, ...others] = given.map(toPart)
  if (first === undefined) return ''
  return others.length === 0 && first['type'] === 'text' ? first['text'] : [first, ...others]
}

function toPart(given: z.infer<typeof partSchema>): WireFields {
  switch (given.type) {
    case 'refusal':
      return { type: 'text', text: given.refusal }
    case 'input_image':
      return { type: 'image_url', image_url: { url: given.image_url } }
    case 'input_file':
      return { type: 'file', file: { file_data: given.file_data, filename: given.filename } }
    default:
      return { type: 'text', text: given.text }
  }
}

export const missingItemError = (id: string, param: string): HttpError =>
  new HttpError(404, `The item '${id.slice(0, 128)}' does not exist here, or not any more.`, {
    code: 'item_not_found',
    param,
  })

export const unknownResponseError = (id: string): HttpError =>
  new HttpError(404, `Response with id '${id.slice(0, 128)}' not found.`, {
    code: 'response_not_found',
  })

export const missingResponseError = (id: string): HttpError =>
  new HttpError(
    404,
    `The previous response '${id.slice(0, 128)}' does not exist here, or not any more.`,
    {
      code: 'previous_response_not_found',
      param: 'previous_response_id',
    },
  )

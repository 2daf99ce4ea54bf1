/** The body of `POST /v1/messages`: its schema, and its translation to a chat request. */

import type { WireFields } from '../../generation/pass-through.ts'
import { annotate, z } from '../../schema/schema.ts'
import { model, streamFields } from '../requests/request-schema.ts'
import { isGiven } from '../requests/typed-request.ts'
import { toFormatFields, type TranslatedMessage, type Translation } from './translation.ts'

const text = z.looseObject({ type: z.literal('text'), text: z.string() })
const image = z.looseObject({
  type: z.literal('image'),
  source: z.discriminatedUnion('type', [
    z.looseObject({ type: z.literal('base64'), media_type: z.string(), data: z.string() }),
    z.looseObject({ type: z.literal('url'), url: z.string() }),
  ]),
})

const listOrText = <S extends z.ZodType>(block: S) =>
  annotate(z.union([z.string(), z.array(block)]), {
    expected: 'a string or an array of content blocks',
  })

const userBlock = z.discriminatedUnion('type', [
  text,
  image,
  z.looseObject({
    type: z.literal('tool_result'),
    tool_use_id: z.string(),
    content: listOrText(z.discriminatedUnion('type', [text, image])).nullish(),
    is_error: z.boolean().nullish(),
  }),
])
const assistantBlock = z.discriminatedUnion('type', [
  text,
  z.looseObject({ type: z.literal('thinking'), thinking: z.string() }),
  z.looseObject({ type: z.literal('redacted_thinking') }),
  z.looseObject({
    type: z.literal('tool_use'),
    id: z.string(),
    name: z.string(),
    input: z.looseObject({}),
  }),
])
const messageSchema = z.discriminatedUnion('role', [
  z.looseObject({ role: z.literal('user'), content: listOrText(userBlock) }),
  z.looseObject({ role: z.literal('assistant'), content: listOrText(assistantBlock) }),
  z.looseObject({ role: z.literal('system'), content: listOrText(text) }),
])

const jsonFormat = z.looseObject({ type: z.literal('json_schema'), schema: z.looseObject({}) })

/** Other fields, such as `temperature` and `top_k`, are read like those of a chat request. */
export const messageRequest = z.looseObject({
  model,
  messages: z.array(messageSchema).min(1).describe('The conversation so far.'),
  system: listOrText(text).nullish().describe('The system prompt.'),
  max_tokens: z.int().nullish().describe('Most tokens of an answer. Default: the configuration’s.'),
  stop_sequences: z.array(z.string()).nullish().describe('Texts that end an answer.'),
  stream: streamFields.stream,
  tools: z
    .array(
      z.looseObject({
        type: annotate(z.literal('custom'), {
          reason: 'This server runs no tools of its own',
        }).nullish(),
        name: z.string(),
        description: z.string().nullish(),
        input_schema: z.looseObject({}).describe('A JSON schema.'),
      }),
    )
    .nullish()
    .describe('Functions that the model may call.'),
  tool_choice: z
    .discriminatedUnion('type', [
      z.looseObject({ type: z.literal('auto') }),
      z.looseObject({ type: z.literal('any') }),
      z.looseObject({ type: z.literal('none') }),
      z.looseObject({ type: z.literal('tool'), name: z.string() }),
    ])
    .nullish()
    .describe('Whether the model calls a tool, or which one.'),
  thinking: z
    .looseObject({ type: z.string() })
    .nullish()
    .describe('Whether the model reasons, if its chat template has a choice.'),
  output_config: z
    .looseObject({ effort: z.string().nullish(), format: jsonFormat.nullish() })
    .nullish()
    .describe('How much the model reasons, and JSON that the answer must fit.'),
})

type MessageRequest = z.infer<typeof messageRequest>
type Message = MessageRequest['messages'][number]

const names = {
  stop: 'stop_sequences',
  response_format: 'output_config.format',
  'tool_choice.function.name': 'tool_choice.name',
  parallel_tool_calls: 'tool_choice.disable_parallel_tool_use',
}

export function toTranslation(body: MessageRequest): Translation {
  const { messages, system, stop_sequences: stop, tools, tool_choice: choice, ...others } = body
  const { thinking, output_config: output, cache_control: _, service_tier: _tier, ...rest } = others
  const head: readonly TranslatedMessage[] =
    isGiven(system) && system.length > 0
      ? [{ message: { role: 'system', content: system }, path: 'system' }]
      : []
  const format = output?.format
  const effort = output?.effort ?? undefined
  const hasThinking = isGiven(thinking)
  return {
    messages: [...head, ...messages.flatMap((one, at) => toMessages(one, `messages[${at}]`))],
    fields: {
      ...rest,
      ...(isGiven(stop) && stop.length > 0 ? { stop } : {}),
      ...(isGiven(tools) && tools.length > 0 ? { tools: tools.map(toTool) } : {}),
      ...(isGiven(choice) ? toChoiceFields(choice) : {}),
      ...(isGiven(format) ? toFormatFields(format.schema) : {}),
    },
    names,
    continuesAnswer: true,
    thinking: thinking?.type === 'disabled' ? false : (effort ?? (hasThinking ? true : undefined)),
  }
}

function toTool(tool: NonNullable<MessageRequest['tools']>[number]): WireFields {
  const { name, description, input_schema: parameters } = tool
  return {
    type: 'function',
    function: { name, ...(isGiven(description) ? { description } : {}), parameters },
  }
}

function toChoiceFields(choice: NonNullable<MessageRequest['tool_choice']>): WireFields {
  const { type } = choice
  const isSingle = choice['disable_parallel_tool_use'] === true
  const value =
    type === 'tool'
      ? { type: 'function', function: { name: choice.name } }
      : type === 'any'
        ? 'required'
        : type
  return { tool_choice: value, ...(isSingle ? { parallel_tool_calls: false } : {}) }
}

/** Each result of a tool becomes a separate message, in the order of the blocks. */
function toMessages(message: Message, path: string): readonly TranslatedMessage[] {
  const { role, content } = message
  if (typeof content === 'string') return [{ message: { role, content }, path }]
  if (role === 'assistant') return [{ message: toAssistantMessage(content), path }]
  if (role === 'system') return [{ message: { role, content: content.map(toPart) }, path }]
  const translated: TranslatedMessage[] = []
  let parts: WireFields[] = []
  const flush = (): void => {
    if (parts.length > 0) translated.push({ message: { role, content: parts }, path })
    parts = []
  }
  for (const [at, block] of content.entries()) {
    if (block.type !== 'tool_result') {
      parts.push(toPart(block))
      continue
    }
    flush()
    const { tool_use_id: id, content: result } = block
    const value = typeof result === 'string' ? result : (result?.map(toPart) ?? [])
    translated.push({
      message: { role: 'tool', tool_call_id: id, content: value.length === 0 ? '' : value },
      path: `${path}.content[${at}]`,
    })
  }
  flush()
  return translated
}

type AssistantBlocks = Exclude<Extract<Message, { role: 'assistant' }>['content'], string>

function toAssistantMessage(blocks: AssistantBlocks): WireFields {
  let [answer, reasoning] = ['', '']
  const calls: WireFields[] = []
  for (const block of blocks) {
    if (block.type === 'text') answer += block.text
    else if (block.type === 'thinking') reasoning += block.thinking
    else if (block.type === 'tool_use') {
      const { id, name, input } = block
      calls.push({ id, type: 'function', function: { name, arguments: JSON.stringify(input) } })
    }
  }
  return {
    role: 'assistant',
    content: answer,
    ...(reasoning === '' ? {} : { reasoning_content: reasoning }),
    ...(calls.length === 0 ? {} : { tool_calls: calls }),
  }
}

/** Removes hints about caching, which servers behind an engine may refuse. */
function toPart(block: z.infer<typeof text> | z.infer<typeof image>): WireFields {
  if (block.type === 'text') return { type: 'text', text: block.text }
  const { source } = block
  const url = source.type === 'url' ? source.url : `data:${source.media_type};base64,${source.data}`
  return { type: 'image_url', image_url: { url } }
}

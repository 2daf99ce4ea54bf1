/** The bodies of Ollama's API: their schemas, and their translation to chat requests. */

import type { WireFields } from '../../generation/pass-through.ts'
import { annotate, z } from '../../schema/schema.ts'
import type { RequestReader } from '../requests/request-reader.ts'
import { isGiven } from '../requests/typed-request.ts'
import { toFormatFields, type TranslatedMessage, type Translation } from './translation.ts'

const images = z.array(z.string()).nullish().describe('Images as base64.')

const toolCall = z.object({
  id: z.string().nullish(),
  function: z.object({ name: z.string(), arguments: z.looseObject({}) }),
})

const messageSchema = z.object({
  role: z.enum(['system', 'user', 'assistant', 'tool']),
  content: z.string().nullish(),
  thinking: z.string().nullish(),
  images,
  tool_calls: z.array(toolCall).nullish(),
  tool_name: z.string().nullish(),
  tool_call_id: z.string().nullish(),
})

const commonFields = {
  model: z.string().describe('A served name, with or without `:latest`.'),
  stream: z.boolean().nullish().describe('Whether the answer comes as lines. Default true.'),
  format: annotate(z.union([z.enum(['', 'json']), z.looseObject({})]), {
    expected: "'json' or a JSON schema",
  })
    .nullish()
    .describe('Any JSON object, or JSON that fits a schema.'),
  think: annotate(z.union([z.boolean(), z.string()]), { expected: 'a boolean or a string' })
    .nullish()
    .describe('Whether, or how much, the model reasons, if its chat template has a choice.'),
  options: z.looseObject({}).nullish().describe('Sampling, such as `num_predict` and `top_k`.'),
}

/** Other fields, such as `priority`, are read like those of a chat request. */
export const ollamaChatRequest = z.looseObject({
  ...commonFields,
  messages: z.array(messageSchema).nullish().describe('The conversation so far.'),
  tools: z.array(z.looseObject({})).nullish().describe('Functions that the model may call.'),
})

export const ollamaGenerateRequest = z.looseObject({
  ...commonFields,
  prompt: z.string().nullish(),
  system: z.string().nullish().describe('The system prompt.'),
  images,
  raw: z.boolean().nullish().describe('Whether the prompt is continued without a chat template.'),
})

type ChatRequest = z.infer<typeof ollamaChatRequest>
type GenerateRequest = z.infer<typeof ollamaGenerateRequest>

const names = {
  max_tokens: 'options.num_predict',
  response_format: 'format',
  ...Object.fromEntries(
    ['temperature', 'top_p', 'top_k', 'min_p', 'seed', 'stop'].map((name) => [
      name,
      `options.${name}`,
    ]),
  ),
  repeat_penalty: 'options.repeat_penalty',
  presence_penalty: 'options.presence_penalty',
  frequency_penalty: 'options.frequency_penalty',
}

export function toChatTranslation(body: ChatRequest, reader: RequestReader): Translation {
  const { messages, tools, ...common } = body
  const hasTools = isGiven(tools) && tools.length > 0
  const { fields, thinking } = readCommonFields(common, reader)
  return {
    messages: toMessages(messages ?? []),
    fields: { ...fields, ...(hasTools ? { tools } : {}) },
    names,
    thinking,
    continuesAnswer: true,
  }
}

export function toPromptTranslation(body: GenerateRequest, reader: RequestReader): Translation {
  const { prompt, system, images: pictures, raw: _, ...common } = body
  const content = toContent(prompt ?? '', pictures)
  const head = { message: { role: 'system', content: system }, path: 'system' }
  return {
    messages: [
      ...(isGiven(system) && system !== '' ? [head] : []),
      { message: { role: 'user', content }, path: 'prompt' },
    ],
    ...readCommonFields(common, reader),
    names,
  }
}

/** Returns the body of a completion, for a prompt without a chat template. */
export function toRawBody(body: GenerateRequest, reader: RequestReader): WireFields {
  const { prompt, system: _, images: _images, raw: _raw, ...common } = body
  return { ...readCommonFields(common, reader).fields, prompt: prompt ?? '' }
}

/**
 * Options that are not passed on: `num_predict`, which becomes `max_tokens`, those for loading a
 * model, which the configuration decides, and those for sampling that no engine has.
 */
const droppedOptions = new Set(
  `num_predict num_ctx num_batch num_gpu num_thread num_keep main_gpu low_vram f16_kv vocab_only
  use_mmap use_mlock numa logits_all embedding_only typical_p repeat_last_n penalize_newline
  mirostat mirostat_tau mirostat_eta tfs_z draft_num_predict`.split(/\s+/),
)

type CommonFields = Pick<ChatRequest, keyof typeof commonFields> & WireFields

function readCommonFields(
  body: CommonFields,
  { rules }: RequestReader,
): Pick<Translation, 'fields' | 'thinking'> {
  // A single destructuring pattern, because each rest element copies the object.
  const {
    model,
    stream,
    format,
    think,
    options,
    keep_alive: _keepAlive,
    truncate: _truncate,
    shift: _shift,
    context: _context,
    ...fields
  } = body
  const sampling: Record<string, unknown> = {}
  for (const name in options) if (!droppedOptions.has(name)) sampling[name] = options[name]
  const limit = options?.['num_predict']
  const isUnlimited = typeof limit === 'number' && limit < 0
  return {
    fields: {
      ...fields,
      ...sampling,
      ...(isGiven(limit) ? { max_tokens: isUnlimited ? rules.contextLength : limit } : {}),
      ...toResponseFormat(format),
      model: toServedName(model, rules.models),
      stream: stream ?? true,
    },
    thinking: think ?? undefined,
  }
}

const latest = ':latest'

/** Removes the tag `:latest`, which clients add to names without a tag. */
export const toServedName = (name: string, served: readonly string[]): string =>
  served.includes(name) || !name.endsWith(latest) ? name : name.slice(0, -latest.length)

function toResponseFormat(format: CommonFields['format']): WireFields {
  if (!isGiven(format) || format === '') return {}
  return format === 'json' ? { response_format: { type: 'json_object' } } : toFormatFields(format)
}

/**
 * Calls without an id get one. A result without an id answers the earliest open call of its tool.
 */
function toMessages(messages: NonNullable<ChatRequest['messages']>): readonly TranslatedMessage[] {
  let count = 0
  const open: { readonly id: string; readonly name: string }[] = []
  return messages.map((given, at) => {
    const path = `messages[${at}]`
    const { role, content, thinking, images: pictures, tool_calls: calls } = given
    if (role === 'tool') {
      const { tool_name: name, tool_call_id: id } = given
      const next = open.findIndex((call) => !isGiven(name) || call.name === name)
      const [matched] = isGiven(id) || next === -1 ? [] : open.splice(next, 1)
      const callId = id ?? matched?.id ?? ''
      return { message: { role, tool_call_id: callId, content: content ?? '' }, path }
    }
    const toolCalls = calls?.map(({ id, function: { name, arguments: values } }) => {
      const call = { id: id ?? `call_${count++}`, name }
      open.push(call)
      return {
        id: call.id,
        type: 'function',
        function: { name, arguments: JSON.stringify(values) },
      }
    })
    const message = {
      role,
      content: toContent(content ?? '', pictures),
      ...(isGiven(thinking) ? { reasoning_content: thinking } : {}),
      ...(isGiven(toolCalls) && toolCalls.length > 0 ? { tool_calls: toolCalls } : {}),
    }
    return { message, path }
  })
}

function toContent(text: string, pictures: readonly string[] | null | undefined): unknown {
  if (!isGiven(pictures) || pictures.length === 0) return text
  const parts = pictures.map((data) => {
    const type = data.startsWith('iVBOR') ? 'png' : 'jpeg'
    return { type: 'image_url', image_url: { url: `data:image/${type};base64,${data}` } }
  })
  return [{ type: 'text', text }, ...parts]
}

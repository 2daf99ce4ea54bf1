/** Encodes a request for the chat-completions and completions endpoints. */

import type {
  ChatMessage,
  GenerationInput,
  GenerationRequest,
  OutputFormat,
  Sampling,
  ToolDefinition,
} from '../../generation/inference-engine.ts'

/** What to post, and to which endpoint of the API. */
export interface CallRequest {
  readonly path: '/chat/completions' | '/completions'
  /** JSON, created at each call: it may be long and is needed only for a moment. */
  readonly body: () => string
}

/**
 * Always streams and asks for the usage. Fields that only some servers know (`top_k` and the like)
 * are omitted if they would change nothing.
 */
export function toCall(model: string, { input, sampling }: GenerationRequest): CallRequest {
  const fields = {
    model,
    stream: true,
    stream_options: { include_usage: true },
    ...samplingFields(sampling),
    ...formatFields(sampling.format),
    ...logprobFields(input, sampling),
    ...toolChoiceField(input),
  }
  return {
    path: input.kind === 'text' ? '/completions' : '/chat/completions',
    body: () => `${JSON.stringify(fields).slice(0, -1)},${inputFields(input)}}`,
  }
}

/** JSON of inputs, messages and tools, kept as long as they are: choices share them. */
const encoded = new WeakMap<object, string>()

function encodeOnce<T extends object>(what: T, toWire: (what: T) => unknown): string {
  const known = encoded.get(what)
  if (known !== undefined) return known
  const json = JSON.stringify(toWire(what))
  encoded.set(what, json)
  return json
}

/** The long part of a body. Messages are encoded one by one: lists of them may be copies. */
function inputFields(input: GenerationInput): string {
  if (input.kind === 'text') return `"prompt":${encodeOnce(input, ({ text }) => text)}`
  const messages = input.messages.map((message) => encodeOnce(message, toMessage))
  const { tools = [] } = input
  const toolsField = tools.length === 0 ? '' : `,"tools":${encodeOnce(tools, toTools)}`
  return `"messages":[${messages.join(',')}]${toolsField}`
}

function samplingFields(sampling: Sampling): Record<string, unknown> {
  const { topK, minP, repetitionPenalty, seed, stop, ignoreEos } = sampling
  return {
    max_tokens: sampling.maxTokens,
    temperature: sampling.temperature,
    top_p: sampling.topP,
    ...(topK === 0 ? {} : { top_k: topK }),
    ...(minP === 0 ? {} : { min_p: minP }),
    ...(repetitionPenalty === 1 ? {} : { repetition_penalty: repetitionPenalty }),
    ...(seed === null ? {} : { seed }),
    ...(stop.length === 0 ? {} : { stop }),
    ...(ignoreEos ? { ignore_eos: true } : {}),
  }
}

function formatFields(format: OutputFormat): Record<string, unknown> {
  if (format.kind === 'text') return {}
  if (format.kind === 'json_object') return { response_format: { type: 'json_object' } }
  const json_schema = { name: 'answer', strict: true, schema: format.schema }
  return { response_format: { type: 'json_schema', json_schema } }
}

function logprobFields(input: GenerationInput, { logprobs }: Sampling): Record<string, unknown> {
  if (logprobs === null) return {}
  return input.kind === 'text' ? { logprobs } : { logprobs: true, top_logprobs: logprobs }
}

/** Servers reject a choice without tools. */
function toolChoiceField(input: GenerationInput): Record<string, unknown> {
  if (input.kind === 'text') return {}
  const { tools = [], toolChoice } = input
  if (tools.length === 0 || toolChoice === undefined) return {}
  if (typeof toolChoice === 'string') return { tool_choice: toolChoice }
  return { tool_choice: { type: 'function', function: { name: toolChoice.name } } }
}

const toTools = (tools: readonly ToolDefinition[]): readonly object[] =>
  tools.map((tool) => ({ type: 'function', function: tool }))

function toMessage(message: ChatMessage): Record<string, unknown> {
  const { role, content, toolCalls = [], toolCallId, name } = message
  const calls = toolCalls.map((call) => ({
    id: call.id,
    type: 'function',
    function: { name: call.name, arguments: call.arguments },
  }))
  return {
    role,
    content: content === '' && calls.length > 0 ? null : content,
    ...(calls.length === 0 ? {} : { tool_calls: calls }),
    ...(toolCallId === undefined ? {} : { tool_call_id: toolCallId }),
    ...(name === undefined ? {} : { name }),
  }
}

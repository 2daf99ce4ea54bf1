/** Encodes a request for the chat-completions and completions endpoints. */

import type {
  ChatMessage,
  GenerationInput,
  OutputFormat,
  Sampling,
} from '../../generation/inference-engine.ts'
import { definedFields } from '../../../foundation/options.ts'
import type { PassThroughRequest, WireFields } from '../../generation/pass-through.ts'

interface UpstreamRequest {
  readonly path: '/chat/completions' | '/completions'
  /** Encodes the body as JSON on each call. The result is not stored, because it may be long. */
  readonly body: () => string
}

/** Encodes a request. A field that only some servers know is omitted if it has no effect. */
export function toApiRequest(
  model: string,
  { input, sampling }: PassThroughRequest,
): UpstreamRequest {
  const path = input.kind === 'text' ? '/completions' : '/chat/completions'
  const { body } = input
  if (body === undefined) {
    const fields = {
      ...samplingFields(sampling),
      ...formatFields(sampling.format),
      ...logprobFields(input, sampling),
      ...toolChoiceField(input),
      model,
      ...streamFields,
    }
    return { path, body: () => JSON.stringify({ ...fields, ...inputFields(input) }) }
  }
  const { messages: _, prompt: _prompt, tools: _tools, ...short } = body
  const fields = {
    ...clientFields(short, sampling),
    model,
    ...(isUnstreamed(short) ? { stream: false } : streamFields),
  }
  return { path, body: () => `${JSON.stringify(fields).slice(0, -1)},${encodeOnce(body)}` }
}

const streamFields = { stream: true, stream_options: { include_usage: true } }

/** Fields that servers support only if the answer is not streamed. */
const unstreamedFields = [
  'prompt_logprobs',
  'use_beam_search',
  'best_of',
  'kv_transfer_params',
  'audio',
]

/** Whether the answer must not be streamed. A client that requested a stream always gets one. */
const isUnstreamed = (fields: WireFields): boolean =>
  fields['stream'] !== true && unstreamedFields.some((name) => Object.hasOwn(fields, name))

/** Fields that limit the length of an answer. They override the configured limit. */
const lengthFields = ['max_tokens', 'max_completion_tokens', 'n_predict']

/** The client's fields take precedence, except the seed, which differs between choices. */
function clientFields(fields: WireFields, sampling: Sampling): WireFields {
  const { max_tokens: maxTokens, ...rest } = samplingFields(sampling)
  const isLimited = lengthFields.some((name) => Object.hasOwn(fields, name))
  const { seed } = sampling
  return {
    ...(isLimited ? {} : { max_tokens: maxTokens }),
    ...rest,
    ...fields,
    ...(seed === null || !Object.hasOwn(fields, 'seed') ? {} : { seed }),
  }
}

/** The JSON of the long fields of each body. All choices of a request share it. */
const encodedBodies = new WeakMap<WireFields, string>()

function encodeOnce(body: WireFields): string {
  const known = encodedBodies.get(body)
  if (known !== undefined) return known
  const { messages, prompt, tools } = body
  const json = JSON.stringify({ messages, prompt, tools }).slice(1)
  encodedBodies.set(body, json)
  return json
}

function inputFields(input: GenerationInput): WireFields {
  if (input.kind === 'text') return { prompt: input.tokens ?? input.text }
  const { messages, tools = [] } = input
  const toolFields = tools.map((tool) => ({ type: 'function', function: tool }))
  return {
    messages: messages.map(toMessage),
    ...(tools.length === 0 ? {} : { tools: toolFields }),
  }
}

function samplingFields(sampling: Sampling): WireFields {
  const { topK, minP, repetitionPenalty, seed, stop, ignoreEos } = sampling
  const { presencePenalty, frequencyPenalty, logitBias } = sampling
  return {
    max_tokens: sampling.maxTokens,
    temperature: sampling.temperature,
    top_p: sampling.topP,
    ...(topK === 0 ? {} : { top_k: topK }),
    ...(minP === 0 ? {} : { min_p: minP }),
    ...(repetitionPenalty === 1 ? {} : { repetition_penalty: repetitionPenalty }),
    ...(presencePenalty === 0 ? {} : { presence_penalty: presencePenalty }),
    ...(frequencyPenalty === 0 ? {} : { frequency_penalty: frequencyPenalty }),
    ...(Object.keys(logitBias).length === 0 ? {} : { logit_bias: logitBias }),
    ...(seed === null ? {} : { seed }),
    ...(stop.length === 0 ? {} : { stop }),
    ...(ignoreEos ? { ignore_eos: true } : {}),
  }
}

function formatFields(format: OutputFormat): Record<string, unknown> {
  if (format.kind === 'text') return {}
  if (format.kind === 'json_object') return { response_format: { type: 'json_object' } }
  if (format.kind === 'regex') return { guided_regex: format.pattern }
  if (format.kind === 'choice') return { guided_choice: format.choices }
  if (format.kind === 'grammar') return { guided_grammar: format.grammar }
  const json_schema = { name: 'answer', strict: true, schema: format.schema }
  return { response_format: { type: 'json_schema', json_schema } }
}

function logprobFields(input: GenerationInput, { logprobs }: Sampling): Record<string, unknown> {
  if (logprobs === null) return {}
  return input.kind === 'text' ? { logprobs } : { logprobs: true, top_logprobs: logprobs }
}

/** Omits `tool_choice` if there are no tools, because servers would reject the request. */
function toolChoiceField(input: GenerationInput): Record<string, unknown> {
  if (input.kind === 'text') return {}
  const { tools = [], toolChoice } = input
  if (tools.length === 0 || toolChoice === undefined) return {}
  if (typeof toolChoice === 'string') return { tool_choice: toolChoice }
  return { tool_choice: { type: 'function', function: { name: toolChoice.name } } }
}

function toMessage({ role, content, toolCalls = [], toolCallId, name }: ChatMessage): WireFields {
  const calls = toolCalls.map(({ name: tool, id, arguments: given }) => {
    return { id, type: 'function', function: { name: tool, arguments: given } }
  })
  return definedFields({
    role,
    content: content === '' && calls.length > 0 ? null : content,
    tool_calls: calls.length === 0 ? undefined : calls,
    tool_call_id: toolCallId,
    name,
  })
}

/** One of our requests in the words of the chat-completions and completions endpoints. */

import type {
  ChatMessage,
  GenerationInput,
  GenerationRequest,
  OutputFormat,
  Sampling,
} from '../../engine.ts'

/** What is to be posted, and to which endpoint below the API's root. */
export interface Call {
  readonly path: '/chat/completions' | '/completions'
  readonly body: Readonly<Record<string, unknown>>
}

/**
 * The call of a request. It always streams and asks for the usage. What only some servers know
 * (`top_k` and the like) is left out where it would change nothing.
 */
export function toCall(model: string, { input, sampling }: GenerationRequest): Call {
  const common = {
    model,
    stream: true,
    stream_options: { include_usage: true },
    ...samplingFields(sampling),
    ...formatFields(sampling.format),
  }
  if (input.kind === 'text') {
    const logprobs = sampling.logprobs === null ? {} : { logprobs: sampling.logprobs }
    return { path: '/completions', body: { ...common, prompt: input.text, ...logprobs } }
  }
  const logprobs =
    sampling.logprobs === null ? {} : { logprobs: true, top_logprobs: sampling.logprobs }
  const messages = input.messages.map(toMessage)
  return {
    path: '/chat/completions',
    body: { ...common, messages, ...toolFields(input), ...logprobs },
  }
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

function toolFields(input: GenerationInput & { kind: 'chat' }): Record<string, unknown> {
  const { tools = [], toolChoice } = input
  if (tools.length === 0) return {}
  const choice =
    typeof toolChoice === 'object'
      ? { type: 'function', function: { name: toolChoice.name } }
      : toolChoice
  return {
    tools: tools.map((tool) => ({ type: 'function', function: tool })),
    ...(choice === undefined ? {} : { tool_choice: choice }),
  }
}

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

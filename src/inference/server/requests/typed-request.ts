/** Converts checked bodies: the conversation, the sampling and the required format. Pure. */

import type {
  ChatInput,
  ChatMessage,
  OutputFormat,
  Sampling,
  ToolChoice,
  ToolDefinition,
} from '../../generation/inference-engine.ts'
import { wrongValue } from './invalid-request.ts'
import type { ChatBody, CompletionBody, GenerateBody, MessageBody } from './request-schema.ts'

/** A field that is `null` counts as left out. */
export const isGiven = <T>(value: T | null | undefined): value is T =>
  value !== undefined && value !== null

/** The sampling of a request; values that the request leaves out come from the configuration. */
export function samplingOf(
  body: ChatBody | CompletionBody | GenerateBody,
  defaultMaxTokens: number,
): { -readonly [K in keyof Sampling]?: Sampling[K] } {
  const { max_tokens: maxTokens, max_completion_tokens: newer } = body
  if (isGiven(maxTokens) && isGiven(newer)) {
    throw wrongValue(
      'max_tokens',
      "Invalid value for 'max_tokens': it is not allowed with 'max_completion_tokens'.",
    )
  }
  const sampling: ReturnType<typeof samplingOf> = {
    maxTokens: newer ?? maxTokens ?? defaultMaxTokens,
  }
  if (isGiven(body.temperature)) sampling.temperature = body.temperature
  if (isGiven(body.top_p)) sampling.topP = body.top_p
  if (isGiven(body.top_k)) sampling.topK = Math.max(0, body.top_k)
  if (isGiven(body.min_p)) sampling.minP = body.min_p
  const repetitionPenalty = repetitionPenaltyOf(body)
  if (isGiven(repetitionPenalty)) sampling.repetitionPenalty = repetitionPenalty
  if (isGiven(body.presence_penalty)) sampling.presencePenalty = body.presence_penalty
  if (isGiven(body.frequency_penalty)) sampling.frequencyPenalty = body.frequency_penalty
  if (isGiven(body.logit_bias)) sampling.logitBias = body.logit_bias
  if (isGiven(body.seed)) sampling.seed = body.seed
  if (isGiven(body.stop)) sampling.stop = typeof body.stop === 'string' ? [body.stop] : body.stop
  if (isGiven(body.ignore_eos)) sampling.ignoreEos = body.ignore_eos
  return sampling
}

/** vLLM names the field `repetition_penalty`; llama-server and Ollama, `repeat_penalty`. */
function repetitionPenaltyOf(
  body: ChatBody | CompletionBody | GenerateBody,
): number | null | undefined {
  const { repetition_penalty: penalty, repeat_penalty: other } = body
  if (!isGiven(penalty) || !isGiven(other) || penalty === other) return penalty ?? other
  throw wrongValue(
    'repeat_penalty',
    "Invalid value for 'repeat_penalty': 'repetition_penalty' has another value.",
  )
}

/** How many alternatives per token a chat request asks for; `null` for no log probabilities. */
export function logprobsOf({ logprobs, top_logprobs: top }: ChatBody): number | null {
  if (logprobs === true) return top ?? 0
  if (!isGiven(top)) return null
  throw wrongValue(
    'top_logprobs',
    "Invalid value for 'top_logprobs': it is only allowed when 'logprobs' is true.",
  )
}

export function toChatInput(body: ChatBody): ChatInput {
  const tools = body.tools?.map(toTool)
  const toolChoice = toolChoiceOf(body, tools)
  if (isGiven(body.parallel_tool_calls)) expectTools('parallel_tool_calls', tools)
  return {
    kind: 'chat',
    messages: body.messages.map(toMessage),
    ...(tools === undefined ? {} : { tools }),
    ...(toolChoice === undefined ? {} : { toolChoice }),
    ...templateFields(body),
  }
}

/** Whether the answer must be a tool call and nothing else. */
export const isForced = ({ toolChoice }: ChatInput): boolean =>
  toolChoice === 'required' || typeof toolChoice === 'object'

/**
 * For a forced tool call: returns `true` if `response_format` requires the format, which is then
 * ignored, as in the public API. Throws if another field requires the format, because such a field
 * applies to the whole answer and contradicts the call.
 */
export function isOfResponse(body: ChatBody, format: OutputFormat): boolean {
  const named = 'field' in format ? format.field : undefined
  const field = named ?? (isGiven(body.structured_outputs) ? 'structured_outputs' : undefined)
  if (field === undefined) return true
  throw wrongValue(field, `Invalid value for '${field}': 'tool_choice' asks for a call.`)
}

function templateFields(body: ChatBody): Partial<ChatInput> {
  const { parallel_tool_calls: parallel, chat_template_kwargs: given, reasoning_effort } = body
  return {
    ...(parallel === false ? { parallelToolCalls: false } : {}),
    ...(isGiven(given) ? { templateArguments: given } : {}),
    ...(isGiven(reasoning_effort) ? { reasoningEffort: reasoning_effort } : {}),
  }
}

function toMessage(body: MessageBody): ChatMessage {
  const { role, content, name } = body
  const calls = role === 'assistant' ? body.tool_calls : undefined
  const thought = role === 'assistant' ? (body.reasoning_content ?? body.reasoning) : undefined
  return {
    role: role === 'developer' ? 'system' : role,
    content: typeof content === 'string' ? content : textOf(content ?? []),
    ...(isGiven(name) ? { name } : {}),
    ...(isGiven(thought) ? { reasoning: thought } : {}),
    ...(isGiven(calls) ? { toolCalls: calls.map(toToolCall) } : {}),
    ...(role === 'tool' ? { toolCallId: body.tool_call_id } : {}),
  }
}

const textOf = (parts: readonly { readonly text: string }[]): string =>
  parts.map(({ text }) => text).join('')

type AssistantBody = Extract<MessageBody, { role: 'assistant' }>
type ToolCallBody = NonNullable<AssistantBody['tool_calls']>[number]

const toToolCall = ({ id, function: called }: ToolCallBody) => ({
  id,
  name: called.name,
  arguments: called.arguments,
})

function toTool({ function: described }: NonNullable<ChatBody['tools']>[number]): ToolDefinition {
  const { name, description, parameters } = described
  return {
    name,
    ...(isGiven(description) ? { description } : {}),
    ...(isGiven(parameters) ? { parameters } : {}),
  }
}

function expectTools(field: string, tools: readonly ToolDefinition[] | undefined): void {
  if (tools !== undefined && tools.length > 0) return
  const reason = `'${field}' is only allowed when 'tools' are specified.`
  throw wrongValue(field, `Invalid value for '${field}': ${reason}`)
}

function toolChoiceOf(
  { tool_choice: choice }: ChatBody,
  tools: readonly ToolDefinition[] | undefined,
): ToolChoice | undefined {
  if (!isGiven(choice)) return undefined
  if (choice !== 'none') expectTools('tool_choice', tools)
  if (typeof choice === 'string') return choice
  const { name } = choice.function
  if (tools?.some((tool) => tool.name === name) === true) return { name }
  throw wrongValue(
    'tool_choice.function.name',
    `Invalid value for 'tool_choice.function.name': no tool in 'tools' is called '${name}'.`,
  )
}

interface Guide {
  readonly field: string
  readonly value: unknown
  readonly toFormat: (value: unknown, field: string) => OutputFormat
}

/** The given fields that require a format, without `response_format`. Only one is allowed. */
function guidesOf(body: ChatBody | CompletionBody): Guide[] {
  const structured = body.structured_outputs
  const flag = structured?.json_object === true ? true : undefined
  const guide = (field: string, value: unknown, convert: Guide['toFormat']): Guide => ({
    field,
    value,
    toFormat: convert,
  })
  const guides = [
    guide('guided_json', body.guided_json, schemaFormat),
    guide('json_schema', body.json_schema, schemaFormat),
    guide('guided_regex', body.guided_regex, regexFormat),
    guide('guided_choice', body.guided_choice, choiceFormat),
    guide('guided_grammar', body.guided_grammar, grammarFormat),
    guide('grammar', body.grammar, grammarFormat),
    guide('structured_outputs.json', structured?.json, schemaFormat),
    guide('structured_outputs.regex', structured?.regex, regexFormat),
    guide('structured_outputs.choice', structured?.choice, choiceFormat),
    guide('structured_outputs.grammar', structured?.grammar, grammarFormat),
    guide('structured_outputs.json_object', flag, () => ({ kind: 'json_object' })),
  ]
  return guides.filter(({ value }) => isAsked(value))
}

/** The required format; `undefined` for any text. Throws `HttpError` if two fields require one. */
export function outputFormatOf(body: ChatBody | CompletionBody): OutputFormat | undefined {
  const format = toFormat(body.response_format)
  const [first, second] = guidesOf(body)
  if (first === undefined) return format
  const { field } = first
  const other = second?.field ?? (format === undefined ? undefined : 'response_format')
  if (other === undefined) return first.toFormat(first.value, field)
  throw wrongValue(field, `Invalid value for '${field}': it is not allowed with '${other}'.`)
}

const regexFormat = (value: unknown, field: string): OutputFormat => ({
  kind: 'regex',
  pattern: String(value),
  field,
})

const choiceFormat = (value: unknown, field: string): OutputFormat => ({
  kind: 'choice',
  choices: value as readonly string[],
  field,
})

const grammarFormat = (value: unknown, field: string): OutputFormat => ({
  kind: 'grammar',
  grammar: String(value),
  field,
})

const isAsked = (value: unknown): boolean => value !== undefined && value !== null && value !== ''

function toFormat(format: ChatBody['response_format']): OutputFormat | undefined {
  if (format === undefined || format === null || format.type === 'text') return undefined
  if (format.type === 'json_schema') {
    return { kind: 'json_schema', schema: format.json_schema.schema }
  }
  return format.schema === undefined || format.schema === null
    ? { kind: 'json_object' }
    : { kind: 'json_schema', schema: format.schema }
}

/** vLLM accepts a schema as an object or as JSON text. */
function schemaFormat(value: unknown, field: string): OutputFormat {
  if (typeof value === 'object' && value !== null)
    return { kind: 'json_schema', schema: value, field }
  try {
    const schema: unknown = JSON.parse(String(value))
    if (typeof schema === 'object' && schema !== null) return { kind: 'json_schema', schema, field }
  } catch {}
  throw wrongValue(field, `Invalid value for '${field}': expected a JSON schema.`)
}

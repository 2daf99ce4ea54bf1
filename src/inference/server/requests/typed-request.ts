/** Converts checked bodies: the conversation, the sampling and the required format. Pure. */

import { tryRead } from '../../../foundation/errors.ts'
import type {
  ChatInput,
  ChatMessage,
  OutputFormat,
  Sampling,
  ToolChoice,
  ToolDefinition,
} from '../../generation/inference-engine.ts'
import { extractText } from '../../generation/fields/message-text.ts'
import { wrongValueError } from './invalid-request.ts'
import type { ChatBody, CompletionBody, GenerateBody, MessageBody } from './request-schema.ts'

/** Whether a field has a value. A field that is `null` is treated as missing. */
export const isGiven = <T>(value: T | null | undefined): value is T =>
  value !== undefined && value !== null

/** The configuration supplies the values that the request leaves out. */
export function toSampling(
  body: ChatBody | CompletionBody | GenerateBody,
  defaultMaxTokens: number,
): { -readonly [K in keyof Sampling]?: Sampling[K] } {
  const { max_tokens: maxTokens, max_completion_tokens: maxCompletionTokens } = body
  if (isGiven(maxTokens) && isGiven(maxCompletionTokens)) {
    throw wrongValueError(
      'max_tokens',
      "Invalid value for 'max_tokens': it is not allowed with 'max_completion_tokens'.",
    )
  }
  const sampling: ReturnType<typeof toSampling> = {
    maxTokens: maxCompletionTokens ?? maxTokens ?? defaultMaxTokens,
  }
  const fields = { ...body, repetition_penalty: toRepetitionPenalty(body) }
  for (const [name, option] of samplingNames) {
    const value = fields[name]
    if (isGiven(value)) Object.assign(sampling, { [option]: value })
  }
  if (isGiven(body.top_k)) sampling.topK = Math.max(0, body.top_k)
  if (isGiven(body.stop)) sampling.stop = typeof body.stop === 'string' ? [body.stop] : body.stop
  return sampling
}

/** Fields whose values are copied to `Sampling`. */
const samplingNames = [
  ['temperature', 'temperature'],
  ['top_p', 'topP'],
  ['min_p', 'minP'],
  ['repetition_penalty', 'repetitionPenalty'],
  ['presence_penalty', 'presencePenalty'],
  ['frequency_penalty', 'frequencyPenalty'],
  ['logit_bias', 'logitBias'],
  ['seed', 'seed'],
  ['ignore_eos', 'ignoreEos'],
] as const

/** vLLM names the field `repetition_penalty`, llama-server and Ollama `repeat_penalty`. */
function toRepetitionPenalty(
  body: ChatBody | CompletionBody | GenerateBody,
): number | null | undefined {
  const { repetition_penalty: penalty, repeat_penalty: other } = body
  if (!isGiven(penalty) || !isGiven(other) || penalty === other) return penalty ?? other
  throw wrongValueError(
    'repeat_penalty',
    "Invalid value for 'repeat_penalty': 'repetition_penalty' has another value.",
  )
}

/** The number of alternatives per token; `null` for no log probabilities. */
export function toLogprobs({ logprobs, top_logprobs: top }: ChatBody): number | null {
  if (logprobs === true) return top ?? 0
  if (!isGiven(top)) return null
  throw wrongValueError(
    'top_logprobs',
    "Invalid value for 'top_logprobs': it is only allowed when 'logprobs' is true.",
  )
}

export function toChatInput(body: ChatBody): ChatInput {
  const tools = body.tools?.map(toTool)
  const toolChoice = toToolChoice(body, tools)
  const { parallel_tool_calls: parallel, chat_template_kwargs: given, reasoning_effort } = body
  if (isGiven(parallel)) expectTools('parallel_tool_calls', tools)
  return {
    kind: 'chat',
    messages: body.messages.map(toMessage),
    ...(tools === undefined ? {} : { tools }),
    ...(toolChoice === undefined ? {} : { toolChoice }),
    ...(parallel === false ? { parallelToolCalls: false } : {}),
    ...(isGiven(given) ? { templateArguments: given } : {}),
    ...(isGiven(reasoning_effort) ? { reasoningEffort: reasoning_effort } : {}),
    ...(continuesFinalMessage(body) ? { continuesFinalMessage: true } : {}),
  }
}

function continuesFinalMessage(body: ChatBody): boolean {
  const field = 'continue_final_message'
  const { [field]: isContinued, add_generation_prompt: isNewMessage } = body
  if (isContinued !== true) {
    if (isNewMessage !== false) return false
    const reason = `it is only allowed to be false with '${field}'.`
    throw wrongValueError(
      'add_generation_prompt',
      `Invalid value for 'add_generation_prompt': ${reason}`,
    )
  }
  const last = body.messages.at(-1)
  const isText = last?.role === 'assistant' && !isGiven(last.tool_calls)
  const reason =
    isNewMessage === true
      ? "it is not allowed with 'add_generation_prompt'."
      : isText && extractText(last.content) !== ''
        ? undefined
        : 'the last message must be a text of the assistant.'
  if (reason === undefined) return true
  throw wrongValueError(field, `Invalid value for '${field}': ${reason}`)
}

export const requiresToolCall = ({ toolChoice }: ChatInput): boolean =>
  toolChoice === 'required' || typeof toolChoice === 'object'

/**
 * Whether the format comes from `response_format`, which a required tool call overrides as in the
 * public API. Throws if the format comes from another field.
 */
export function isResponseFormat(body: ChatBody, format: OutputFormat): boolean {
  const named = 'field' in format ? format.field : undefined
  const field = named ?? (isGiven(body.structured_outputs) ? 'structured_outputs' : undefined)
  if (field === undefined) return true
  throw wrongValueError(field, `Invalid value for '${field}': 'tool_choice' asks for a call.`)
}

function toMessage(body: MessageBody): ChatMessage {
  const { role, content, name } = body
  const calls = role === 'assistant' ? body.tool_calls : undefined
  const toolCalls = calls?.map(({ id, function: called }) => {
    return { id, name: called.name, arguments: called.arguments }
  })
  const reasoning = role === 'assistant' ? (body.reasoning_content ?? body.reasoning) : undefined
  return {
    role: role === 'developer' ? 'system' : role,
    content: extractText(content),
    ...(isGiven(name) ? { name } : {}),
    ...(isGiven(reasoning) ? { reasoning: reasoning } : {}),
    ...(isGiven(toolCalls) ? { toolCalls } : {}),
    ...(role === 'tool' ? { toolCallId: body.tool_call_id } : {}),
  }
}

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
  throw wrongValueError(field, `Invalid value for '${field}': ${reason}`)
}

function toToolChoice(
  { tool_choice: choice }: ChatBody,
  tools: readonly ToolDefinition[] | undefined,
): ToolChoice | undefined {
  if (!isGiven(choice)) return undefined
  if (choice !== 'none') expectTools('tool_choice', tools)
  if (typeof choice === 'string') return choice
  const { name } = choice.function
  if (tools?.some((tool) => tool.name === name) === true) return { name }
  throw wrongValueError(
    'tool_choice.function.name',
    `Invalid value for 'tool_choice.function.name': no tool in 'tools' is called '${name}'.`,
  )
}

type ToFormat = (value: never, field: string) => OutputFormat

const regexFormat: ToFormat = (pattern: string, field) => ({ kind: 'regex', pattern, field })
const choiceFormat: ToFormat = (choices: string[], field) => ({ kind: 'choice', choices, field })
const grammarFormat: ToFormat = (grammar: string, field) => ({ kind: 'grammar', grammar, field })

/** The fields that require a format, besides `response_format`. */
const formatFields: Readonly<Record<string, ToFormat>> = {
  guided_json: schemaFormat,
  json_schema: schemaFormat,
  guided_regex: regexFormat,
  guided_choice: choiceFormat,
  guided_grammar: grammarFormat,
  grammar: grammarFormat,
}
const structuredFormats: Readonly<Record<string, ToFormat>> = {
  json: schemaFormat,
  regex: regexFormat,
  choice: choiceFormat,
  grammar: grammarFormat,
  json_object: () => ({ kind: 'json_object' }),
}

function listFormatFields(body: ChatBody | CompletionBody) {
  const structured: Partial<Record<string, unknown>> = body.structured_outputs ?? {}
  const given: Partial<Record<string, unknown>> = body
  const fields = [
    ...Object.entries(formatFields).map(([field, toFormat]) => {
      return { field, value: given[field], toFormat }
    }),
    ...Object.entries(structuredFormats).map(([name, toFormat]) => {
      return { field: `structured_outputs.${name}`, value: structured[name], toFormat }
    }),
  ]
  // An empty text, and `json_object: false`, require no format.
  return fields.filter(({ value }) => isGiven(value) && value !== '' && value !== false)
}

/**
 * Returns the required format; `undefined` for any text. Throws if more than one field requires a
 * format.
 */
export function toOutputFormat(body: ChatBody | CompletionBody): OutputFormat | undefined {
  const format = toResponseFormat(body.response_format)
  const [first, second] = listFormatFields(body)
  if (first === undefined) return format
  const { field } = first
  const other = second?.field ?? (format === undefined ? undefined : 'response_format')
  if (other === undefined) return first.toFormat(first.value as never, field)
  throw wrongValueError(field, `Invalid value for '${field}': it is not allowed with '${other}'.`)
}

function toResponseFormat(format: ChatBody['response_format']): OutputFormat | undefined {
  if (format === undefined || format === null || format.type === 'text') return undefined
  if (format.type === 'json_schema') {
    return { kind: 'json_schema', schema: format.json_schema.schema }
  }
  return format.schema === undefined || format.schema === null
    ? { kind: 'json_object' }
    : { kind: 'json_schema', schema: format.schema }
}

/** Converts a schema to a format. As in vLLM, the schema may be an object or JSON text. */
function schemaFormat(value: unknown, field: string): OutputFormat {
  const schema = typeof value === 'string' ? tryRead(() => JSON.parse(value) as unknown) : value
  if (typeof schema === 'object' && schema !== null) return { kind: 'json_schema', schema, field }
  throw wrongValueError(field, `Invalid value for '${field}': expected a JSON schema.`)
}

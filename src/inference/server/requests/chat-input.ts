/** Converts a chat request to its conversation, tools and template arguments. Pure. */

import type {
  ChatMessage,
  GenerationInput,
  OutputFormat,
  ToolChoice,
  ToolDefinition,
} from '../../generation/inference-engine.ts'
import { wrongValue } from './invalid-request.ts'
import type { ChatBody, MessageBody } from './request-schema.ts'
import { isGiven } from './sampling-of.ts'

type ChatInput = Extract<GenerationInput, { kind: 'chat' }>

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
 * Whether `response_format` asks for the format, which a forced call leaves unused, as in the
 * public API. The other fields that ask for a format apply to the whole answer, so that a forced
 * call contradicts them.
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

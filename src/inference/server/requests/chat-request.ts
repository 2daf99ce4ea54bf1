/** From the checked body of `POST /v1/chat/completions` to a request for text. */

import type {
  ChatMessage,
  OutputFormat,
  ToolChoice,
  ToolDefinition,
} from '../../generation/inference-engine.ts'
import { wrongValue } from './invalid-request.ts'
import type { ChatBody, MessageBody } from './request-schema.ts'
import {
  isGiven,
  type RequestRules,
  samplingOf,
  servedModel,
  streamingOf,
  type TextRequest,
} from './text-request.ts'

/** The request; fields that do not fit together are an `HttpError` that names one of them. */
export function toChatRequest(
  body: ChatBody,
  rules: RequestRules,
  ignored: readonly string[],
): TextRequest {
  const model = servedModel(body.model, rules)
  const tools = body.tools?.map(toTool)
  const toolChoice = toolChoiceOf(body, tools)
  const sampling = samplingOf(body, rules.defaultMaxTokens)
  sampling.logprobs = logprobsOf(body)
  if (isGiven(body.response_format)) sampling.format = toFormat(body.response_format)
  return {
    model,
    inputs: [
      {
        kind: 'chat',
        messages: body.messages.map(toMessage),
        ...(tools === undefined ? {} : { tools }),
        ...(toolChoice === undefined ? {} : { toolChoice }),
      },
    ],
    n: body.n ?? 1,
    sampling,
    priority: body.priority ?? 0,
    timeoutSeconds: body.timeout ?? null,
    ...streamingOf(body),
    ignored,
  }
}

function toMessage(body: MessageBody): ChatMessage {
  const { role, content, name } = body
  const calls = role === 'assistant' ? body.tool_calls : undefined
  return {
    role: role === 'developer' ? 'system' : role,
    content: typeof content === 'string' ? content : textOf(content ?? []),
    ...(isGiven(name) ? { name } : {}),
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

function toolChoiceOf(
  { tool_choice: choice }: ChatBody,
  tools: readonly ToolDefinition[] | undefined,
): ToolChoice | undefined {
  if (!isGiven(choice)) return undefined
  if (choice !== 'none' && (tools === undefined || tools.length === 0)) {
    throw wrongValue(
      'tool_choice',
      "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified.",
    )
  }
  if (typeof choice === 'string') return choice
  const { name } = choice.function
  if (tools?.some((tool) => tool.name === name) === true) return { name }
  throw wrongValue(
    'tool_choice.function.name',
    `Invalid value for 'tool_choice.function.name': no tool in 'tools' is called '${name}'.`,
  )
}

function toFormat(format: NonNullable<ChatBody['response_format']>): OutputFormat {
  if (format.type !== 'json_schema') return { kind: format.type }
  return { kind: 'json_schema', schema: format.json_schema.schema }
}

function logprobsOf({ logprobs, top_logprobs: top }: ChatBody): number | null {
  if (logprobs === true) return top ?? 0
  if (!isGiven(top) || top === 0) return null
  throw wrongValue(
    'top_logprobs',
    "Invalid value for 'top_logprobs': it is only allowed when 'logprobs' is true.",
  )
}

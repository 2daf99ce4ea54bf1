/** Rewrites a conversation so that the template of a model can render it. Pure. */

import { createHash } from 'node:crypto'
import type {
  ChatMessage,
  GenerationInput,
  ToolCall,
  ToolDefinition,
} from '../../../generation/inference-engine.ts'
import type { TemplateTraits } from './chat-template.ts'

type Chat = Extract<GenerationInput, { kind: 'chat' }>

/** The tools that the model may call. */
export function callableTools(input: GenerationInput): readonly ToolDefinition[] {
  if (input.kind === 'text' || input.toolChoice === 'none') return []
  const { tools = [], toolChoice } = input
  return typeof toolChoice === 'object'
    ? tools.filter(({ name }) => name === toolChoice.name)
    : tools
}

/** The messages, rewritten so that a template with these traits renders all of them. */
export function toTemplateMessages(chat: Chat, traits: TemplateTraits): readonly ChatMessage[] {
  let { messages } = chat
  if (!traits.knowsTools) messages = withDescribedTools(chat).map(toPlainRole)
  else if (!traits.knowsCalls) messages = messages.map(withWrittenCalls)
  else if (!traits.allowsParallelCalls) messages = messages.flatMap(separateCalls(messages))
  if (!traits.hasSystemRole) messages = withoutSystem(messages)
  if (traits.knowsTools && traits.toolsIn === 'system' && callableTools(chat).length > 0) {
    messages = withSystem(messages)
  }
  if (!traits.allowsNeighbours) messages = joinNeighbours(messages)
  return traits.callIds === 'nine' ? messages.map(withMistralCallIds) : messages
}

/** The messages with the tools described in prose, for templates without tool support. */
export function withDescribedTools(chat: Chat): readonly ChatMessage[] {
  const tools = callableTools(chat)
  if (tools.length === 0) return chat.messages
  const lines = tools.map(({ name, description, parameters }) =>
    JSON.stringify({ name, description, parameters: parameters ?? emptyParameters }),
  )
  const content = [
    'You can call these tools:',
    ...lines,
    'To call one, answer with nothing but {"name": "<tool>", "arguments": {...}}.',
  ].join('\n')
  const [head, ...rest] = chat.messages
  if (head?.role !== 'system') return [{ role: 'system', content }, ...chat.messages]
  return [{ ...head, content: `${head.content}\n\n${content}` }, ...rest]
}

/** The schema of a tool without `parameters`, which accepts no arguments. */
export const emptyParameters = { type: 'object', properties: {} } as const

/** Writes calls and their results as text of the assistant and the user. */
export function toPlainRole(message: ChatMessage): ChatMessage {
  const { role, content } = message
  if (role === 'tool') {
    const { name, toolCallId } = message
    return { role: 'user', content: `Outcome of ${name ?? toolCallId ?? 'the call'}:\n${content}` }
  }
  return withWrittenCalls(message)
}

function withWrittenCalls(message: ChatMessage): ChatMessage {
  const { role, content, toolCalls } = message
  if (toolCalls === undefined) return message
  const calls = toolCalls.map((call) => `{"name": "${call.name}", "arguments": ${call.arguments}}`)
  return { role, content: [content, ...calls].filter((text) => text !== '').join('\n') }
}

/** Joins consecutive messages of the same role, for templates that reject them. */
function joinNeighbours(messages: readonly ChatMessage[]): readonly ChatMessage[] {
  const joined: ChatMessage[] = []
  for (const message of messages) {
    const last = joined.at(-1)
    const isSame = last?.role === message.role && message.role !== 'tool'
    const hasCalls = last?.toolCalls !== undefined || message.toolCalls !== undefined
    if (last === undefined || !isSame || hasCalls) joined.push(message)
    else joined[joined.length - 1] = { ...last, content: `${last.content}\n\n${message.content}` }
  }
  return joined
}

/** Ensures that the first message is a system message, where the template looks for tools. */
function withSystem(messages: readonly ChatMessage[]): readonly ChatMessage[] {
  const [head] = messages
  return head?.role === 'system' ? messages : [{ role: 'system', content: '' }, ...messages]
}

/** Puts the text of system messages at the beginning of the first user message. */
function withoutSystem(messages: readonly ChatMessage[]): readonly ChatMessage[] {
  const isSystem = ({ role }: ChatMessage): boolean => role === 'system'
  const text = messages
    .filter(isSystem)
    .map(({ content }) => content)
    .join('\n\n')
  const others = messages.filter((message) => !isSystem(message))
  if (text === '') return others
  const at = others.findIndex(({ role }) => role === 'user')
  const first = others[at]
  if (first === undefined) return [{ role: 'user', content: text }, ...others]
  return others.with(at, { ...first, content: `${text}\n\n${first.content}` })
}

/** Splits messages so that each has one call and is followed by its result. */
function separateCalls(
  messages: readonly ChatMessage[],
): (message: ChatMessage) => readonly ChatMessage[] {
  const separated = new Set(
    messages.flatMap(({ toolCalls = [] }) => (toolCalls.length > 1 ? toolCalls : [])),
  )
  const ids = new Set([...separated].map(({ id }) => id))
  const outcomes = Map.groupBy(messages, ({ toolCallId }) => toolCallId)
  const outcomeOf = ({ id }: ToolCall): readonly ChatMessage[] =>
    outcomes.get(id)?.slice(0, 1) ?? []
  return (message) => {
    const { toolCalls = [], toolCallId } = message
    if (toolCallId !== undefined && ids.has(toolCallId)) return []
    if (toolCalls.length < 2) return [message]
    return toolCalls.flatMap((call, at) => [
      { ...message, content: at === 0 ? message.content : '', toolCalls: [call] },
      ...outcomeOf(call),
    ])
  }
}

const nineLetters = /^[a-zA-Z0-9]{9}$/

function withMistralCallIds(message: ChatMessage): ChatMessage {
  const { toolCalls, toolCallId } = message
  return {
    ...message,
    ...(toolCallId === undefined ? {} : { toolCallId: toMistralCallId(toolCallId) }),
    ...(toolCalls === undefined
      ? {}
      : { toolCalls: toolCalls.map((call) => ({ ...call, id: toMistralCallId(call.id) })) }),
  }
}

/** The same id always gives the same result, so that calls and their results still match. */
export function toMistralCallId(id: string): string {
  if (nineLetters.test(id)) return id
  return createHash('sha256').update(id).digest('hex').slice(0, 9)
}

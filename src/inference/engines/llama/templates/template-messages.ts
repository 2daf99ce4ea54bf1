/** Rewrites conversations and their variables for the template of a model. Pure. */

import { createHash } from 'node:crypto'
import { definedFields } from '../../../../foundation/options.ts'
import type {
  ChatMessage,
  GenerationInput,
  ToolCall,
  ToolDefinition,
} from '../../../generation/inference-engine.ts'
import type { ChatTemplate, TemplateTraits } from './chat-template.ts'

export type ChatInput = Extract<GenerationInput, { kind: 'chat' }>

export function callableTools(input: GenerationInput): readonly ToolDefinition[] {
  if (input.kind === 'text' || input.toolChoice === 'none') return []
  const { tools = [], toolChoice } = input
  return typeof toolChoice === 'object'
    ? tools.filter(({ name }) => name === toolChoice.name)
    : tools
}

export function toTemplateMessages(
  chat: ChatInput,
  traits: TemplateTraits,
): readonly ChatMessage[] {
  let { messages } = chat
  if (!traits.rendersTools) messages = withDescribedTools(chat).map(toPlainMessage)
  else if (!traits.rendersCalls) messages = messages.map(writeCallsAsText)
  else if (!traits.allowsParallelCalls) messages = messages.flatMap(createCallSplitter(messages))
  if (!traits.hasSystemRole) messages = removeSystemMessages(messages)
  if (traits.rendersTools && traits.toolsIn === 'system' && callableTools(chat).length > 0) {
    messages = addSystemMessage(messages)
  }
  if (!traits.allowsSameRole) messages = joinSameRole(messages)
  return traits.callIds === 'nine' ? messages.map(withMistralCallIds) : messages
}

export function withDescribedTools(chat: ChatInput): readonly ChatMessage[] {
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

export const emptyParameters = { type: 'object', properties: {} } as const

export function toPlainMessage(message: ChatMessage): ChatMessage {
  const { role, content } = message
  if (role === 'tool') {
    const { name, toolCallId } = message
    return { role: 'user', content: `Outcome of ${name ?? toolCallId ?? 'the call'}:\n${content}` }
  }
  return writeCallsAsText(message)
}

function writeCallsAsText(message: ChatMessage): ChatMessage {
  const { role, content, toolCalls } = message
  if (toolCalls === undefined) return message
  const calls = toolCalls.map((call) => `{"name": "${call.name}", "arguments": ${call.arguments}}`)
  return { role, content: [content, ...calls].filter((text) => text !== '').join('\n') }
}

function joinSameRole(messages: readonly ChatMessage[]): readonly ChatMessage[] {
  const joinedMessages: ChatMessage[] = []
  for (const message of messages) {
    const last = joinedMessages.at(-1)
    const isSame = last?.role === message.role && message.role !== 'tool'
    const hasCalls = last?.toolCalls !== undefined || message.toolCalls !== undefined
    if (last === undefined || !isSame || hasCalls) joinedMessages.push(message)
    else
      joinedMessages[joinedMessages.length - 1] = {
        ...last,
        content: `${last.content}\n\n${message.content}`,
      }
  }
  return joinedMessages
}

/** Ensures that the first message is a system message, in which the template looks for tools. */
function addSystemMessage(messages: readonly ChatMessage[]): readonly ChatMessage[] {
  const [head] = messages
  return head?.role === 'system' ? messages : [{ role: 'system', content: '' }, ...messages]
}

function removeSystemMessages(messages: readonly ChatMessage[]): readonly ChatMessage[] {
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

/** Returns a function that gives each call its own message, followed by the call's result. */
function createCallSplitter(
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

const mistralIdPattern = /^[a-zA-Z0-9]{9}$/

function withMistralCallIds(message: ChatMessage): ChatMessage {
  const { toolCalls, toolCallId } = message
  return {
    ...message,
    ...definedFields({
      toolCallId: toolCallId === undefined ? undefined : toMistralCallId(toolCallId),
      toolCalls: toolCalls?.map((call) => ({ ...call, id: toMistralCallId(call.id) })),
    }),
  }
}

/** Converts an id. Equal ids give equal results, so that calls and their results still match. */
export function toMistralCallId(id: string): string {
  if (mistralIdPattern.test(id)) return id
  return createHash('sha256').update(id).digest('hex').slice(0, 9)
}

export class ArgumentError extends Error {
  readonly param: string
  readonly clientCode: 'unsupported_parameter' | 'unsupported_value'

  constructor(param: string, message: string, clientCode: ArgumentError['clientCode']) {
    super(message)
    this.param = param
    this.clientCode = clientCode
  }
}

function unknownArgumentError(param: string, template: TemplateNamesOnly | null): ArgumentError {
  const reason =
    template === null
      ? `this model has no chat template, which would read '${param}'`
      : `the chat template of this model does not read '${param}'`
  return new ArgumentError(param, `Unsupported parameter: ${reason}.`, 'unsupported_parameter')
}

/** The levels of reasoning effort in the public API. A template may accept other levels. */
const efforts: readonly string[] = ['none', 'minimal', 'low', 'medium', 'high', 'xhigh']

const reservedNames = new Set(
  'messages tools functions add_generation_prompt bos_token eos_token'.split(' '),
)

/**
 * Throws for reserved names and for variables that the template does not read. If the template
 * cannot be parsed, accepts every other name; without a template, accepts none.
 */
export function toTemplateArguments(chat: ChatInput, template: TemplateNamesOnly | null): object {
  const { templateArguments: given = {}, reasoningEffort, thinking } = chat
  for (const name of Object.keys(given)) {
    if (reservedNames.has(name) || !readsName(template, name)) {
      throw unknownArgumentError(`chat_template_kwargs.${name}`, template)
    }
  }
  const preferred = toThinkingArguments(thinking, template)
  return { ...preferred, ...toEffortArguments(reasoningEffort, template), ...given }
}

type TemplateNamesOnly = Pick<ChatTemplate, 'names'>

const readsName = (template: TemplateNamesOnly | null, name: string): boolean =>
  template !== null && (template.names === null || template.names.variables.has(name))

/** Whether the template can switch reasoning on or off, or has levels of reasoning effort. */
export const choosesReasoning = (template: TemplateNamesOnly | null): boolean =>
  readsName(template, 'reasoning_effort') || readsName(template, 'enable_thinking')

/** Returns the variable that sets `thinking`; no variable if the template does not read one. */
function toThinkingArguments(
  thinking: boolean | string | undefined,
  template: TemplateNamesOnly | null,
): object {
  if (thinking === undefined) return {}
  const isEffort = typeof thinking === 'string' && readsName(template, 'reasoning_effort')
  if (isEffort) return { reasoning_effort: thinking }
  return readsName(template, 'enable_thinking') ? { enable_thinking: thinking !== false } : {}
}

/** If the template has no levels of reasoning effort, only switches reasoning on or off. */
function toEffortArguments(effort: string | undefined, template: TemplateNamesOnly | null): object {
  if (effort === undefined) return {}
  if (readsName(template, 'reasoning_effort')) return { reasoning_effort: effort }
  if (!readsName(template, 'enable_thinking')) return {}
  if (efforts.includes(effort)) return { enable_thinking: effort !== 'none' }
  const known = efforts.map((one) => `'${one}'`).join(', ')
  const got = effort.length > 64 ? `${effort.slice(0, 61)}...` : effort
  const message = `Invalid value: '${got}'. Supported values are: ${known}.`
  throw new ArgumentError('reasoning_effort', message, 'unsupported_value')
}

/** Spells a conversation as the model's prompt; a template renders, a vocabulary tokenises. */

import type {
  ChatMessage,
  GenerationInput,
  ToolDefinition,
} from '../../generation/inference-engine.ts'
import type { ChatTemplate, Token, Vocabulary } from './runtime.ts'

type Chat = Extract<GenerationInput, { kind: 'chat' }>

/**
 * Cuts a text where it would read as a control token; no text can have it, because Unicode keeps
 * it from use.
 */
const cut = '\uFDD0'

/** What is to be continued, in pieces that are tokenised apart. */
export interface SpelledPrompt {
  readonly pieces: readonly string[]
  /** The texts of control tokens become them. */
  readonly special: boolean
}

/** Throws what the template raises. */
export function spellPrompt(input: GenerationInput, template: ChatTemplate | null): SpelledPrompt {
  if (input.kind === 'text') return { pieces: [input.text], special: false }
  if (template === null) return { pieces: [toPlainText(input)], special: false }
  const pieces = template.render(templateInput(input, template)).split(cut)
  return { pieces, special: true }
}

export function promptTokens({ pieces, special }: SpelledPrompt, vocabulary: Vocabulary): Token[] {
  const tokens = pieces.flatMap((text, at) => vocabulary.tokenize(text, { special, inner: at > 0 }))
  const { first } = vocabulary
  return first === null || tokens[0] === first ? tokens : [first, ...tokens]
}

/** It has at least so many tokens: cheap to know, and often enough to refuse it. */
export function leastTokens({ pieces }: SpelledPrompt, { longestToken }: Vocabulary): number {
  return Math.ceil(pieces.reduce((sum, { length }) => sum + length, 0) / longestToken)
}

/** The tools that an answer may call. */
export function callableTools(input: GenerationInput): readonly ToolDefinition[] {
  if (input.kind === 'text' || input.toolChoice === 'none') return []
  const { tools = [], toolChoice } = input
  return typeof toolChoice === 'object'
    ? tools.filter(({ name }) => name === toolChoice.name)
    : tools
}

/** A model without a template continues text: the conversation's, in its order, rules first. */
function toPlainText(chat: Chat): string {
  const messages = withDescribedTools(chat)
  const isRule = ({ role }: ChatMessage): boolean => role === 'system'
  const ordered = [...messages.filter(isRule), ...messages.filter((message) => !isRule(message))]
  return ordered.map(({ content }) => content).join('\n\n')
}

/** What templates expect; texts that people wrote cannot become control tokens. */
function templateInput(chat: Chat, template: ChatTemplate): object {
  const tools = callableTools(chat)
  const isTold = template.knowsTools && tools.length > 0
  const messages = isTold ? chat.messages : withDescribedTools(chat)
  return {
    messages: messages.map((message) => ({
      role: message.role,
      ...(disarm(toTemplateMessage(message), template.controls) as object),
    })),
    ...(isTold ? { tools: disarm(tools.map(toTemplateTool), template.controls) } : {}),
    add_generation_prompt: true,
  }
}

function toTemplateMessage({ content, name, toolCalls, toolCallId }: ChatMessage): object {
  return {
    content,
    ...(name === undefined ? {} : { name }),
    ...(toolCallId === undefined ? {} : { tool_call_id: toolCallId }),
    ...(toolCalls === undefined
      ? {}
      : {
          tool_calls: toolCalls.map(({ id, name: tool, arguments: text }) => ({
            id,
            type: 'function',
            function: { name: tool, arguments: parsed(text) },
          })),
        }),
  }
}

/** Templates print arguments as JSON themselves. */
function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return text
  }
}

const toTemplateTool = ({ name, description = '', parameters = {} }: ToolDefinition): object => ({
  type: 'function',
  function: { name, description, parameters },
})

function disarm(value: unknown, controls: readonly string[]): unknown {
  if (typeof value === 'string') return disarmText(value, controls)
  if (Array.isArray(value)) return value.map((item) => disarm(item, controls))
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(
    Object.entries(value).map(([key, item]) => [disarmText(key, controls), disarm(item, controls)]),
  )
}

/** Cuts every control text after its first character. */
function disarmText(text: string, controls: readonly string[]): string {
  let disarmed = text.replaceAll(cut, '')
  for (const control of controls) {
    if (control === '' || !disarmed.includes(control)) continue
    const [head = ''] = control
    disarmed = disarmed.replaceAll(control, () => head + cut + control.slice(head.length))
  }
  return disarmed
}

/** The conversation with its tools told in words, for templates that know none. */
function withDescribedTools(chat: Chat): readonly ChatMessage[] {
  const tools = callableTools(chat)
  if (tools.length === 0) return chat.messages
  const lines = tools.map((tool) => JSON.stringify(tool))
  const content = [
    'You can call these tools:',
    ...lines,
    'To call one, answer with nothing but {"name": "<tool>", "arguments": {...}}.',
  ].join('\n')
  const [head, ...rest] = chat.messages
  if (head?.role !== 'system') return [{ role: 'system', content }, ...chat.messages]
  return [{ ...head, content: `${head.content}\n\n${content}` }, ...rest]
}

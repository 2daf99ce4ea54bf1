/** Renders a conversation as the prompt of a model, and tokenises it. Pure. */

import type {
  ChatMessage,
  GenerationInput,
  ToolDefinition,
} from '../../generation/inference-engine.ts'
import type { ChatTemplate, Token, Vocabulary } from './runtime.ts'

type Chat = Extract<GenerationInput, { kind: 'chat' }>

/**
 * Marks where a text is split because it would read as a control token. A noncharacter of Unicode,
 * removed from all texts before.
 */
const splitMark = '\uFDD0'

/** The text to continue, in pieces that are tokenised separately. */
export interface RenderedPrompt {
  readonly pieces: readonly string[]
  /** Whether texts of control tokens become control tokens. */
  readonly special: boolean
}

/** Throws what the template raises. */
export function renderPrompt(
  input: GenerationInput,
  template: ChatTemplate | null,
): RenderedPrompt {
  if (input.kind === 'text') return { pieces: [input.text], special: false }
  if (template === null) return { pieces: [toPlainText(input)], special: false }
  const pieces = template.render(templateInput(input, template)).split(splitMark)
  return { pieces, special: true }
}

export function promptTokens({ pieces, special }: RenderedPrompt, vocabulary: Vocabulary): Token[] {
  const tokens = pieces.flatMap((text, at) => vocabulary.tokenize(text, { special, inner: at > 0 }))
  const { first } = vocabulary
  return first === null || tokens[0] === first ? tokens : [first, ...tokens]
}

/** A lower bound of the tokens, without tokenising: often enough to refuse a prompt. */
export function minTokens({ pieces }: RenderedPrompt, { longestToken }: Vocabulary): number {
  return Math.ceil(pieces.reduce((sum, { length }) => sum + length, 0) / longestToken)
}

/** The tools that the model may call. */
export function callableTools(input: GenerationInput): readonly ToolDefinition[] {
  if (input.kind === 'text' || input.toolChoice === 'none') return []
  const { tools = [], toolChoice } = input
  return typeof toolChoice === 'object'
    ? tools.filter(({ name }) => name === toolChoice.name)
    : tools
}

/** For models without a template: the messages in order, system messages first. */
function toPlainText(chat: Chat): string {
  const messages = withDescribedTools(chat)
  const isSystem = ({ role }: ChatMessage): boolean => role === 'system'
  const others = messages.filter((message) => !isSystem(message))
  const ordered = [...messages.filter(isSystem), ...others]
  return ordered.map(({ content }) => content).join('\n\n')
}

/** The input that templates expect; texts of clients cannot become control tokens. */
function templateInput(chat: Chat, template: ChatTemplate): object {
  const tools = callableTools(chat)
  const hasTools = template.knowsTools && tools.length > 0
  const messages = hasTools ? chat.messages : withDescribedTools(chat)
  return {
    messages: messages.map((message) => ({
      role: message.role,
      ...(escapeAll(toTemplateMessage(message), template.controls) as object),
    })),
    ...(hasTools ? { tools: escapeAll(tools.map(toTemplateTool), template.controls) } : {}),
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

/** Templates encode arguments as JSON themselves. */
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

function escapeAll(value: unknown, controls: readonly string[]): unknown {
  if (typeof value === 'string') return escapeControls(value, controls)
  if (Array.isArray(value)) return value.map((item) => escapeAll(item, controls))
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(
    Object.entries(value).map(([key, item]) => [
      escapeControls(key, controls),
      escapeAll(item, controls),
    ]),
  )
}

/** Splits every control text after its first character. */
function escapeControls(text: string, controls: readonly string[]): string {
  let escaped = text.replaceAll(splitMark, '')
  for (const control of controls) {
    if (control === '' || !escaped.includes(control)) continue
    const [head = ''] = control
    escaped = escaped.replaceAll(control, () => head + splitMark + control.slice(head.length))
  }
  return escaped
}

/** The messages with the tools described in words, for templates without tool support. */
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

/** Texts of messages and prompts: reading, replacing, and estimating their tokens. Pure. */

import type { ChatMessage, GenerationInput } from '../inference-engine.ts'
import { isFields, type PassedInput, type WireFields } from '../pass-through.ts'

/** Converts a body whose `messages` or `prompt` have been checked to an input. */
export function toPassedInput(kind: PassedInput['kind'], body: WireFields): PassedInput {
  const { prompt, messages } = body
  if (kind === 'text') return { kind, text: typeof prompt === 'string' ? prompt : '', body }
  return { kind, messages: (messages as readonly WireFields[]).map(toMessage), body }
}

function toMessage({ role, content }: WireFields): ChatMessage {
  // An unknown role is kept, because only the server behind the engine interprets it.
  const known = role === 'developer' ? 'system' : (role as ChatMessage['role'])
  return { role: known, content: textOf(content) }
}

/** All text parts of a content, joined. */
export function textOf(content: unknown): string {
  if (typeof content === 'string') return content
  if (!Array.isArray(content)) return ''
  return content.map((part) => partText(part) ?? '').join('')
}

/**
 * Replaces the text of a content: the first text part gets all of `text`, other text parts are
 * removed.
 */
export function withText(content: unknown, text: string): unknown {
  if (typeof content === 'string') return text
  if (!Array.isArray(content) || textOf(content) === text) return content
  let isPlaced = false
  return content.flatMap((part: unknown) => {
    if (partText(part) === undefined) return [part]
    if (isPlaced) return []
    isPlaced = true
    return [isFields(part) ? { ...part, text } : text]
  })
}

/** The text of a part; `undefined` if it has none. Servers also accept a string as a part. */
function partText(part: unknown): string | undefined {
  if (typeof part === 'string') return part
  const text = isFields(part) ? part['text'] : undefined
  return typeof text === 'string' ? text : undefined
}

/** Fields that contain images, audio, files or vectors as encoded data instead of text. */
const dataNames: ReadonlySet<string> = new Set([
  'data',
  'file_data',
  'b64_json',
  'prompt_embeds',
  'embedding',
])
const dataUrl = /^data:[^,]{0,256};base64,/i

/** Whether the value of a field is text and not encoded data. */
export const isText = (value: string, name: string): boolean =>
  !dataNames.has(name) && !dataUrl.test(value)

/**
 * Every text in a value at any depth, without the names of fields. Encoded data, such as images, is
 * left out, because rules cannot judge it as text.
 */
export function textsIn(value: unknown, name = ''): string[] {
  if (typeof value === 'string') return isText(value, name) ? [value] : []
  if (Array.isArray(value)) return value.flatMap((item) => textsIn(item, name))
  if (!isFields(value)) return []
  return Object.entries(value).flatMap(([key, item]) => textsIn(item, key))
}

/** The approximate length of a token in ordinary text. */
const charactersPerToken = 4

/** The text of a prompt, without the model's chat template. */
export function promptText(input: GenerationInput): string {
  return input.kind === 'text'
    ? input.text
    : input.messages.map(({ content }) => content).join('\n')
}

/** Estimates the number of tokens from the length of the text. */
export function estimateTokens(text: string): number {
  return Math.ceil(text.length / charactersPerToken)
}

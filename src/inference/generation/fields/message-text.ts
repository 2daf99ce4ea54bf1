/** Reads and replaces the texts of messages and prompts, and estimates their tokens. Pure. */

import type { ChatMessage, GenerationInput } from '../inference-engine.ts'
import { isPlainObject } from '../../../foundation/json-value.ts'
import type { PassThroughInput, WireFields } from '../pass-through.ts'

/**
 * Converts a request body to an input. The body's `messages` or `prompt` must have been checked.
 */
export function toPassThroughInput(
  kind: PassThroughInput['kind'],
  body: WireFields,
): PassThroughInput {
  const { prompt, messages } = body
  if (kind === 'text') return { kind, text: typeof prompt === 'string' ? prompt : '', body }
  return { kind, messages: (messages as readonly WireFields[]).map(toMessage), body }
}

function toMessage({ role, content }: WireFields): ChatMessage {
  // An unknown role is kept, because only the server behind the engine interprets it.
  const known = role === 'developer' ? 'system' : (role as ChatMessage['role'])
  return { role: known, content: extractText(content) }
}

export function extractText(content: unknown): string {
  if (typeof content === 'string') return content
  if (!Array.isArray(content)) return ''
  return content.map((part) => extractPartText(part) ?? '').join('')
}

/** Puts the text into the first text part of the content, and removes the other text parts. */
export function replaceText(content: unknown, text: string): unknown {
  if (typeof content === 'string') return text
  if (!Array.isArray(content) || extractText(content) === text) return content
  let isPlaced = false
  return content.flatMap((part: unknown) => {
    if (extractPartText(part) === undefined) return [part]
    if (isPlaced) return []
    isPlaced = true
    return [isPlainObject(part) ? { ...part, text } : text]
  })
}

/** A part may be a string, because some servers accept that. */
function extractPartText(part: unknown): string | undefined {
  if (typeof part === 'string') return part
  const text = isPlainObject(part) ? part['text'] : undefined
  return typeof text === 'string' ? text : undefined
}

/** Fields that contain images, audio, files or vectors as encoded data instead of text. */
const dataFields = new Set('data file_data b64_json prompt_embeds embedding'.split(' '))
const dataUrl = /^data:[^,]{0,256};base64,/i

export const isPlainText = (value: string, name: string): boolean =>
  !dataFields.has(name) && !dataUrl.test(value)

/** Returns all texts except names of fields and encoded data, such as images. */
export function collectTexts(value: unknown, name = ''): string[] {
  if (typeof value === 'string') return isPlainText(value, name) ? [value] : []
  if (Array.isArray(value)) return value.flatMap((item) => collectTexts(item, name))
  if (!isPlainObject(value)) return []
  return Object.entries(value).flatMap(([key, item]) => collectTexts(item, key))
}

const charactersPerToken = 4

/** Returns the text of a prompt, without the model's chat template. */
export function extractPrompt(input: GenerationInput): string {
  return input.kind === 'text'
    ? input.text
    : input.messages.map(({ content }) => content).join('\n')
}

export function estimateTokens(text: string): number {
  return Math.ceil(text.length / charactersPerToken)
}

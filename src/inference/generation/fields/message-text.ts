/** The text in what clients write as content of a message: a text, or a list of parts. Pure. */

import { isFields } from './answer-fields.ts'

/** All text parts joined. */
export function textOf(content: unknown): string {
  if (typeof content === 'string') return content
  if (!Array.isArray(content)) return ''
  return content.map((part) => partText(part) ?? '').join('')
}

/** The same content with another text: the first text part has all of it, others are left out. */
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

/** `undefined` for a part without text. Servers take a bare string for a part as well. */
function partText(part: unknown): string | undefined {
  if (typeof part === 'string') return part
  const text = isFields(part) ? part['text'] : undefined
  return typeof text === 'string' ? text : undefined
}

/** Names of the fields that hold pictures, sound, files or vectors: none of it is text. */
const dataNames: ReadonlySet<string> = new Set([
  'data',
  'file_data',
  'b64_json',
  'prompt_embeds',
  'embedding',
])
const dataUrl = /^data:[^,]{0,256};base64,/i

/** Whether the value of a field is text, and no data. */
export const isText = (value: string, name: string): boolean =>
  !dataNames.has(name) && !dataUrl.test(value)

/**
 * Every text in a value, however deep, without names of fields. Pictures and sound are left out: as
 * text they would mean nothing.
 */
export function textsIn(value: unknown, name = ''): string[] {
  if (typeof value === 'string') return isText(value, name) ? [value] : []
  if (Array.isArray(value)) return value.flatMap((item) => textsIn(item, name))
  if (!isFields(value)) return []
  return Object.entries(value).flatMap(([key, item]) => textsIn(item, key))
}

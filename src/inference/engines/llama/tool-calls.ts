/** Recognises tool calls in the output of a model. Does not run them. */

import { newUuid } from '../../../foundation/ids.ts'
import type { ToolCall, ToolDefinition } from '../../generation/inference-engine.ts'
import { longestBeginning } from './token-text.ts'

const opening = '<tool_call>'
/** White space inside is removed by `trim`: `\s*` beside `[\s\S]*?` would be quadratic. */
const block = /<tool_call>([\s\S]*?)(?:<\/tool_call>|$)/g

/**
 * Passes text on until it may be a call, and holds that back until the end. A call is a JSON object
 * (or a list of them) that is the whole output, or one between `<tool_call>` marks.
 */
export class ToolCallHolder {
  readonly #names: ReadonlySet<string>
  #held = ''
  #hasSentText = false
  #isCall = false

  constructor(tools: readonly ToolDefinition[]) {
    this.#names = new Set(tools.map((tool) => tool.name))
  }

  get isHolding(): boolean {
    return this.#held !== ''
  }

  push(text: string): string {
    const all = this.#held + text
    this.#held = all
    if (this.#isCall || all === '') return ''
    if (!this.#hasSentText && mayBeJson(all)) {
      this.#isCall = /[[{]/.test(all)
      return ''
    }
    const at = all.indexOf(opening)
    this.#isCall = at !== -1
    return this.#release(this.#isCall ? at : all.length - longestBeginning(all, [opening]))
  }

  /** What was held back, as calls or as text. */
  end(): { readonly text: string; readonly toolCalls: readonly ToolCall[] } {
    const text = this.#held
    this.#held = ''
    const toolCalls = parseToolCalls(text, this.#names)
    return toolCalls.length === 0 ? { text, toolCalls } : { text: '', toolCalls }
  }

  #release(length: number): string {
    const released = this.#held.slice(0, length)
    this.#held = this.#held.slice(length)
    this.#hasSentText ||= released !== ''
    return released
  }
}

const mayBeJson = (text: string): boolean => /^\s*(?:$|[[{])/.test(text)

/** The calls that a text consists of; none if it is anything else, or names an unknown tool. */
export function parseToolCalls(text: string, names: ReadonlySet<string>): readonly ToolCall[] {
  const marked = [...text.matchAll(block)].map((match) => (match[1] ?? '').trim())
  const parts = marked.length > 0 ? marked : [text]
  const calls = parts.flatMap((part) =>
    toList(parseJson(part)).map((value) => toCall(value, names)),
  )
  return calls.every((call) => call !== null) ? calls : []
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return null
  }
}

const toList = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : [value])

function toCall(value: unknown, names: ReadonlySet<string>): ToolCall | null {
  if (typeof value !== 'object' || value === null) return null
  const { name, arguments: args, parameters } = value as Readonly<Record<string, unknown>>
  if (typeof name !== 'string' || !names.has(name)) return null
  const given = args ?? parameters ?? {}
  const text = typeof given === 'string' ? given : JSON.stringify(given)
  return { id: `call_${newUuid().slice(0, 24)}`, name, arguments: text }
}

/** The schema of an output that calls one of the tools. */
export function callSchema(tools: readonly ToolDefinition[]): object {
  const choices = tools.map(({ name, parameters }) => ({
    type: 'object',
    properties: {
      name: { const: name },
      arguments: parameters ?? { type: 'object', additionalProperties: true },
    },
    required: ['name', 'arguments'],
    additionalProperties: false,
  }))
  const [only] = choices
  return choices.length === 1 && only !== undefined ? only : { oneOf: choices }
}

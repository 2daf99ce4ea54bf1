/** What a question looks like once the guardrails have seen it. Pure. */

import type { InferenceError } from '../../foundation/errors.ts'
import type { GenerationResult } from '../generation/text-generator.ts'
import type {
  ChatMessage,
  GenerationInput,
  ToolCall,
  ToolDefinition,
} from '../generation/inference-engine.ts'
import type { Guard } from './guard.ts'
import type { GuardHit } from './rules.ts'
import { inferenceError } from '../generation/inference-errors.ts'

/** With the rules that hit, each once: also those that only flag. */
export type GuardedInput = { readonly hits: readonly GuardHit[] } & (
  | { readonly input: GenerationInput }
  | { readonly refusal: GenerationResult }
  | { readonly error: InferenceError }
)

type ChatInput = GenerationInput & { readonly kind: 'chat' }

/**
 * Everything in a question is judged, also what the model is said to have said: a client writes
 * that too. The configuration's system prompt stands first, unless the question brings one of its
 * own.
 */
export function guardInput(
  input: GenerationInput,
  guard: Guard,
  systemPrompt: readonly string[],
): GuardedInput {
  const judge = new Judge(guard)
  const judged = guard.judgesInput ? judgeInput(input, judge) : input
  const { hits } = judge
  if (judge.isBlocked) return { ...refuse(guard, hits), hits }
  return { input: withSystemPrompt(judged, systemPrompt), hits }
}

function withSystemPrompt(input: GenerationInput, prompt: readonly string[]): GenerationInput {
  if (input.kind === 'text' || input.messages.some(({ role }) => role === 'system')) return input
  const first = prompt.map((content): ChatMessage => ({ role: 'system', content }))
  return { ...input, messages: [...first, ...input.messages] }
}

/** Asks the guard about one text after the other until it has blocked one. */
class Judge {
  readonly #guard: Guard
  readonly #hits = new Map<string, GuardHit>()
  #suspects: ReadonlySet<string> | null = null
  isBlocked = false

  constructor(guard: Guard) {
    this.#guard = guard
  }

  get hits(): readonly GuardHit[] {
    return [...this.#hits.values()]
  }

  length(chars: number): void {
    const hits = this.#guard.checkLength(chars)
    this.#note(hits)
    this.isBlocked ||= hits.some(({ action }) => action === 'reject')
  }

  /** Texts from here on are of these; what is surely harmless among them is not asked about. */
  expect(texts: readonly string[]): void {
    if (!this.isBlocked) this.#suspects = this.#guard.suspectsOf(texts)
  }

  /** What is left of a text. */
  text(text: string): string {
    if (this.isBlocked || text === '' || this.#suspects?.has(text) === false) return text
    const verdict = this.#guard.checkInput(text)
    this.#note(verdict.hits)
    if (verdict.action === 'pass') return verdict.text
    this.isBlocked = true
    return text
  }

  #note(hits: readonly GuardHit[]): void {
    for (const hit of hits) this.#hits.set(hit.rule, hit)
  }
}

function judgeInput(input: GenerationInput, judge: Judge): GenerationInput {
  if (input.kind === 'text') {
    judge.length(input.text.length)
    return { ...input, text: judge.text(input.text) }
  }
  const fixed = fixedTexts(input)
  const { messages, tools } = input
  const free = [...messages.map(({ content }) => content), ...(tools ?? []).map(descriptionOf)]
  judge.length([...fixed, ...free].reduce((sum, { length }) => sum + length, 0))
  // Together: a text costs something however short it is, and a client may send very many.
  judge.text(fixed.map(unescaped).join(apart))
  const calls = messages.flatMap(({ toolCalls = [] }) => toolCalls)
  judge.expect([...free, ...calls.map((call) => call.arguments)])
  return {
    ...input,
    messages: messages.map((message) => judgeMessage(message, judge)),
    ...(tools === undefined ? {} : { tools: tools.map((tool) => judgeTool(tool, judge)) }),
  }
}

/** Longer than any gap between the words of a phrase. */
const apart = '\n'.repeat(8)

const descriptionOf = ({ description = '' }: ToolDefinition): string => description

/**
 * What is rejected or flagged, but not redacted: names and ids refer to each other, and a schema
 * with other words in it is another one. Arguments are among them for words that escapes hide.
 */
function fixedTexts({ messages, tools = [] }: ChatInput): string[] {
  const texts = messages.flatMap(({ name, toolCallId, toolCalls = [] }) => [
    name,
    toolCallId,
    ...toolCalls.flatMap((call) => [call.id, call.name, call.arguments]),
  ])
  const defined = tools.flatMap(({ name, parameters }) => [name, JSON.stringify(parameters)])
  return [...texts, ...defined].filter((text) => text !== undefined)
}

function judgeMessage(message: ChatMessage, judge: Judge): ChatMessage {
  const { toolCalls } = message
  const judged = { ...message, content: judge.text(message.content) }
  if (toolCalls === undefined) return judged
  return { ...judged, toolCalls: toolCalls.map((call) => judgeCall(call, judge)) }
}

/** Arguments are redacted where they are JSON afterwards, and left alone where they are not. */
function judgeCall(call: ToolCall, judge: Judge): ToolCall {
  const left = judge.text(call.arguments)
  return left === call.arguments || !isJson(left) ? call : { ...call, arguments: left }
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text)
    return true
  } catch {
    return false
  }
}

function judgeTool(tool: ToolDefinition, judge: Judge): ToolDefinition {
  const { description } = tool
  return description === undefined ? tool : { ...tool, description: judge.text(description) }
}

/** JSON as a model reads it: an escape hides no letter, and its own letter is none. */
function unescaped(json: string): string {
  if (!json.includes('\\')) return json
  const codes = new Uint16Array(json.length)
  let length = 0
  for (let at = 0; at < json.length; at++) {
    let code = json.charCodeAt(at)
    if (code === backslash) {
      code = json.charCodeAt(++at)
      const hex = code === letterU ? json.slice(at + 1, at + 5) : ''
      if (/^[\da-f]{4}$/i.test(hex)) {
        code = parseInt(hex, 16)
        at += 4
      } else if (controls.has(code)) code = lineBreak
    }
    codes[length++] = code
  }
  return Buffer.from(codes.buffer, 0, length * 2).toString('utf16le')
}

const backslash = 92
const letterU = 117
const lineBreak = 10
const controls = new Set(Array.from('bfnrt', (letter) => letter.charCodeAt(0)))

function refuse(
  guard: Guard,
  hits: readonly GuardHit[],
): { readonly refusal: GenerationResult } | { readonly error: InferenceError } {
  if (guard.refusal !== null) {
    const usage = { promptTokens: 0, completionTokens: 0 }
    const rest = { usage, toolCalls: [], logprobs: [] }
    return { refusal: { text: guard.refusal, finishReason: 'content_filter', ...rest } }
  }
  const rejecting = hits.filter(({ action }) => action === 'reject')
  const rules = rejecting.map(({ rule }) => `"${rule}"`).join(', ')
  return { error: inferenceError('content_filter', `the prompt was rejected by the rule ${rules}`) }
}

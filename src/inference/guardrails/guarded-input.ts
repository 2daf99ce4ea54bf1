/** Judges all text of a request that its client wrote, and of JSON that is passed on. Pure. */

import type { InferenceError } from '../../foundation/errors.ts'
import { isJsonText } from '../../foundation/json-value.ts'
import type { Steps } from '../../runtime/turn-budget.ts'
import type { OutputFormat } from '../generation/inference-engine.ts'
import { inferenceError } from '../generation/inference-errors.ts'
import { isText, textsIn } from '../generation/fields/message-text.ts'
import type {
  PassedCall,
  PassedChat,
  PassedInput,
  PassedMessage,
  PassedTool,
  WireFields,
} from '../generation/pass-through.ts'
import type { GenerationResult } from '../generation/text-generator.ts'
import type { Guard } from './guard.ts'
import type { GuardHit } from './rules.ts'

/** The outcome, with each rule that hit once, including rules that only flag. */
export type GuardedInput = { readonly hits: readonly GuardHit[] } & (
  | { readonly input: PassedInput }
  | { readonly refusal: GenerationResult }
  | { readonly error: InferenceError }
)

/**
 * Judges messages of every role, because a client also writes those of the assistant, and the
 * required format, whose schema the model may read. The configured system prompt is inserted
 * first, unless the request has its own.
 */
export function* guardInput(
  input: PassedInput,
  guard: Guard,
  systemPrompt: readonly string[],
  format: OutputFormat = { kind: 'text' },
): Steps<GuardedInput> {
  if (!guard.judgesInput) return { input: withSystemPrompt(input, systemPrompt), hits: [] }
  const unreadable = unreadableField(input)
  if (unreadable !== undefined) return { error: unreadableError(unreadable), hits: [] }
  const check = new InputCheck(guard)
  const judged = yield* check.run(input, formatTexts(format))
  const { hits } = check
  if (check.isBlocked) return { ...refuse(guard, hits), hits }
  return { input: withSystemPrompt(judged, systemPrompt), hits }
}

function withSystemPrompt(input: PassedInput, prompt: readonly string[]): PassedInput {
  if (input.kind === 'text' || input.messages.some(({ role }) => role === 'system')) return input
  const first = prompt.map((content): PassedMessage => ({ role: 'system', content }))
  return { ...input, messages: [...first, ...input.messages] }
}

/** Judges one text after the other until one is blocked. */
class InputCheck {
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

  *run(input: PassedInput, required: readonly string[]): Steps<PassedInput> {
    if (input.kind === 'text') {
      const further = [...required, ...fieldTexts({ ...input.fields, prompt: input.wire })]
      this.#checkLength([input.text, ...further].reduce((sum, { length }) => sum + length, 0))
      yield* this.#check(further.map(unescaped).join(separator))
      return { ...input, text: yield* this.#check(input.text) }
    }
    const fixed = [...required, ...fixedTexts(input), ...fieldTexts(input.fields)]
    const { messages, tools } = input
    const free = [
      ...messages.flatMap((message) => [
        message.content,
        message.reasoning ?? '',
        ...freeTexts(message),
      ]),
      ...(tools ?? []).map(descriptionOf),
    ]
    this.#checkLength([...fixed, ...free].reduce((sum, { length }) => sum + length, 0))
    // Joined, because judging a text has a fixed cost, and a client may send very many texts.
    yield* this.#check(fixed.map(unescaped).join(separator))
    const calls = messages.flatMap(({ toolCalls = [] }) => toolCalls)
    if (!this.isBlocked) {
      const texts = [...free, ...calls.map((call) => call.arguments)]
      this.#suspects = yield* this.#guard.findSuspects(texts)
    }
    const judgedMessages: PassedMessage[] = []
    for (const message of messages) judgedMessages.push(yield* this.#checkMessage(message))
    if (tools === undefined) return { ...input, messages: judgedMessages }
    const judgedTools: PassedTool[] = []
    for (const tool of tools) judgedTools.push(yield* this.#checkTool(tool))
    return { ...input, messages: judgedMessages, tools: judgedTools }
  }

  #checkLength(chars: number): void {
    const hits = this.#guard.checkLength(chars)
    this.#note(hits)
    this.isBlocked ||= hits.some(({ action }) => action === 'reject')
  }

  /** Returns the text with the redactions of the rules. */
  *#check(text: string): Steps<string> {
    if (this.isBlocked || text === '' || this.#suspects?.has(text) === false) return text
    const verdict = yield* this.#guard.checkInput(text)
    this.#note(verdict.hits)
    if (verdict.action === 'pass') return verdict.text
    this.isBlocked = true
    return text
  }

  *#checkMessage(message: PassedMessage): Steps<PassedMessage> {
    const { toolCalls, wire, reasoning } = message
    let judged: PassedMessage = { ...message, content: yield* this.#check(message.content) }
    if (reasoning !== undefined) judged = { ...judged, reasoning: yield* this.#check(reasoning) }
    for (const [name, text] of freeEntries(wire)) {
      const passed = yield* this.#check(text)
      if (passed !== text) judged = { ...judged, wire: { ...judged.wire, [name]: passed } }
    }
    if (toolCalls === undefined) return judged
    const judgedCalls: PassedCall[] = []
    for (const call of toolCalls) judgedCalls.push(yield* this.#checkCall(call))
    return { ...judged, toolCalls: judgedCalls }
  }

  /** Redacted arguments are used only if they are still JSON. */
  *#checkCall(call: PassedCall): Steps<PassedCall> {
    const passed = yield* this.#check(call.arguments)
    return passed === call.arguments || !isJsonText(passed) ? call : { ...call, arguments: passed }
  }

  *#checkTool(tool: PassedTool): Steps<PassedTool> {
    const { description } = tool
    return description === undefined
      ? tool
      : { ...tool, description: yield* this.#check(description) }
  }

  #note(hits: readonly GuardHit[]): void {
    for (const hit of hits) this.#hits.set(hit.rule, hit)
  }
}

/** Longer than any gap between the words of a phrase. */
const separator = '\n'.repeat(8)

const descriptionOf = ({ description = '' }: PassedTool): string => description

/**
 * Texts that are rejected or flagged, but never redacted: names and ids refer to each other, and a
 * redacted schema would be a different schema. Arguments are included because escapes may hide
 * words in them.
 */
function fixedTexts(input: PassedChat): string[] {
  const { messages, tools = [], templateArguments = {}, reasoningEffort } = input
  const variables =
    Object.keys(templateArguments).length > 0 ? [JSON.stringify(templateArguments)] : []
  const texts = messages.flatMap(({ name, toolCallId, toolCalls = [], wire }) =>
    wire === undefined
      ? [name, toolCallId, ...toolCalls.flatMap((call) => [call.id, call.name, call.arguments])]
      : otherTexts(wire),
  )
  const defined = tools.flatMap(({ name, parameters, wire }) =>
    wire === undefined
      ? [name, JSON.stringify(parameters)]
      : [JSON.stringify({ ...wire, function: withoutDescription(wire['function']) })],
  )
  return [...texts, ...defined, ...variables, reasoningEffort].filter((text) => text !== undefined)
}

const withoutDescription = (described: unknown): unknown =>
  typeof described === 'object' ? { ...described, description: undefined } : described

/** The texts of a message besides its content and the fields of `freeEntries`. */
function otherTexts(wire: WireFields): string[] {
  const free = new Set(freeEntries(wire).map(([name]) => name))
  return Object.entries(wire).flatMap(([name, value]) => {
    if (name === 'role' || free.has(name)) return []
    if (name !== 'content') return textsIn(value)
    if (!Array.isArray(value)) return []
    // The text of a part is judged with the content; other fields of the part are judged here.
    return value.flatMap((part: unknown) => {
      if (typeof part !== 'object' || part === null) return []
      const { type: _, text, ...rest } = part as Record<string, unknown>
      return textsIn(typeof text === 'string' ? rest : { ...rest, text })
    })
  })
}

const freeTexts = ({ wire }: PassedMessage): string[] => freeEntries(wire).map(([, text]) => text)

/** Additional texts of a message that may be redacted, such as `reasoning_content`. */
function freeEntries(wire: WireFields = {}): (readonly [string, string])[] {
  return Object.entries(wire).filter(
    (entry): entry is [string, string] => typeof entry[1] === 'string' && !fixedNames.has(entry[0]),
  )
}

const fixedNames: ReadonlySet<string> = new Set(['role', 'content', 'name', 'tool_call_id', 'id'])

/** The texts in additional fields of a body, such as a schema or documents, with names in them. */
function fieldTexts(fields: WireFields = {}): string[] {
  return Object.values(fields).flatMap((value) => {
    if (typeof value === 'string') return [value]
    return typeof value === 'object' && value !== null ? [JSON.stringify(value)] : []
  })
}

/** The texts of a required format, with the names and descriptions of a schema. */
function formatTexts(format: OutputFormat): readonly string[] {
  switch (format.kind) {
    case 'json_schema':
      return [JSON.stringify(format.schema)]
    case 'regex':
      return [format.pattern]
    case 'choice':
      return format.choices
    case 'grammar':
      return [format.grammar]
    default:
      return []
  }
}

/** The name of a field that holds the prompt in a form that no rule can read. */
function unreadableField(input: PassedInput): string | undefined {
  if (input.kind === 'text' && (input.tokens !== undefined || Array.isArray(input.wire))) {
    return 'prompt'
  }
  return Object.hasOwn(input.fields ?? {}, 'prompt_embeds') ? 'prompt_embeds' : undefined
}

/** The error for a prompt that no rule can read. */
const unreadableError = (param: string): InferenceError =>
  inferenceError('unsupported', 'the guardrails read prompts as text only', {
    refusal: {
      status: 400,
      message: `Invalid '${param}': the guardrails of this server read prompts as text only.`,
      param,
      code: 'invalid_value',
    },
  })

/** Resolves the escapes of JSON text, so that they hide no word and add no letter. */
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
  return { error: rejectedError('the prompt', hits) }
}

/** The error for rejected text; it names the rules that rejected it. */
function rejectedError(what: string, hits: readonly GuardHit[]): InferenceError {
  const rejecting = hits.filter(({ action }) => action === 'reject')
  const rules = rejecting
    .map(({ rule, reason }) => `"${rule}"${reason === undefined ? '' : ` (${reason})`}`)
    .join(', ')
  return inferenceError('content_filter', `${what} was rejected by the rule ${rules}`)
}

/** Returns the fields as the prompt rules pass them; throws if a rule rejects them. */
export function* guardFields(fields: WireFields, guard: Guard): Steps<WireFields> {
  const unreadable = ['input', 'prompt'].find((name) => hasNumbers(fields[name]))
  if (unreadable !== undefined) throw unreadableError(unreadable)
  const texts = textsIn(fields)
  const tooLong = guard.checkLength(texts.reduce((sum, { length }) => sum + length, 0))
  if (tooLong.some(({ action }) => action === 'reject')) throw rejectedError('the request', tooLong)
  // Judges the joined texts first, because a phrase may be divided between texts. Names of fields,
  // such as those of a schema, are judged too, but never redacted.
  const names = new Set(namesIn(fields))
  const whole = yield* guard.checkInput([...texts, ...names].join(separator))
  if (whole.action === 'block') throw rejectedError('the request', whole.hits)
  if (whole.hits.length === 0) return fields
  const judged = new Map<string, string>()
  for (const text of new Set(texts)) {
    const verdict = yield* guard.checkInput(text)
    if (verdict.action === 'block') throw rejectedError('the request', verdict.hits)
    judged.set(text, verdict.text)
  }
  return replaceTexts(fields, (text) => judged.get(text) ?? text) as WireFields
}

/** Returns a whole JSON answer as the answer rules pass it; throws if a rule rejects it. */
export function redactAnswer(json: string, guard: Guard): string {
  const judge = (text: string): string => {
    const output = guard.openOutput()
    if (output === null) return text
    const parts = [output.push(text), output.finish()]
    if (parts.some(({ isBlocked }) => isBlocked)) {
      throw inferenceError('content_filter', 'the answer was rejected by a rule')
    }
    return parts.map(({ release }) => release).join('')
  }
  return JSON.stringify(replaceTexts(JSON.parse(json), judge))
}

const hasNumbers = (value: unknown): boolean =>
  Array.isArray(value) && value.some((item) => typeof item === 'number' || hasNumbers(item))

function namesIn(value: unknown): string[] {
  if (typeof value !== 'object' || value === null) return []
  const names = Array.isArray(value) ? [] : Object.keys(value)
  return [...names, ...Object.values(value).flatMap(namesIn)]
}

function replaceTexts(value: unknown, replace: (text: string) => string, name = ''): unknown {
  if (typeof value === 'string') return isText(value, name) ? replace(value) : value
  if (Array.isArray(value)) return value.map((item) => replaceTexts(item, replace, name))
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(
    Object.entries(value).map(([key, item]) => [key, replaceTexts(item, replace, key)]),
  )
}

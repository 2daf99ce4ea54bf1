/** Judges all texts of a request: typed inputs, and JSON that is passed on. Pure. */

import type { InferenceError } from '../../foundation/errors.ts'
import { isJsonText } from '../../foundation/json-value.ts'
import type { Steps } from '../../runtime/turn-budget.ts'
import type { OutputFormat } from '../generation/inference-engine.ts'
import { inferenceError } from '../generation/inference-errors.ts'
import {
  isPlainText,
  extractText,
  collectTexts,
  toPassThroughInput,
  replaceText,
} from '../generation/fields/message-text.ts'
import { isPlainObject } from '../../foundation/json-value.ts'
import type { PassThroughInput, WireFields } from '../generation/pass-through.ts'
import type { GenerationResult } from '../generation/text-generator.ts'
import type { Guard } from './guard.ts'
import type { GuardHit } from './rules.ts'

/** `hits` has each matching rule once, including rules that only flag. */
export type GuardedInput = { readonly hits: readonly GuardHit[] } & (
  | { readonly input: PassThroughInput }
  | { readonly refusal: GenerationResult }
  | { readonly error: InferenceError }
)

/** Judges messages of every role and the required format, and adds the system prompt. */
export function* guardInput(
  input: PassThroughInput,
  guard: Guard,
  systemPrompt: readonly string[],
  format: OutputFormat = { kind: 'text' },
): Steps<GuardedInput> {
  if (!guard.hasInputRules) return { input: withSystemPrompt(input, systemPrompt), hits: [] }
  const unreadable = findUnreadableField(input)
  if (unreadable !== undefined) return { error: createUnreadableError(unreadable), hits: [] }
  const check = new InputChecker(guard)
  const judgedInput = yield* check.run(input, collectFormatTexts(format))
  const { hits } = check
  if (check.isBlocked) return { ...toRefusal(guard, hits), hits }
  return { input: withSystemPrompt(judgedInput, systemPrompt), hits }
}

function withSystemPrompt(input: PassThroughInput, prompt: readonly string[]): PassThroughInput {
  const hasSystemPrompt =
    input.kind === 'text' || input.messages.some(({ role }) => role === 'system')
  if (hasSystemPrompt || prompt.length === 0) return input
  const first = prompt.map((content) => ({ role: 'system', content }) as const)
  const { body } = input
  if (body === undefined) return { ...input, messages: [...first, ...input.messages] }
  const messages = [...first, ...(body['messages'] as readonly WireFields[])]
  return toPassThroughInput('chat', { ...body, messages })
}

class InputChecker {
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

  *run(input: PassThroughInput, required: readonly string[]): Steps<PassThroughInput> {
    const texts = new InputTexts(input, required)
    this.checkLength(texts.measuredTexts)
    // Judges the joined texts, because each check has a fixed cost and there may be many texts.
    yield* this.check(texts.fixedTexts.map(unescapeJson).join(separator))
    if (this.isBlocked) return input
    const { redactable } = texts
    if (redactable.length > 1)
      this.#suspects = yield* this.#guard.findSuspects(redactable.map(readText))
    for (const one of redactable) yield* this.#redact(one)
    return texts.input
  }

  checkLength(texts: readonly string[]): void {
    const hits = this.#guard.checkLength(texts.reduce((sum, { length }) => sum + length, 0))
    this.#addHits(hits)
    this.isBlocked ||= hits.some(({ action }) => action === 'reject')
  }

  *check(text: string): Steps<string> {
    if (this.isBlocked || text === '' || this.#suspects?.has(text) === false) return text
    const verdict = yield* this.#guard.checkInput(text)
    this.#addHits(verdict.hits)
    if (verdict.action === 'pass') return verdict.text
    this.isBlocked = true
    return text
  }

  *#redact(redactable: RedactableText): Steps<void> {
    const { owner, name, isArguments } = redactable
    const text = readText(redactable)
    const passed = yield* this.check(text)
    if (passed === text || (isArguments && !isJsonText(passed))) return
    owner[name] = replaceText(owner[name], passed)
  }

  #addHits(hits: readonly GuardHit[]): void {
    for (const hit of hits) this.#hits.set(hit.rule, hit)
  }
}

/** Longer than any gap within a phrase, so that no phrase spans two texts. */
const separator = '\n'.repeat(8)

interface RedactableText {
  readonly owner: Record<string, unknown>
  readonly name: string
  /** Whether the text is the arguments of a call. It must stay JSON, and is in `fixedTexts` too. */
  readonly isArguments: boolean
}

const readText = ({ owner, name }: RedactableText): string => extractText(owner[name])

/** The texts of an input or of a body that is passed on. Texts are replaced in a copy. */
class InputTexts {
  /** Texts that are judged but never redacted, such as names and ids. */
  readonly fixedTexts: string[]
  readonly redactable: RedactableText[] = []
  readonly #input: PassThroughInput
  readonly #bodyCopy: Record<string, unknown>

  constructor(input: PassThroughInput, required: readonly string[]) {
    this.fixedTexts = [...required]
    this.#input = input
    const { body, kind, ...typed } = input
    const { toolChoice: _, ...rest } = typed as WireFields
    const fields = body ?? rest
    this.#bodyCopy = { ...fields }
    const promptName = kind === 'chat' ? undefined : body === undefined ? 'text' : 'prompt'
    for (const [name, value] of Object.entries(fields)) {
      const isList = kind === 'chat' && Array.isArray(value)
      if (isList && name === 'messages')
        this.#bodyCopy[name] = value.map((one) => this.#copyMessage(one))
      else if (isList && name === 'tools')
        this.#bodyCopy[name] = value.map((one) => this.#copyTool(one))
      else if (name === promptName && typeof value === 'string')
        this.#addRedactable(this.#bodyCopy, name)
      else this.#addFixedTexts(collectFieldTexts([value]))
    }
  }

  get measuredTexts(): readonly string[] {
    return [
      ...this.fixedTexts,
      ...this.redactable.filter(({ isArguments }) => !isArguments).map(readText),
    ]
  }

  get input(): PassThroughInput {
    const { kind, body } = this.#input
    if (body !== undefined) return toPassThroughInput(kind, this.#bodyCopy)
    return { ...this.#input, ...this.#bodyCopy }
  }

  #addFixedTexts(texts: readonly string[]): void {
    // The texts are pushed one by one, because V8 limits the number of arguments of a call.
    for (const text of texts) this.fixedTexts.push(text)
  }

  #addRedactable(owner: Record<string, unknown>, name: string, isArguments = false): void {
    this.redactable.push({ owner, name, isArguments })
  }

  #copyMessage(message: WireFields): WireFields {
    const copy: Record<string, unknown> = { ...message }
    for (const [name, value] of Object.entries(message)) {
      if (name === 'role') continue
      if (name === 'content' || (typeof value === 'string' && !fixedNames.has(name))) {
        this.#addRedactable(copy, name)
        if (Array.isArray(value)) this.#addFixedTexts(value.flatMap(collectPartTexts))
      } else {
        this.#addFixedTexts(collectTexts(value))
        const isCalls = callNames.has(name) && Array.isArray(value)
        if (isCalls) copy[name] = value.map((call) => this.#copyToolCall(call))
      }
    }
    return copy
  }

  #copyToolCall(call: unknown): unknown {
    if (!isPlainObject(call)) return call
    const { copy, owner } = copyWithFunction(call)
    if (typeof owner['arguments'] === 'string') this.#addRedactable(owner, 'arguments', true)
    return copy
  }

  #copyTool(tool: WireFields): WireFields {
    const { copy, owner } = copyWithFunction(tool)
    const { description, ...rest } = owner
    if (typeof description === 'string') this.#addRedactable(owner, 'description')
    const isTyped = this.#input.body === undefined
    if (isTyped) this.#addFixedTexts(collectFieldTexts(Object.values(rest)))
    else this.#addFixedTexts([JSON.stringify(owner === copy ? rest : { ...copy, function: rest })])
    return copy
  }
}

/**
 * Copies a tool or a call. `owner` holds the fields of its function: `copy` itself or
 * `copy.function`.
 */
function copyWithFunction(whole: WireFields): Record<'copy' | 'owner', Record<string, unknown>> {
  const { function: inner } = whole
  if (!isPlainObject(inner)) {
    const copy = { ...whole }
    return { copy, owner: copy }
  }
  const owner = { ...inner }
  return { copy: { ...whole, function: owner }, owner }
}

const fixedNames: ReadonlySet<string> = new Set(['name', 'tool_call_id', 'toolCallId', 'id'])
const callNames: ReadonlySet<string> = new Set(['tool_calls', 'toolCalls'])

/** Omits the main text of the part, because it is judged with the whole content. */
function collectPartTexts(part: unknown): string[] {
  if (!isPlainObject(part)) return []
  const { type: _, text, ...rest } = part
  return collectTexts(typeof text === 'string' ? rest : { ...rest, text })
}

const collectFieldTexts = (values: readonly unknown[]): string[] =>
  values.flatMap((value) => {
    if (typeof value === 'string') return [value]
    return typeof value === 'object' && value !== null ? [JSON.stringify(value)] : []
  })

function collectFormatTexts(format: OutputFormat): readonly string[] {
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

/** Finds a field with token ids or embeddings, because rules cannot read them. */
function findUnreadableField(input: PassThroughInput): string | undefined {
  const { body = {} } = input
  const isRaw = input.kind === 'text'
  if (isRaw && (input.tokens !== undefined || Array.isArray(body['prompt']))) {
    return input.wantsEmbedding === true ? 'input' : 'prompt'
  }
  return Object.hasOwn(body, 'prompt_embeds') ? 'prompt_embeds' : undefined
}

const createUnreadableError = (param: string): InferenceError =>
  inferenceError('unsupported', 'the guardrails read prompts as text only', {
    refusal: {
      status: 400,
      message: `Invalid '${param}': the guardrails of this server read prompts as text only.`,
      param,
      code: 'invalid_value',
    },
  })

/** Replaces escape sequences in JSON text, because they could hide words. */
function unescapeJson(json: string): string {
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
      } else if (controlEscapes.has(code)) code = lineBreak
    }
    codes[length++] = code
  }
  return Buffer.from(codes.buffer, 0, length * 2).toString('utf16le')
}

const backslash = 92
const letterU = 117
const lineBreak = 10
const controlEscapes = new Set(Array.from('bfnrt', (letter) => letter.charCodeAt(0)))

function toRefusal(
  guard: Guard,
  hits: readonly GuardHit[],
): { readonly refusal: GenerationResult } | { readonly error: InferenceError } {
  if (guard.refusal !== null) {
    const usage = { promptTokens: 0, completionTokens: 0 }
    const rest = { usage, toolCalls: [], logprobs: [] }
    return { refusal: { text: guard.refusal, finishReason: 'content_filter', ...rest } }
  }
  return { error: createRejectedError('the prompt', hits) }
}

function createRejectedError(what: string, hits: readonly GuardHit[]): InferenceError {
  const rejecting = hits.filter(({ action }) => action === 'reject')
  const rules = rejecting
    .map(({ rule, reason }) => `"${rule}"${reason === undefined ? '' : ` (${reason})`}`)
    .join(', ')
  return inferenceError('content_filter', `${what} was rejected by the rule ${rules}`)
}

/** Returns the fields, redacted by the input rules. Throws if a rule rejects them. */
export function* guardFields(fields: WireFields, guard: Guard): Steps<WireFields> {
  const unreadable = ['input', 'prompt'].find((name) => hasNumbers(fields[name]))
  if (unreadable !== undefined) throw createUnreadableError(unreadable)
  const texts = collectTexts(fields)
  const check = new InputChecker(guard)
  check.checkLength(texts)
  // Judges all texts together, because a phrase may be split. Field names are never redacted.
  yield* check.check([...texts, ...new Set(collectNames(fields))].join(separator))
  const judgedTexts = new Map<string, string>()
  const suspects = check.hits.length === 0 ? [] : new Set(texts)
  for (const text of suspects) judgedTexts.set(text, yield* check.check(text))
  if (check.isBlocked) throw createRejectedError('the request', check.hits)
  if (judgedTexts.size === 0) return fields
  return mapTexts(fields, (text) => judgedTexts.get(text) ?? text) as WireFields
}

/** Returns a whole JSON answer, redacted by the output rules. Throws if a rule rejects it. */
export function redactAnswer(json: string, guard: Guard): string {
  const judge = (text: string): string => {
    const output = guard.createOutputGuard()
    if (output === null) return text
    const parts = [output.push(text), output.finish()]
    if (parts.some(({ isBlocked }) => isBlocked)) {
      throw inferenceError('content_filter', 'the answer was rejected by a rule')
    }
    return parts.map((part) => part.text).join('')
  }
  return JSON.stringify(mapTexts(JSON.parse(json), judge))
}

const hasNumbers = (value: unknown): boolean =>
  Array.isArray(value) && value.some((item) => typeof item === 'number' || hasNumbers(item))

function collectNames(value: unknown): string[] {
  if (typeof value !== 'object' || value === null) return []
  const names = Array.isArray(value) ? [] : Object.keys(value)
  return [...names, ...Object.values(value).flatMap(collectNames)]
}

function mapTexts(value: unknown, replace: (text: string) => string, name = ''): unknown {
  if (typeof value === 'string') return isPlainText(value, name) ? replace(value) : value
  if (Array.isArray(value)) return value.map((item) => mapTexts(item, replace, name))
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(
    Object.entries(value).map(([key, item]) => [key, mapTexts(item, replace, key)]),
  )
}

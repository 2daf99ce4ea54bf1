/** Judges all client-written text of a request, and of JSON that is passed on. Pure. */

import type { InferenceError } from '../../foundation/errors.ts'
import { isJsonText } from '../../foundation/json-value.ts'
import type { Steps } from '../../runtime/turn-budget.ts'
import type { OutputFormat } from '../generation/inference-engine.ts'
import { inferenceError } from '../generation/inference-errors.ts'
import {
  isText,
  textOf,
  textsIn,
  toPassedInput,
  withText,
} from '../generation/fields/message-text.ts'
import { isFields, type PassedInput, type WireFields } from '../generation/pass-through.ts'
import type { GenerationResult } from '../generation/text-generator.ts'
import type { Guard } from './guard.ts'
import type { GuardHit } from './rules.ts'

/** The outcome. `hits` contains each matching rule once, including rules that only flag. */
export type GuardedInput = { readonly hits: readonly GuardHit[] } & (
  | { readonly input: PassedInput }
  | { readonly refusal: GenerationResult }
  | { readonly error: InferenceError }
)

/**
 * Judges the messages of every role, because a client also writes assistant messages, and the
 * required format, because the model may read its schema. First inserts the configured system
 * prompt, unless the request has its own.
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
  const isOwn = input.kind === 'text' || input.messages.some(({ role }) => role === 'system')
  if (isOwn || prompt.length === 0) return input
  const first = prompt.map((content) => ({ role: 'system', content }) as const)
  const { body } = input
  if (body === undefined) return { ...input, messages: [...first, ...input.messages] }
  const messages = [...first, ...(body['messages'] as readonly WireFields[])]
  return toPassedInput('chat', { ...body, messages })
}

/** Judges one text after another until a text is blocked. */
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
    const texts = new InputTexts(input, required)
    this.checkLength(texts.counted)
    // Judges the joined texts, because each check has a fixed cost and there may be many texts.
    yield* this.check(texts.fixed.map(unescaped).join(separator))
    if (this.isBlocked) return input
    const { free } = texts
    if (free.length > 1) this.#suspects = yield* this.#guard.findSuspects(free.map(textIn))
    for (const one of free) yield* this.#redact(one)
    return texts.input
  }

  checkLength(texts: readonly string[]): void {
    const hits = this.#guard.checkLength(texts.reduce((sum, { length }) => sum + length, 0))
    this.#note(hits)
    this.isBlocked ||= hits.some(({ action }) => action === 'reject')
  }

  /** Returns the text, redacted if rules require it. */
  *check(text: string): Steps<string> {
    if (this.isBlocked || text === '' || this.#suspects?.has(text) === false) return text
    const verdict = yield* this.#guard.checkInput(text)
    this.#note(verdict.hits)
    if (verdict.action === 'pass') return verdict.text
    this.isBlocked = true
    return text
  }

  *#redact(free: FreeText): Steps<void> {
    const { owner, name, isArguments } = free
    const text = textIn(free)
    const passed = yield* this.check(text)
    if (passed === text || (isArguments && !isJsonText(passed))) return
    owner[name] = withText(owner[name], passed)
  }

  #note(hits: readonly GuardHit[]): void {
    for (const hit of hits) this.#hits.set(hit.rule, hit)
  }
}

/** Separates joined texts. Longer than any gap between the words of a phrase. */
const separator = '\n'.repeat(8)

/** A text that rules may redact: a field of a copied object. */
interface FreeText {
  readonly owner: Record<string, unknown>
  readonly name: string
  /** Arguments must stay valid JSON. They are also in `fixed`, so their length is counted there. */
  readonly isArguments: boolean
}

const textIn = ({ owner, name }: FreeText): string => textOf(owner[name])

/** Finds the texts of an input, typed or passed on, in a copy that may be changed. */
class InputTexts {
  /**
   * Texts that may be rejected or flagged, but not redacted: names and ids refer to each other, and
   * a redacted schema would be a different schema. Arguments are included, because their escape
   * sequences may hide words.
   */
  readonly fixed: string[]
  readonly free: FreeText[] = []
  readonly #input: PassedInput
  readonly #copy: Record<string, unknown>

  constructor(input: PassedInput, required: readonly string[]) {
    this.fixed = [...required]
    this.#input = input
    const { body, kind, ...typed } = input
    const { toolChoice: _, ...rest } = typed as WireFields
    const fields = body ?? rest
    this.#copy = { ...fields }
    const promptName = kind === 'chat' ? undefined : body === undefined ? 'text' : 'prompt'
    for (const [name, value] of Object.entries(fields)) {
      const isList = kind === 'chat' && Array.isArray(value)
      if (isList && name === 'messages') this.#copy[name] = value.map((one) => this.#message(one))
      else if (isList && name === 'tools') this.#copy[name] = value.map((one) => this.#tool(one))
      else if (name === promptName && typeof value === 'string') this.#addFree(this.#copy, name)
      else this.#addFixed(fieldTexts([value]))
    }
  }

  /** The texts whose length counts, each text once. */
  get counted(): readonly string[] {
    return [...this.fixed, ...this.free.filter(({ isArguments }) => !isArguments).map(textIn)]
  }

  /** The input with the redactions in `free`. */
  get input(): PassedInput {
    const { kind, body } = this.#input
    if (body !== undefined) return toPassedInput(kind, this.#copy)
    return { ...this.#input, ...this.#copy }
  }

  #addFixed(texts: readonly string[]): void {
    // Not spread into one push: V8 limits the number of arguments.
    for (const text of texts) this.fixed.push(text)
  }

  #addFree(owner: Record<string, unknown>, name: string, isArguments = false): void {
    this.free.push({ owner, name, isArguments })
  }

  #message(message: WireFields): WireFields {
    const copy: Record<string, unknown> = { ...message }
    for (const [name, value] of Object.entries(message)) {
      if (name === 'role') continue
      if (name === 'content' || (typeof value === 'string' && !fixedNames.has(name))) {
        this.#addFree(copy, name)
        if (Array.isArray(value)) this.#addFixed(value.flatMap(otherTexts))
      } else {
        this.#addFixed(textsIn(value))
        const isCalls = callNames.has(name) && Array.isArray(value)
        if (isCalls) copy[name] = value.map((call) => this.#call(call))
      }
    }
    return copy
  }

  #call(call: unknown): unknown {
    if (!isFields(call)) return call
    const { copy, owner } = copyWithFunction(call)
    if (typeof owner['arguments'] === 'string') this.#addFree(owner, 'arguments', true)
    return copy
  }

  #tool(tool: WireFields): WireFields {
    const { copy, owner } = copyWithFunction(tool)
    const { description, ...rest } = owner
    if (typeof description === 'string') this.#addFree(owner, 'description')
    const isTyped = this.#input.body === undefined
    if (isTyped) this.#addFixed(fieldTexts(Object.values(rest)))
    else this.#addFixed([JSON.stringify(owner === copy ? rest : { ...copy, function: rest })])
    return copy
  }
}

/** Copies a call or a tool. `owner` is the object with its fields: `copy` or `copy.function`. */
function copyWithFunction(whole: WireFields): Record<'copy' | 'owner', Record<string, unknown>> {
  const { function: inner } = whole
  if (!isFields(inner)) {
    const copy = { ...whole }
    return { copy, owner: copy }
  }
  const owner = { ...inner }
  return { copy: { ...whole, function: owner }, owner }
}

/** Fields of a message that are not redacted. */
const fixedNames: ReadonlySet<string> = new Set(['name', 'tool_call_id', 'toolCallId', 'id'])
const callNames: ReadonlySet<string> = new Set(['tool_calls', 'toolCalls'])

/** The texts in a content part, except its main text, which is judged with the content. */
function otherTexts(part: unknown): string[] {
  if (!isFields(part)) return []
  const { type: _, text, ...rest } = part
  return textsIn(typeof text === 'string' ? rest : { ...rest, text })
}

/** The texts of fields such as a schema or documents, including the names in them. */
const fieldTexts = (values: readonly unknown[]): string[] =>
  values.flatMap((value) => {
    if (typeof value === 'string') return [value]
    return typeof value === 'object' && value !== null ? [JSON.stringify(value)] : []
  })

/** The texts of a required format, including the names and descriptions in a schema. */
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

/** The name of a field that contains the prompt in a form that rules cannot read. */
function unreadableField(input: PassedInput): string | undefined {
  const { body = {} } = input
  const isRaw = input.kind === 'text'
  if (isRaw && (input.tokens !== undefined || Array.isArray(body['prompt']))) return 'prompt'
  return Object.hasOwn(body, 'prompt_embeds') ? 'prompt_embeds' : undefined
}

/** The error for a prompt that rules cannot read. */
const unreadableError = (param: string): InferenceError =>
  inferenceError('unsupported', 'the guardrails read prompts as text only', {
    refusal: {
      status: 400,
      message: `Invalid '${param}': the guardrails of this server read prompts as text only.`,
      param,
      code: 'invalid_value',
    },
  })

/** Replaces the escape sequences of JSON text, which could hide words or add letters. */
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

/** Returns the fields, redacted by the input rules; throws if a rule rejects them. */
export function* guardFields(fields: WireFields, guard: Guard): Steps<WireFields> {
  const unreadable = ['input', 'prompt'].find((name) => hasNumbers(fields[name]))
  if (unreadable !== undefined) throw unreadableError(unreadable)
  const texts = textsIn(fields)
  const check = new InputCheck(guard)
  check.checkLength(texts)
  // Judges the joined texts first, because a phrase may be split across texts. Field names, such as
  // those of a schema, are judged too, but never redacted.
  yield* check.check([...texts, ...new Set(namesIn(fields))].join(separator))
  const judged = new Map<string, string>()
  const suspects = check.hits.length === 0 ? [] : new Set(texts)
  for (const text of suspects) judged.set(text, yield* check.check(text))
  if (check.isBlocked) throw rejectedError('the request', check.hits)
  if (judged.size === 0) return fields
  return replaceTexts(fields, (text) => judged.get(text) ?? text) as WireFields
}

/** Returns a whole JSON answer, redacted by the output rules; throws if a rule rejects it. */
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

/** Assembles a result from its deltas, and passes on only what the output guardrails release. */

import { AnswerFieldsBuilder, ToolCallAssembler } from './fields/answer-fields.ts'
import type { GenerationResult } from './text-generator.ts'
import type { FinishReason, PromptReport, TokenLogprob, Usage } from './inference-engine.ts'
import { type AnswerFields, isFields, type PassedCall, type PassedDelta } from './pass-through.ts'
import type { Guard, OutputGuard } from '../guardrails/guard.ts'
import type { Release } from '../guardrails/sliding-scan.ts'

/**
 * With output rules, output that cannot be judged is not passed on: log probabilities, additional
 * fields of an answer other than texts of its message, and incomplete tool calls.
 */
export class ResultBuilder {
  readonly #guard: Guard
  /** `null` if there are no output rules. */
  readonly #output: OutputGuard | null
  /**
   * One guard for each additional text of the message, such as `reasoning_content`, by field name.
   */
  readonly #textGuards = new Map<string, OutputGuard>()
  readonly #toolCalls: PassedCall[] = []
  readonly #logprobs: TokenLogprob[] = []
  readonly #rules = new Set<string>()
  #pieces: ToolCallAssembler | null = null
  #fields: AnswerFieldsBuilder | null = null
  #text = ''
  #isBlocked = false
  #deltas = 0
  #promptTokens: number | null = null
  #prompt: PromptReport | null = null
  #ignored: readonly string[] | null = null
  #hasNamedIgnored = false

  constructor(guard: Guard) {
    this.#guard = guard
    this.#output = guard.openOutput()
  }

  /** Whether a rule may block the output. */
  get mayBlock(): boolean {
    return this.#output !== null
  }

  get isBlocked(): boolean {
    return this.#isBlocked
  }

  /** The number of deltas so far, an estimate of the completion tokens. */
  get deltas(): number {
    return this.#deltas
  }

  /** The number of prompt tokens that a delta reported; `null` if no delta has reported it. */
  get promptTokens(): number | null {
    return this.#promptTokens
  }

  /** Ids of the rules that matched, including rules that only flag. */
  get rules(): ReadonlySet<string> {
    return this.#rules
  }

  /** Adds a delta and returns the output that may be passed on now; `null` if there is none. */
  push(given: PassedDelta): PassedDelta | null {
    if (this.#isBlocked) return null
    const delta = given.reasoning === undefined ? given : withReasoning(given, given.reasoning)
    this.#deltas++
    this.#promptTokens ??= delta.promptTokens ?? null
    this.#ignored ??= delta.ignored ?? null
    this.#prompt ??= delta.prompt === undefined ? null : this.#reportOf(delta.prompt)
    if (delta.toolCallPieces !== undefined) {
      this.#pieces ??= new ToolCallAssembler()
      for (const piece of delta.toolCallPieces) this.#pieces.add(piece)
    }
    if (this.#output === null) {
      this.#text += delta.text
      // Not spread into one push: V8 limits the number of arguments.
      for (const call of delta.toolCalls ?? []) this.#toolCalls.push(call)
      for (const one of delta.logprobs ?? []) this.#logprobs.push(one)
      if (delta.fields !== undefined) this.#addFields(delta.fields)
      return delta
    }
    const text = this.#release(this.#output.push(delta.text))
    const texts = this.#pushTexts(delta.fields)
    const toolCalls = this.#checkCalls(delta.toolCalls ?? [])
    const judged = this.#tell(toDelta(text, texts, toolCalls))
    if (delta.prompt === undefined || this.#prompt === null) return judged
    return { text: '', ...judged, prompt: this.#prompt }
  }

  /** The last delta: held-back text, or the refusal for blocked text; `null` if neither. */
  flush(): PassedDelta | null {
    if (this.#output === null) return null
    const text = this.#isBlocked ? '' : this.#release(this.#output.finish())
    const texts: Record<string, string> = {}
    for (const [name, guard] of this.#textGuards) {
      if (!this.#isBlocked) this.#releaseText(name, guard.finish(), texts)
    }
    const toolCalls = this.#isBlocked ? [] : this.#checkCalls(this.#pieces?.take() ?? [])
    const { refusal } = this.#guard
    if (!this.#isBlocked || refusal === null) return this.#tell(toDelta(text, texts, toolCalls))
    this.#text += refusal
    return this.#tell(toDelta(`${text}${refusal}`, texts, toolCalls))
  }

  /** The whole result; call `flush` first. `last` has fields that arrived after the last delta. */
  finish(reason: FinishReason, usage: Usage, last?: AnswerFields): GenerationResult {
    const finishReason = this.#isBlocked ? 'content_filter' : reason
    const [toolCalls, logprobs] = [this.#toolCalls, this.#logprobs]
    if (this.#output === null) {
      for (const call of this.#pieces?.take() ?? []) toolCalls.push(call)
      if (last !== undefined) this.#addFields(last)
    }
    const optional = {
      ...(this.#prompt === null ? {} : { prompt: this.#prompt }),
      ...(this.#ignored === null ? {} : { ignored: this.#ignored }),
    }
    const result = { text: this.#text, finishReason, usage, toolCalls, logprobs, ...optional }
    const fields = this.#fields?.fields
    if (fields === undefined) return result
    const isPassedOn = last === undefined || this.#output !== null
    return { ...result, fields, ...(isPassedOn ? {} : { lastFields: last }) }
  }

  /**
   * Names the ignored fields in the first released delta. No rule judges the names: the client
   * wrote them.
   */
  #tell(delta: PassedDelta | null): PassedDelta | null {
    if (delta === null || this.#ignored === null || this.#hasNamedIgnored) return delta
    this.#hasNamedIgnored = true
    return { ...delta, ignored: this.#ignored }
  }

  /** With output rules, drops the log probabilities, because rules cannot judge them. */
  #reportOf(prompt: PromptReport): PromptReport {
    return this.#output === null ? prompt : { text: prompt.text, logprobs: [] }
  }

  #addFields(fields: AnswerFields): void {
    this.#fields ??= new AnswerFieldsBuilder()
    this.#fields.add(fields)
  }

  /** A separate guard judges each additional text of the message, like the answer's text. */
  #pushTexts(fields: AnswerFields | undefined): Record<string, string> {
    const texts: Record<string, string> = {}
    for (const [name, value] of Object.entries(fields?.message ?? {})) {
      if (typeof value !== 'string' || this.#isBlocked) continue
      let guard = this.#textGuards.get(name)
      if (guard === undefined) {
        const opened = this.#guard.openOutput()
        if (opened === null) continue
        guard = opened
        this.#textGuards.set(name, guard)
      }
      this.#releaseText(name, guard.push(value), texts)
    }
    return texts
  }

  #releaseText(name: string, release: Release, texts: Record<string, string>): void {
    this.#take(release)
    if (release.release === '') return
    texts[name] = release.release
    this.#addFields({ message: { [name]: release.release } })
  }

  /** Output rules judge the whole arguments of a call, so calls are not passed on in pieces. */
  #checkCalls(calls: readonly PassedCall[]): readonly PassedCall[] {
    const checked: PassedCall[] = []
    for (const call of calls) {
      const output = this.#guard.openOutput()
      if (output === null || this.#isBlocked) break
      const parts = [output.push(call.arguments), output.finish()]
      for (const part of parts) this.#take(part)
      const text = parts.map(({ release }) => release).join('')
      const { wire, ...typed } = call
      // Drops the server's own fields, which rules cannot judge; only custom calls need them.
      const kept = isFields(wire?.['custom']) ? { wire } : {}
      checked.push({ ...typed, arguments: text, ...kept })
    }
    if (this.#isBlocked) return []
    for (const call of checked) this.#toolCalls.push(call)
    return checked
  }

  #release(release: Release): string {
    this.#take(release)
    this.#text += release.release
    return release.release
  }

  #take({ isBlocked, hits }: Release): void {
    for (const { rule } of hits) this.#rules.add(rule)
    this.#isBlocked ||= isBlocked
  }
}

/** Reasoning is sent in the field that most servers use for it. */
const withReasoning = (delta: PassedDelta, reasoning: string): PassedDelta => ({
  ...delta,
  fields: { ...delta.fields, message: { ...delta.fields?.message, reasoning_content: reasoning } },
})

function toDelta(
  text: string,
  texts: Readonly<Record<string, string>>,
  toolCalls: readonly PassedCall[],
): PassedDelta | null {
  const hasTexts = Object.keys(texts).length > 0
  if (text === '' && !hasTexts && toolCalls.length === 0) return null
  return {
    text,
    ...(hasTexts ? { fields: { message: texts } } : {}),
    ...(toolCalls.length === 0 ? {} : { toolCalls }),
  }
}

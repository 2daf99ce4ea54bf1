/** Assembles a result from its deltas, and passes on only what the output guardrails release. */

import { joinAnswerFields, ToolCallAssembler } from './fields/answer-fields.ts'
import type { GenerationResult } from './text-generator.ts'
import type { FinishReason, PromptReport, TokenLogprob, Usage } from './inference-engine.ts'
import { isPlainObject } from '../../foundation/json-value.ts'
import type { AnswerFields, WireToolCall, PassThroughDelta } from './pass-through.ts'
import type { Guard, OutputGuard } from '../guardrails/guard.ts'
import type { ReleasedText } from '../guardrails/sliding-scan.ts'

/** If there are output rules, output that they cannot judge, such as logprobs, is dropped. */
export class ResultBuilder {
  readonly #guard: Guard
  readonly #output: OutputGuard | null
  /** One guard per additional text of the message, such as `reasoning_content`. */
  readonly #textGuards = new Map<string, OutputGuard>()
  readonly #toolCalls: WireToolCall[] = []
  readonly #logprobs: TokenLogprob[] = []
  /** Ids of the rules that matched, including rules that only flag. */
  readonly rules = new Set<string>()
  #callAssembler: ToolCallAssembler | null = null
  #fields: AnswerFields | undefined
  #text = ''
  isBlocked = false
  /** The number of deltas so far. It is an estimate of the number of completion tokens. */
  deltas = 0
  promptTokens: number | null = null
  #prompt: PromptReport | null = null
  #embedding: Float32Array | null = null
  #ignored: readonly string[] | null = null
  #hasSentIgnored = false

  constructor(guard: Guard) {
    this.#guard = guard
    this.#output = guard.createOutputGuard()
  }

  get hasOutputRules(): boolean {
    return this.#output !== null
  }

  /** Adds a delta and returns the output that may be passed on now; `null` if there is none. */
  push(given: PassThroughDelta): PassThroughDelta | null {
    if (this.isBlocked) return null
    const delta = given.reasoning === undefined ? given : withReasoning(given, given.reasoning)
    this.deltas++
    this.promptTokens ??= delta.promptTokens ?? null
    this.#ignored ??= delta.ignored ?? null
    this.#embedding ??= delta.embedding ?? null
    this.#prompt ??= delta.prompt === undefined ? null : this.#toPromptReport(delta.prompt)
    if (delta.toolCallPieces !== undefined) {
      this.#callAssembler ??= new ToolCallAssembler()
      for (const piece of delta.toolCallPieces) this.#callAssembler.add(piece)
    }
    if (this.#output === null) {
      this.#text += delta.text
      // The items are pushed one by one, because V8 limits the number of arguments of a call.
      for (const call of delta.toolCalls ?? []) this.#toolCalls.push(call)
      for (const one of delta.logprobs ?? []) this.#logprobs.push(one)
      if (delta.fields !== undefined) this.#addFields(delta.fields)
      return delta
    }
    const text = this.#releaseText(this.#output.push(delta.text))
    const texts = this.#pushTextFields(delta.fields)
    const toolCalls = this.#checkCalls(delta.toolCalls ?? [])
    const judgedDelta = this.#addIgnored(toDelta(text, texts, toolCalls))
    if (delta.prompt === undefined || this.#prompt === null) return judgedDelta
    return { text: '', ...judgedDelta, prompt: this.#prompt }
  }

  /** Returns text that was held back, or the refusal that replaces blocked text, or `null`. */
  flush(): PassThroughDelta | null {
    if (this.#output === null) return null
    const text = this.isBlocked ? '' : this.#releaseText(this.#output.finish())
    const texts: Record<string, string> = {}
    for (const [name, guard] of this.#textGuards) {
      if (!this.isBlocked) this.#releaseField(name, guard.finish(), texts)
    }
    const toolCalls = this.isBlocked ? [] : this.#checkCalls(this.#callAssembler?.drain() ?? [])
    const { refusal } = this.#guard
    if (!this.isBlocked || refusal === null)
      return this.#addIgnored(toDelta(text, texts, toolCalls))
    this.#text += refusal
    return this.#addIgnored(toDelta(`${text}${refusal}`, texts, toolCalls))
  }

  /** `flush` must be called first. `last` has fields that arrived after the last delta. */
  finish(reason: FinishReason, usage: Usage, last?: AnswerFields): GenerationResult {
    const finishReason = this.isBlocked ? 'content_filter' : reason
    const [toolCalls, logprobs] = [this.#toolCalls, this.#logprobs]
    if (this.#output === null) {
      for (const call of this.#callAssembler?.drain() ?? []) toolCalls.push(call)
      if (last !== undefined) this.#addFields(last)
    }
    const optional = {
      ...(this.#prompt === null ? {} : { prompt: this.#prompt }),
      ...(this.#ignored === null ? {} : { ignored: this.#ignored }),
      ...(this.#embedding === null ? {} : { embedding: this.#embedding }),
    }
    const result = { text: this.#text, finishReason, usage, toolCalls, logprobs, ...optional }
    const fields = this.#fields
    if (fields === undefined) return result
    const isPassedOn = last === undefined || this.#output !== null
    return { ...result, fields, ...(isPassedOn ? {} : { lastFields: last }) }
  }

  /** Adds the names of ignored fields to the first released delta. Rules do not judge them. */
  #addIgnored(delta: PassThroughDelta | null): PassThroughDelta | null {
    if (delta === null || this.#ignored === null || this.#hasSentIgnored) return delta
    this.#hasSentIgnored = true
    return { ...delta, ignored: this.#ignored }
  }

  /** If there are output rules, drops the log probabilities, because rules cannot judge them. */
  #toPromptReport(prompt: PromptReport): PromptReport {
    return this.#output === null ? prompt : { text: prompt.text, logprobs: [] }
  }

  #addFields(fields: AnswerFields): void {
    this.#fields = joinAnswerFields(this.#fields ?? {}, fields)
  }

  #pushTextFields(fields: AnswerFields | undefined): Record<string, string> {
    const texts: Record<string, string> = {}
    for (const [name, value] of Object.entries(fields?.message ?? {})) {
      if (typeof value !== 'string' || this.isBlocked) continue
      let guard = this.#textGuards.get(name)
      if (guard === undefined) {
        const newGuard = this.#guard.createOutputGuard()
        if (newGuard === null) continue
        guard = newGuard
        this.#textGuards.set(name, guard)
      }
      this.#releaseField(name, guard.push(value), texts)
    }
    return texts
  }

  #releaseField(name: string, release: ReleasedText, texts: Record<string, string>): void {
    this.#recordVerdict(release)
    if (release.text === '') return
    texts[name] = release.text
    this.#addFields({ message: { [name]: release.text } })
  }

  /** Output rules judge whole arguments, so calls are not passed on in pieces. */
  #checkCalls(calls: readonly WireToolCall[]): readonly WireToolCall[] {
    const checkedCalls: WireToolCall[] = []
    for (const call of calls) {
      const output = this.#guard.createOutputGuard()
      if (output === null || this.isBlocked) break
      const parts = [output.push(call.arguments), output.finish()]
      for (const part of parts) this.#recordVerdict(part)
      const text = parts.map((part) => part.text).join('')
      const { wire, ...typed } = call
      // Rules cannot judge the server's own fields. Only custom calls need them.
      const kept = isPlainObject(wire?.['custom']) ? { wire } : {}
      checkedCalls.push({ ...typed, arguments: text, ...kept })
    }
    if (this.isBlocked) return []
    for (const call of checkedCalls) this.#toolCalls.push(call)
    return checkedCalls
  }

  #releaseText(release: ReleasedText): string {
    this.#recordVerdict(release)
    this.#text += release.text
    return release.text
  }

  #recordVerdict({ isBlocked, hits }: ReleasedText): void {
    for (const { rule } of hits) this.rules.add(rule)
    this.isBlocked ||= isBlocked
  }
}

/** Moves the reasoning into `reasoning_content`, the field that most servers use for it. */
const withReasoning = (delta: PassThroughDelta, reasoning: string): PassThroughDelta => ({
  ...delta,
  fields: { ...delta.fields, message: { ...delta.fields?.message, reasoning_content: reasoning } },
})

function toDelta(
  text: string,
  texts: Readonly<Record<string, string>>,
  toolCalls: readonly WireToolCall[],
): PassThroughDelta | null {
  const hasTexts = Object.keys(texts).length > 0
  if (text === '' && !hasTexts && toolCalls.length === 0) return null
  return {
    text,
    ...(hasTexts ? { fields: { message: texts } } : {}),
    ...(toolCalls.length === 0 ? {} : { toolCalls }),
  }
}

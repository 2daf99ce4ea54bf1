/** Assembles a result from its deltas, and passes on only what the output guardrails release. */

import type { GenerationResult } from './text-generator.ts'
import type {
  FinishReason,
  GenerationDelta,
  TokenLogprob,
  ToolCall,
  Usage,
} from './inference-engine.ts'
import type { Guard, OutputGuard } from '../guardrails/guard.ts'
import type { Release } from '../guardrails/sliding-scan.ts'

export class ResultBuilder {
  readonly #guard: Guard
  /** `null` without output rules. */
  readonly #output: OutputGuard | null
  readonly #toolCalls: ToolCall[] = []
  readonly #logprobs: TokenLogprob[] = []
  readonly #rules = new Set<string>()
  #text = ''
  #isBlocked = false
  #deltas = 0
  #promptTokens: number | null = null

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

  /** As reported with a delta; `null` if the engine has not reported it. */
  get promptTokens(): number | null {
    return this.#promptTokens
  }

  /** Ids of the rules that matched, also of those that only flag. */
  get rules(): ReadonlySet<string> {
    return this.#rules
  }

  /** The part of the delta that may be passed on now; `null` for none. */
  push(delta: GenerationDelta): GenerationDelta | null {
    if (this.#isBlocked) return null
    this.#deltas++
    this.#promptTokens ??= delta.promptTokens ?? null
    if (this.#output === null) {
      this.#text += delta.text
      // Not spread into one push: V8 limits the number of arguments.
      for (const call of delta.toolCalls ?? []) this.#toolCalls.push(call)
      for (const one of delta.logprobs ?? []) this.#logprobs.push(one)
      return delta
    }
    const released = this.#release(this.#output.push(delta.text))
    // Logprobs contain the text that is held back, so output rules drop them.
    const toolCalls = (delta.toolCalls ?? []).flatMap((call) => this.#check(call))
    if (this.#isBlocked || toolCalls.length === 0) return released
    for (const call of toolCalls) this.#toolCalls.push(call)
    return { text: released?.text ?? '', toolCalls }
  }

  /** The last delta: the text that was held back, or the refusal that replaces it. */
  flush(): GenerationDelta | null {
    if (this.#output === null) return null
    const rest = this.#isBlocked ? null : this.#release(this.#output.finish())
    const { refusal } = this.#guard
    if (!this.#isBlocked || refusal === null) return rest
    this.#text += refusal
    return { text: `${rest?.text ?? ''}${refusal}` }
  }

  /** The whole result; call `flush` first. */
  finish(reason: FinishReason, usage: Usage): GenerationResult {
    const finishReason = this.#isBlocked ? 'content_filter' : reason
    const [toolCalls, logprobs] = [this.#toolCalls, this.#logprobs]
    return { text: this.#text, finishReason, usage, toolCalls, logprobs }
  }

  /** Output rules apply to the arguments of a tool call, which are never passed on in part. */
  #check(call: ToolCall): ToolCall[] {
    const output = this.#guard.openOutput()
    if (output === null) return [call]
    const parts = [output.push(call.arguments), output.finish()]
    for (const { hits } of parts) this.#addRules(hits)
    this.#isBlocked ||= parts.some(({ isBlocked }) => isBlocked)
    if (this.#isBlocked) return []
    return [{ ...call, arguments: parts.map(({ release }) => release).join('') }]
  }

  #release({ release, isBlocked, hits }: Release): GenerationDelta | null {
    this.#addRules(hits)
    this.#isBlocked = isBlocked
    this.#text += release
    return release === '' ? null : { text: release }
  }

  #addRules(hits: Release['hits']): void {
    for (const { rule } of hits) this.#rules.add(rule)
  }
}

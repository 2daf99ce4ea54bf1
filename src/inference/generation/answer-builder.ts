/** Puts an answer together from its pieces, and lets through only what the guardrails release. */

import type { Answer } from './text-generator.ts'
import type {
  FinishReason,
  GenerationDelta,
  TokenLogprob,
  ToolCall,
  Usage,
} from './inference-engine.ts'
import type { Guard, OutputGuard } from '../guardrails/guard.ts'
import type { Release } from '../guardrails/sliding-scan.ts'

export class AnswerBuilder {
  readonly #guard: Guard
  /** `null` where no rule looks at answers. */
  readonly #output: OutputGuard | null
  readonly #toolCalls: ToolCall[] = []
  readonly #logprobs: TokenLogprob[] = []
  readonly #rules = new Set<string>()
  #text = ''
  #isBlocked = false
  #pieces = 0
  #promptTokens: number | null = null

  constructor(guard: Guard) {
    this.#guard = guard
    this.#output = guard.openOutput()
  }

  /** A rule may cut the answer off. */
  get mayBlock(): boolean {
    return this.#output !== null
  }

  get isBlocked(): boolean {
    return this.#isBlocked
  }

  /** How many there were: they stand for tokens where nobody counts those. */
  get pieces(): number {
    return this.#pieces
  }

  /** What the engine has told on the way; `null` if that is nothing. */
  get promptTokens(): number | null {
    return this.#promptTokens
  }

  /** The rules that hit, also those that only flag. */
  get rules(): ReadonlySet<string> {
    return this.#rules
  }

  /** What of the piece may be shown now; `null` when nothing may. */
  push(delta: GenerationDelta): GenerationDelta | null {
    if (this.#isBlocked) return null
    this.#pieces++
    this.#promptTokens ??= delta.promptTokens ?? null
    if (this.#output === null) {
      this.#text += delta.text
      // One by one: as arguments of one call, very many would be too many.
      for (const call of delta.toolCalls ?? []) this.#toolCalls.push(call)
      for (const one of delta.logprobs ?? []) this.#logprobs.push(one)
      return delta
    }
    const shown = this.#show(this.#output.push(delta.text))
    // Logprobs spell the text that is held back, so they are not told here.
    const toolCalls = (delta.toolCalls ?? []).flatMap((call) => this.#judge(call))
    if (this.#isBlocked || toolCalls.length === 0) return shown
    for (const call of toolCalls) this.#toolCalls.push(call)
    return { text: shown?.text ?? '', toolCalls }
  }

  /** What is to be shown at the end: what was held back, or a sentence in place of the rest. */
  flush(): GenerationDelta | null {
    if (this.#output === null) return null
    const rest = this.#isBlocked ? null : this.#show(this.#output.finish())
    const { refusal } = this.#guard
    if (!this.#isBlocked || refusal === null) return rest
    this.#text += refusal
    return { text: `${rest?.text ?? ''}${refusal}` }
  }

  /** The whole answer, after `flush`. */
  finish(reason: FinishReason, usage: Usage): Answer {
    const finishReason = this.#isBlocked ? 'content_filter' : reason
    const [toolCalls, logprobs] = [this.#toolCalls, this.#logprobs]
    return { text: this.#text, finishReason, usage, toolCalls, logprobs }
  }

  /** The arguments of a call are an answer, too: rejected, redacted or let through as a whole. */
  #judge(call: ToolCall): ToolCall[] {
    const output = this.#guard.openOutput()
    if (output === null) return [call]
    const parts = [output.push(call.arguments), output.finish()]
    for (const { hits } of parts) this.#note(hits)
    this.#isBlocked ||= parts.some(({ isBlocked }) => isBlocked)
    if (this.#isBlocked) return []
    return [{ ...call, arguments: parts.map(({ release }) => release).join('') }]
  }

  #show({ release, isBlocked, hits }: Release): GenerationDelta | null {
    this.#note(hits)
    this.#isBlocked = isBlocked
    this.#text += release
    return release === '' ? null : { text: release }
  }

  #note(hits: Release['hits']): void {
    for (const { rule } of hits) this.#rules.add(rule)
  }
}

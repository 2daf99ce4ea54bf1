/** Puts an answer together from its pieces, and lets through only what the guardrails release. */

import type { Answer } from './desk.ts'
import type { GenerationDelta, GenerationEnd, TokenLogprob, ToolCall, Usage } from './engine.ts'
import type { Guard, OutputGuard } from './guardrails/guard.ts'
import type { Release } from './guardrails/sliding-scan.ts'

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

  /** The rules that hit, also those that only flag. */
  get rules(): ReadonlySet<string> {
    return this.#rules
  }

  /** What of the piece may be shown now; `null` when nothing may. */
  push(delta: GenerationDelta): GenerationDelta | null {
    if (this.#isBlocked) return null
    this.#pieces++
    if (this.#output === null) {
      this.#text += delta.text
      if (delta.toolCalls !== undefined) this.#toolCalls.push(...delta.toolCalls)
      if (delta.logprobs !== undefined) this.#logprobs.push(...delta.logprobs)
      return delta
    }
    const shown = this.#show(this.#output.push(delta.text))
    // Logprobs spell the text that is held back, so they are not told here.
    const toolCalls = (delta.toolCalls ?? []).flatMap((call) => this.#judge(call))
    if (this.#isBlocked || toolCalls.length === 0) return shown
    this.#toolCalls.push(...toolCalls)
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

  /** The whole answer, after `flush`; without an end, of one that was cut off. */
  finish(end: (GenerationEnd & { readonly kind: 'done' }) | null): Answer {
    // Nobody counts the tokens of an answer that is cut off: its pieces stand for them.
    const usage: Usage = end?.usage ?? { promptTokens: 0, completionTokens: this.#pieces }
    const reason = this.#isBlocked ? 'content_filter' : (end?.finishReason ?? 'stop')
    const [toolCalls, logprobs] = [this.#toolCalls, this.#logprobs]
    return { text: this.#text, finishReason: reason, usage, toolCalls, logprobs }
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

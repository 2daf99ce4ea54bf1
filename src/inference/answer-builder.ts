/** Puts an answer together from its pieces, and lets through only what the guardrails release. */

import type { Answer } from './desk.ts'
import type { GenerationDelta, GenerationEnd, TokenLogprob, ToolCall, Usage } from './engine.ts'
import type { OutputGuard } from './guardrails/guard.ts'

export class AnswerBuilder {
  /** `null` where no rule looks at answers. */
  readonly #guard: OutputGuard | null
  readonly #toolCalls: ToolCall[] = []
  readonly #logprobs: TokenLogprob[] = []
  #text = ''
  #isBlocked = false
  #pieces = 0

  constructor(guard: OutputGuard | null) {
    this.#guard = guard
  }

  /** A rule may cut the answer off. */
  get mayBlock(): boolean {
    return this.#guard !== null
  }

  get isBlocked(): boolean {
    return this.#isBlocked
  }

  /** What of the piece may be shown now; `null` when nothing may. */
  push(delta: GenerationDelta): GenerationDelta | null {
    if (this.#isBlocked) return null
    this.#pieces++
    if (delta.toolCalls !== undefined) this.#toolCalls.push(...delta.toolCalls)
    if (delta.logprobs !== undefined) this.#logprobs.push(...delta.logprobs)
    if (this.#guard === null) {
      this.#text += delta.text
      return delta
    }
    const { release, isBlocked } = this.#guard.push(delta.text)
    return this.#show(release, isBlocked, delta)
  }

  /** What the guardrails still held back at the end; `null` when that is nothing. */
  flush(): GenerationDelta | null {
    if (this.#guard === null) return null
    const { release, isBlocked } = this.#guard.finish()
    return this.#show(release, isBlocked, { text: '' })
  }

  /** The whole answer. */
  finish(end: GenerationEnd & { readonly kind: 'done' }): Answer {
    return this.#isBlocked ? this.blocked() : this.#answer(end.finishReason, end.usage)
  }

  /** What was shown before a rule cut it off. A piece counts as a token: nobody tells the rest. */
  blocked(): Answer {
    return this.#answer('content_filter', { promptTokens: 0, completionTokens: this.#pieces })
  }

  #show(release: string, isBlocked: boolean, delta: GenerationDelta): GenerationDelta | null {
    this.#isBlocked = isBlocked
    this.#text += release
    const isEmpty = release === '' && delta.toolCalls === undefined && delta.logprobs === undefined
    return isEmpty ? null : { ...delta, text: release }
  }

  #answer(finishReason: Answer['finishReason'], usage: Usage): Answer {
    const [toolCalls, logprobs] = [this.#toolCalls, this.#logprobs]
    return { text: this.#text, finishReason, usage, toolCalls, logprobs }
  }
}

/** Responses of `POST /v1/completions`. */

import type { GenerationResult } from '../../generation/text-generator.ts'
import type {
  FinishReason,
  GenerationDelta,
  TokenLogprob,
  Usage,
} from '../../generation/inference-engine.ts'
import { ChunkWriter, type ReplyHead, type ReplyShape, usageFields } from './reply-shape.ts'

export interface CompletionReplyOptions {
  readonly hasLogprobs: boolean
  /** The prompt of a choice if it is to be repeated before the text; otherwise empty. */
  readonly echoOf: (index: number) => string
}

/** The format of one text completion. */
export class CompletionReply implements ReplyShape {
  readonly #head: ReplyHead
  readonly #options: CompletionReplyOptions
  #writer: ChunkWriter | undefined
  /** Characters sent for each choice: logprobs contain the offsets of their tokens. */
  readonly #lengths: number[] = []

  constructor(head: ReplyHead, options: CompletionReplyOptions) {
    this.#head = head
    this.#options = options
  }

  get #chunks(): ChunkWriter {
    return (this.#writer ??= new ChunkWriter('text_completion', this.#head))
  }

  whole(results: readonly GenerationResult[], usage: Usage): object {
    const { id, created, model } = this.#head
    const choices = results.map((result, index) => {
      const echo = this.#options.echoOf(index)
      return {
        text: `${echo}${result.text}`,
        index,
        logprobs: this.#logprobs(result.logprobs, echo.length),
        finish_reason: result.finishReason,
      }
    })
    const object = 'text_completion'
    return { id, object, created, model, choices, usage: usageFields(usage) }
  }

  opening(index: number): string | undefined {
    const text = this.#options.echoOf(index)
    return text === '' ? undefined : this.delta(index, { text })
  }

  delta(index: number, delta: GenerationDelta): string {
    const { text, logprobs = [] } = delta
    const start = this.#lengths[index] ?? 0
    this.#lengths[index] = start + text.length
    return this.#chunks.choice({
      text,
      index,
      logprobs: logprobs.length === 0 ? null : this.#logprobs(logprobs, start),
      finish_reason: null,
    })
  }

  closing(index: number, finishReason: FinishReason): string {
    return this.#chunks.choice({ text: '', index, logprobs: null, finish_reason: finishReason })
  }

  usage(usage: Usage): string {
    return this.#chunks.usage(usage)
  }

  #logprobs(logprobs: readonly TokenLogprob[], start: number): object | null {
    if (!this.#options.hasLogprobs) return null
    let offset = start
    const offsets = logprobs.map(({ token }) => {
      const at = offset
      offset += token.length
      return at
    })
    return {
      tokens: logprobs.map(({ token }) => token),
      token_logprobs: logprobs.map(({ logprob }) => logprob),
      top_logprobs: logprobs.map(({ top }) =>
        Object.fromEntries(top.map(({ token, logprob }) => [token, logprob])),
      ),
      text_offset: offsets,
    }
  }
}

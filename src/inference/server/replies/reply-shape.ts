/** How answers are spelled: the port that chat and text completions implement. */

import type { FinishReason, GenerationDelta, Usage } from '../../generation/inference-engine.ts'
import type { GenerationResult } from '../../generation/text-generator.ts'

/** The spelling of one response. Indexes are those of its choices. */
export interface ReplyShape {
  /** The answer as a whole. */
  whole(answers: readonly GenerationResult[], usage: Usage): object
  /** What a stream says first of a choice; `undefined` for nothing. */
  opening(index: number): string | undefined
  delta(index: number, delta: GenerationDelta): string
  closing(index: number, finishReason: FinishReason): string
  usage(usage: Usage): string
}

/** What every part of a response repeats. */
export interface ReplyHead {
  readonly id: string
  readonly created: number
  readonly model: string
  /** Chunks of a stream that will tell its usage say so from the first. */
  readonly includesUsage: boolean
}

export function usageFields(usage: Usage): object {
  const { promptTokens, completionTokens } = usage
  return {
    prompt_tokens: promptTokens,
    completion_tokens: completionTokens,
    total_tokens: promptTokens + completionTokens,
  }
}

/** Spells chunks from parts: the head of all is the same text. */
export class ChunkWriter {
  readonly #prefix: string
  readonly #suffix: string

  constructor(object: string, head: ReplyHead) {
    const { id, created, model } = head
    const fields = JSON.stringify({ id, object, created, model, system_fingerprint: null })
    this.#prefix = `${fields.slice(0, -1)},"choices":[`
    this.#suffix = head.includesUsage ? '],"usage":null}' : ']}'
  }

  choice(choice: object): string {
    return `${this.#prefix}${JSON.stringify(choice)}${this.#suffix}`
  }

  usage(usage: Usage): string {
    return `${this.#prefix}],"usage":${JSON.stringify(usageFields(usage))}}`
  }
}

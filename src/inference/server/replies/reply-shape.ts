/** The format of a response: the port that chat and text completions implement. */

import type {
  AnswerFields,
  FinishReason,
  GenerationDelta,
  Usage,
  WireFields,
} from '../../generation/inference-engine.ts'
import type { GenerationResult } from '../../generation/text-generator.ts'

/** The format of one response. `index` is the index of a choice. */
export interface ReplyShape {
  /** The body of a response that is not streamed. */
  whole(results: readonly GenerationResult[], usage: Usage): object
  /** The first event of a choice, before that of its first delta; `undefined` for none. */
  opening(index: number, first?: GenerationDelta): string | undefined
  delta(index: number, delta: GenerationDelta): string
  /** `fields` has the fields that no delta contained. */
  closing(index: number, finishReason: FinishReason, fields?: AnswerFields): string
  usage(usage: Usage): string
}

/** The fields that every event of a response repeats. */
export interface ReplyHead {
  readonly id: string
  readonly created: number
  readonly model: string
  /** Whether the stream ends with its usage; every chunk before then has `usage: null`. */
  readonly includesUsage: boolean
}

export function usageFields(usage: Usage): object {
  const { promptTokens, completionTokens, details } = usage
  const counts = {
    prompt_tokens: promptTokens,
    completion_tokens: completionTokens,
    total_tokens: promptTokens + completionTokens,
  }
  return details === undefined ? counts : { ...counts, ...details }
}

/** Serializes the chunks of a stream; their common head is serialized once. */
export class ChunkWriter {
  #head: WireFields
  #prefix: string
  readonly #suffix: string

  constructor(object: string, head: ReplyHead) {
    const { id, created, model } = head
    this.#head = { id, object, created, model, system_fingerprint: null }
    this.#prefix = prefixOf(this.#head)
    this.#suffix = head.includesUsage ? '],"usage":null}' : ']}'
  }

  /** Passes the fingerprint of the server behind the engine on in all following chunks. */
  learn(body: WireFields | undefined): void {
    const fingerprint = body?.['system_fingerprint']
    // Most servers send the same one with every chunk.
    const known = this.#head['system_fingerprint']
    if (typeof fingerprint !== 'string' || fingerprint === known) return
    this.#head = { ...this.#head, system_fingerprint: fingerprint }
    this.#prefix = prefixOf(this.#head)
  }

  /** `body` has additional fields of the chunk. */
  choice(choice: object, body?: WireFields): string {
    const json = JSON.stringify(choice)
    if (body === undefined) return `${this.#prefix}${json}${this.#suffix}`
    this.learn(body)
    const head = JSON.stringify({ ...this.#head, ...body })
    return `${head.slice(0, -1)},"choices":[${json}${this.#suffix}`
  }

  usage(usage: Usage): string {
    return `${this.#prefix}],"usage":${JSON.stringify(usageFields(usage))}}`
  }
}

const prefixOf = (head: WireFields): string => `${JSON.stringify(head).slice(0, -1)},"choices":[`

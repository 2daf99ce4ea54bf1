/** Responses of `POST /v1/chat/completions`. */

import type { GenerationResult } from '../../generation/text-generator.ts'
import type {
  FinishReason,
  GenerationDelta,
  TokenChance,
  TokenLogprob,
  ToolCall,
  Usage,
} from '../../generation/inference-engine.ts'
import { ChunkWriter, type ReplyHead, type ReplyShape, usageFields } from './reply-shape.ts'

/** The format of one chat response. Counts the tool calls of each choice, which have an index. */
export class ChatReply implements ReplyShape {
  readonly #head: ReplyHead
  readonly #hasLogprobs: boolean
  #writer: ChunkWriter | undefined
  readonly #toolCalls: number[] = []

  constructor(head: ReplyHead, hasLogprobs: boolean) {
    this.#head = head
    this.#hasLogprobs = hasLogprobs
  }

  get #chunks(): ChunkWriter {
    return (this.#writer ??= new ChunkWriter('chat.completion.chunk', this.#head))
  }

  whole(results: readonly GenerationResult[], usage: Usage): object {
    const { id, created, model } = this.#head
    return {
      id,
      object: 'chat.completion',
      created,
      model,
      choices: results.map((result, index) => ({
        index,
        message: messageOf(result),
        logprobs: this.#hasLogprobs ? logprobFields(result.logprobs) : null,
        finish_reason: result.finishReason,
      })),
      usage: usageFields(usage),
      system_fingerprint: null,
    }
  }

  opening(index: number): string {
    return this.#chunk(index, { role: 'assistant', content: '', refusal: null })
  }

  delta(index: number, delta: GenerationDelta): string {
    const { text, toolCalls = [], logprobs } = delta
    const first = this.#toolCalls[index] ?? 0
    this.#toolCalls[index] = first + toolCalls.length
    return this.#chunk(
      index,
      {
        ...(text === '' && toolCalls.length > 0 ? {} : { content: text }),
        ...(toolCalls.length === 0
          ? {}
          : { tool_calls: toolCalls.map((call, at) => ({ index: first + at, ...callOf(call) })) }),
      },
      logprobs,
    )
  }

  closing(index: number, finishReason: FinishReason): string {
    return this.#chunks.choice({ index, delta: {}, logprobs: null, finish_reason: finishReason })
  }

  usage(usage: Usage): string {
    return this.#chunks.usage(usage)
  }

  #chunk(index: number, delta: object, logprobs?: readonly TokenLogprob[]): string {
    return this.#chunks.choice({
      index,
      delta,
      logprobs: this.#hasLogprobs && logprobs !== undefined ? logprobFields(logprobs) : null,
      finish_reason: null,
    })
  }
}

function messageOf(result: GenerationResult): object {
  const { text, toolCalls } = result
  if (toolCalls.length === 0) return { role: 'assistant', content: text, refusal: null }
  return {
    role: 'assistant',
    content: text === '' ? null : text,
    refusal: null,
    tool_calls: toolCalls.map(callOf),
  }
}

const callOf = (call: ToolCall): object => ({
  id: call.id,
  type: 'function',
  function: { name: call.name, arguments: call.arguments },
})

const logprobFields = (logprobs: readonly TokenLogprob[]): object => ({
  content: logprobs.map((chosen) => ({
    ...tokenFields(chosen),
    top_logprobs: chosen.top.map(tokenFields),
  })),
  refusal: null,
})

const tokenFields = ({ token, logprob, bytes }: TokenChance): object => ({
  token,
  logprob,
  bytes: bytes ?? bytesOf(token),
})

/** `null` for a part of a character, which comes as U+FFFD or as half of a surrogate pair. */
const bytesOf = (token: string): number[] | null =>
  token.includes('\uFFFD') || !token.isWellFormed() ? null : [...Buffer.from(token)]

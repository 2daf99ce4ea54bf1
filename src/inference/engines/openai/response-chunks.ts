/** Turns the chunks of a streamed response into deltas, tool calls, a finish reason and a usage. */

import { newUuid } from '../../../foundation/ids.ts'
import type {
  FinishReason,
  GenerationDelta,
  TokenChance,
  TokenLogprob,
  ToolCall,
  Usage,
} from '../../generation/inference-engine.ts'
import { inferenceError } from '../../generation/inference-errors.ts'
import { countOr, listOf, parseJson, pick, textOr } from './untrusted-json.ts'
import { refusalIn } from './upstream-refusal.ts'

/** The standard's four, and what some servers report instead. */
const finishReasons: Readonly<Record<string, FinishReason>> = {
  stop: 'stop',
  eos: 'stop',
  stop_sequence: 'stop',
  length: 'length',
  max_tokens: 'length',
  model_length: 'length',
  tool_calls: 'tool_calls',
  function_call: 'tool_calls',
  content_filter: 'content_filter',
}

const maxArgumentChars = 1 << 20
const maxCalls = 128

interface CallParts {
  readonly index: number
  id: string
  name: string
  arguments: string
}

/**
 * Takes the data of the events in order. Throws the `InferenceError` that an error chunk reports,
 * or `EngineContractError` for data that is no chunk.
 */
export class ResponseChunks {
  readonly #calls: CallParts[] = []
  #finishReason: FinishReason | null = null
  #usage: Usage | null = null

  /** `null` until a chunk reports it: a response without it is incomplete. */
  get finishReason(): FinishReason | null {
    return this.#finishReason
  }

  /** `null` if the server reports none. */
  get usage(): Usage | null {
    return this.#usage
  }

  /** The delta of one event's data; `null` if it contains no text and no log probabilities. */
  take(data: string): GenerationDelta | null {
    const chunk = parseJson(data)
    if (typeof chunk !== 'object' || chunk === null) {
      throw inferenceError('EngineContractError', 'the server sent a chunk that is not JSON')
    }
    const failure = pick(chunk, 'error')
    if (failure !== undefined && failure !== null) throw refusalIn(chunk)
    this.#takeUsage(pick(chunk, 'usage'))
    const choice = pick(chunk, 'choices', 0)
    for (const part of listOf(pick(choice, 'delta', 'tool_calls'))) this.#takeCall(part)
    this.#takeReason(pick(choice, 'finish_reason'))
    const text = textOr(pick(choice, 'delta', 'content') ?? pick(choice, 'text'), '')
    const logprobs = toLogprobs(pick(choice, 'logprobs'))
    if (text === '' && logprobs.length === 0) return null
    return { text, ...(logprobs.length === 0 ? {} : { logprobs }) }
  }

  /** The complete tool calls, after the last chunk. */
  calls(): GenerationDelta | null {
    if (this.#calls.length === 0) return null
    const toolCalls = this.#calls.map(({ id, name, arguments: text }): ToolCall => ({
      id,
      name,
      arguments: text,
    }))
    return { text: '', toolCalls }
  }

  #takeUsage(usage: unknown): void {
    const promptTokens = countOr(pick(usage, 'prompt_tokens'), null)
    const completionTokens = countOr(pick(usage, 'completion_tokens'), null)
    if (promptTokens === null || completionTokens === null) return
    this.#usage = { promptTokens, completionTokens }
  }

  #takeReason(reason: unknown): void {
    if (typeof reason !== 'string') return
    const known = Object.hasOwn(finishReasons, reason) ? finishReasons[reason] : undefined
    if (known === undefined) {
      throw inferenceError(
        'EngineContractError',
        'the server ended a response with an unknown finish reason',
        {
          cause: new Error(`finish_reason: ${reason.slice(0, 80)}`),
        },
      )
    }
    this.#finishReason = known
  }

  /** A part names its call by an index, which servers that send whole calls may omit. */
  #takeCall(part: unknown): void {
    const id = textOr(pick(part, 'id'), '')
    const index = countOr(pick(part, 'index'), this.#calls.length)
    let call = this.#calls.find((one) => one.index === index)
    if (call === undefined) {
      call = { index, id: id === '' ? `call_${newUuid()}` : id, name: '', arguments: '' }
      this.#calls.push(call)
    }
    call.name += textOr(pick(part, 'function', 'name'), '')
    call.arguments += textOr(pick(part, 'function', 'arguments'), '')
    if (this.#calls.length > maxCalls || call.arguments.length > maxArgumentChars) {
      throw inferenceError('EngineContractError', 'the server sent tool calls without an end')
    }
  }
}

/** From the chat form (a list of objects) or the text form (parallel lists). */
function toLogprobs(logprobs: unknown): readonly TokenLogprob[] {
  if (typeof logprobs !== 'object' || logprobs === null) return []
  const content = pick(logprobs, 'content')
  if (Array.isArray(content)) {
    return content.flatMap((entry: unknown) => {
      const top = listOf(pick(entry, 'top_logprobs')).flatMap(toPair)
      return toPair(entry).map((pair) => ({ ...pair, top }))
    })
  }
  return listOf(pick(logprobs, 'tokens')).flatMap((token, at) => {
    const top = pick(logprobs, 'top_logprobs', at) ?? {}
    const pairs = Object.entries(top).flatMap(([one, value]) =>
      toPair({ token: one, logprob: value }),
    )
    const chosen = toPair({ token, logprob: pick(logprobs, 'token_logprobs', at) })
    return chosen.map((pair) => ({ ...pair, top: pairs }))
  })
}

function toPair(entry: unknown): TokenChance[] {
  const [token, logprob] = [pick(entry, 'token'), pick(entry, 'logprob')]
  if (typeof token !== 'string' || typeof logprob !== 'number') return []
  const bytes = pick(entry, 'bytes')
  return [isBytes(bytes) ? { token, logprob, bytes } : { token, logprob }]
}

const isBytes = (value: unknown): value is readonly number[] =>
  Array.isArray(value) && value.every((byte) => (countOr(byte, null) ?? 256) < 256)

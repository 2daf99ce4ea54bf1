/**
 * Converts the chunks of a streamed response to deltas, tool calls, a finish reason and a usage.
 */

import { newUuid } from '../../../foundation/ids.ts'
import type {
  FinishReason,
  TokenChance,
  TokenLogprob,
  Usage,
} from '../../generation/inference-engine.ts'
import {
  type AnswerFields,
  isFields,
  type PassedCallPiece,
  type PassedDelta,
  type WireFields,
} from '../../generation/pass-through.ts'
import { inferenceError } from '../../generation/inference-errors.ts'
import { countOr, listOf, parseJson, pick, textOr } from './upstream-link.ts'
import { refusalIn } from './upstream-refusal.ts'

/** The standard finish reasons, and equivalent ones that some servers report. */
const finishReasons: Readonly<Record<string, FinishReason>> = {
  stop: 'stop',
  eos: 'stop',
  stop_sequence: 'stop',
  length: 'length',
  max_tokens: 'length',
  model_length: 'length',
  tool_calls: 'tool_calls',
  content_filter: 'content_filter',
}

/** Finish reasons of failed requests, whose output is not an answer. */
const failures: ReadonlySet<string> = new Set(['abort', 'error'])

const maxReasonChars = 80
const maxArgumentChars = 1 << 20
const maxCalls = 128

/** Fields that are read here or that the HTTP server writes itself. Other fields are passed on. */
const ownFields = {
  body: new Set(['id', 'object', 'created', 'model', 'choices', 'usage', 'error']),
  choice: new Set(['index', 'delta', 'message', 'text', 'finish_reason']),
  message: new Set(['role', 'content', 'tool_calls']),
}

type Level = keyof typeof ownFields

/**
 * Reads the data of events in order, or one whole response. Throws the `InferenceError` that an
 * error chunk reports, or `EngineContractError` for data that is not a chunk.
 */
export class ResponseChunks {
  /** The current length of each tool call's arguments, by index. */
  readonly #calls = new Map<number, number>()
  /** Fields that no delta has contained yet. */
  #kept: { [L in Level]?: Record<string, unknown> } = {}
  /** Scalars of the body that were already passed on. Most servers repeat them in each chunk. */
  readonly #passedOn = new Map<string, unknown>()
  #finishReason: FinishReason | null = null
  /** The server's finish reason if it is unknown here; otherwise `null`. */
  #passedReason: string | null = null
  #usage: Usage | null = null

  /** `null` until a chunk reports the finish reason. A response without one is incomplete. */
  get finishReason(): FinishReason | null {
    return this.#finishReason
  }

  /** `null` if the server has reported no usage. */
  get usage(): Usage | null {
    return this.#usage
  }

  /** Converts the data of one event to a delta; `null` if the data contains no output. */
  take(data: string): PassedDelta | null {
    const chunk = parseJson(data)
    if (!isFields(chunk)) {
      throw inferenceError('EngineContractError', 'the server sent a chunk that is not JSON')
    }
    const failure = pick(chunk, 'error')
    if (failure !== undefined && failure !== null) throw refusalIn(chunk)
    this.#takeUsage(pick(chunk, 'usage'))
    this.#keep('body', chunk)
    const choice = pick(chunk, 'choices', 0)
    if (!isFields(choice)) return null
    this.#keep('choice', choice)
    this.#takeReason(choice['finish_reason'])
    const message = choice['delta'] ?? choice['message']
    return this.#toDelta(choice, isFields(message) ? message : {})
  }

  /** Returns the fields that no delta contained. Call this after the last `take`. */
  rest(): AnswerFields | undefined {
    if (this.#passedReason !== null) {
      this.#kept.choice = { ...this.#kept.choice, finish_reason: this.#passedReason }
    }
    return this.#takeKept()
  }

  #takeKept(): AnswerFields | undefined {
    const rest = this.#kept
    this.#kept = {}
    return Object.keys(rest).length === 0 ? undefined : rest
  }

  #toDelta(choice: WireFields, message: WireFields): PassedDelta | null {
    const hasMore = this.#keep('message', message)
    const toolCallPieces = listOf(message['tool_calls']).map((part) => this.#takeCall(part))
    const { content } = message
    // Some servers send a list of parts. Keeps the list, because not all parts are text.
    if (Array.isArray(content)) (this.#kept.message ??= {})['content'] = content
    const text = textIn(content ?? choice['text'])
    const logprobs = toLogprobs(choice['logprobs'])
    const isEmpty = text === '' && logprobs.length === 0 && toolCallPieces.length === 0
    if (isEmpty && !hasMore && !Array.isArray(content)) return null
    const fields = this.#takeKept()
    return {
      text,
      ...(logprobs.length === 0 ? {} : { logprobs }),
      ...(toolCallPieces.length === 0 ? {} : { toolCallPieces }),
      ...(fields === undefined ? {} : { fields }),
    }
  }

  /** Keeps fields for the next delta or `rest`; returns whether there were any to keep. */
  #keep(level: Level, fields: WireFields): boolean {
    let hasAny = false
    for (const [name, value] of Object.entries(fields)) {
      if (ownFields[level].has(name) || value === null || value === '') continue
      if (level === 'body' && typeof value !== 'object') {
        if (this.#passedOn.get(name) === value) continue
        this.#passedOn.set(name, value)
      }
      ;(this.#kept[level] ??= {})[name] = value
      hasAny = true
    }
    return hasAny
  }

  #takeUsage(usage: unknown): void {
    if (!isFields(usage)) return
    const { prompt_tokens: prompt, completion_tokens: completion, total_tokens: _, ...rest } = usage
    const promptTokens = countOr(prompt, null)
    const completionTokens = countOr(completion, null)
    if (promptTokens === null || completionTokens === null) return
    const details = Object.entries(rest).filter(([, value]) => value !== null)
    this.#usage = {
      promptTokens,
      completionTokens,
      ...(details.length === 0 ? {} : { details: Object.fromEntries(details) }),
    }
  }

  #takeReason(reason: unknown): void {
    if (typeof reason !== 'string') return
    if (failures.has(reason)) {
      const message = `the server behind this one ended the answer with '${reason}'`
      throw inferenceError('upstream_error', message)
    }
    const known = Object.hasOwn(finishReasons, reason) ? finishReasons[reason] : undefined
    this.#passedReason = known === undefined ? reason.slice(0, maxReasonChars) : null
    this.#finishReason = known ?? (reason === 'function_call' ? 'tool_calls' : 'stop')
  }

  /** Converts a part of a call. Servers that send complete calls may omit the index. */
  #takeCall(part: unknown): PassedCallPiece {
    const index = countOr(pick(part, 'index'), this.#calls.size)
    const isFirst = !this.#calls.has(index)
    const ownId = textOr(pick(part, 'id'), '')
    const id = ownId === '' && isFirst ? `call_${newUuid()}` : ownId
    const name = textOr(pick(part, 'function', 'name') ?? pick(part, 'custom', 'name'), '')
    const given = pick(part, 'function', 'arguments') ?? pick(part, 'custom', 'input')
    const piece = textOr(given, '')
    const length = (this.#calls.get(index) ?? 0) + piece.length
    this.#calls.set(index, length)
    if (this.#calls.size > maxCalls || length > maxArgumentChars) {
      throw inferenceError('EngineContractError', 'the server sent tool calls without an end')
    }
    return {
      index,
      ...(id === '' ? {} : { id }),
      ...(name === '' ? {} : { name }),
      arguments: piece,
      ...(isFields(part) && !isPlainCall(part) ? { wire: part } : {}),
    }
  }
}

const plainCall = new Set(['index', 'id', 'type', 'function'])
const plainFunction = new Set(['name', 'arguments'])

/** Whether a part of a call has only the fields of the public API. */
function isPlainCall(part: WireFields): boolean {
  const { function: called, type } = part
  if (isFields(called) && Object.keys(called).some((name) => !plainFunction.has(name))) return false
  if (typeof type === 'string' && type !== 'function') return false
  return Object.keys(part).every((name) => plainCall.has(name))
}

/** The text of a content, which is a string or a list of parts. */
function textIn(content: unknown): string {
  if (!Array.isArray(content)) return textOr(content, '')
  return content.map((part) => textOr(pick(part, 'text'), '')).join('')
}

/** Reads the format of chats (a list of objects) or of text completions (parallel lists). */
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

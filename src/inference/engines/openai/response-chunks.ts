/** Converts the chunks of a streamed response to deltas, a finish reason and the usage. */

import { newUuid } from '../../../foundation/ids.ts'
import type {
  FinishReason,
  TokenChance,
  TokenLogprob,
  Usage,
} from '../../generation/inference-engine.ts'
import { isPlainObject } from '../../../foundation/json-value.ts'
import type {
  AnswerFields,
  WireToolCallPiece,
  PassThroughDelta,
  WireFields,
} from '../../generation/pass-through.ts'
import { inferenceError } from '../../generation/inference-errors.ts'
import { countOr, listOf, parseJson, getPath, textOr } from './upstream-link.ts'
import { toStreamError } from './upstream-refusal.ts'

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
const failureReasons: ReadonlySet<string> = new Set(['abort', 'error'])

const maxReasonChars = 80
const maxArgumentChars = 1 << 20
const maxCalls = 128

/** The fields that tutti reads or writes itself. All other fields are forwarded. */
const knownFields = {
  body: new Set(['id', 'object', 'created', 'model', 'choices', 'usage', 'error']),
  choice: new Set(['index', 'delta', 'message', 'text', 'finish_reason']),
  message: new Set(['role', 'content', 'tool_calls']),
}

type FieldLevel = keyof typeof knownFields

/**
 * Reads the chunks of a streamed response. Throws the error of an error chunk, or
 * `EngineContractError` for data that is not a chunk.
 */
export class ResponseChunks {
  readonly #callLengths = new Map<number, number>()
  #extraFields: { [L in FieldLevel]?: Record<string, unknown> } = {}
  /** Scalar body fields that were forwarded. Most servers repeat them in every chunk. */
  readonly #sentScalars = new Map<string, unknown>()
  /** The server's finish reason; `null` if it is a standard reason. */
  #nonStandardReason: string | null = null
  /** `null` until a chunk reports it. A response that ends without it is incomplete. */
  finishReason: FinishReason | null = null
  usage: Usage | null = null

  read(data: string): PassThroughDelta | null {
    const chunk = parseJson(data)
    if (!isPlainObject(chunk)) {
      throw inferenceError('EngineContractError', 'the server sent a chunk that is not JSON')
    }
    const failure = getPath(chunk, 'error')
    if (failure !== undefined && failure !== null) throw toStreamError(chunk)
    this.#readUsage(getPath(chunk, 'usage'))
    this.#collectExtraFields('body', chunk)
    const choice = getPath(chunk, 'choices', 0)
    if (!isPlainObject(choice)) return null
    this.#collectExtraFields('choice', choice)
    this.#readFinishReason(choice['finish_reason'])
    const message = choice['delta'] ?? choice['message']
    return this.#toDelta(choice, isPlainObject(message) ? message : {})
  }

  /** Returns the fields that no delta contained. Call this after the last `read`. */
  takeRest(): AnswerFields | undefined {
    if (this.#nonStandardReason !== null) {
      this.#extraFields.choice = {
        ...this.#extraFields.choice,
        finish_reason: this.#nonStandardReason,
      }
    }
    return this.#takeExtraFields()
  }

  #takeExtraFields(): AnswerFields | undefined {
    const rest = this.#extraFields
    this.#extraFields = {}
    return Object.keys(rest).length === 0 ? undefined : rest
  }

  #toDelta(choice: WireFields, message: WireFields): PassThroughDelta | null {
    const hasMore = this.#collectExtraFields('message', message)
    const toolCallPieces = listOf(message['tool_calls']).map((part) => this.#readCall(part))
    const { content } = message
    // The list of parts is also forwarded, because not all parts are text.
    if (Array.isArray(content)) (this.#extraFields.message ??= {})['content'] = content
    const text = contentText(content ?? choice['text'])
    const logprobs = toLogprobs(choice['logprobs'])
    const isEmpty = text === '' && logprobs.length === 0 && toolCallPieces.length === 0
    if (isEmpty && !hasMore && !Array.isArray(content)) return null
    const fields = this.#takeExtraFields()
    return {
      text,
      ...(logprobs.length === 0 ? {} : { logprobs }),
      ...(toolCallPieces.length === 0 ? {} : { toolCallPieces }),
      ...(fields === undefined ? {} : { fields }),
    }
  }

  /** Collects fields for the next delta or for `takeRest`. Returns whether there were any. */
  #collectExtraFields(level: FieldLevel, fields: WireFields): boolean {
    let hasAny = false
    for (const [name, value] of Object.entries(fields)) {
      if (knownFields[level].has(name) || value === null || value === '') continue
      if (level === 'body' && typeof value !== 'object') {
        if (this.#sentScalars.get(name) === value) continue
        this.#sentScalars.set(name, value)
      }
      ;(this.#extraFields[level] ??= {})[name] = value
      hasAny = true
    }
    return hasAny
  }

  #readUsage(usage: unknown): void {
    if (!isPlainObject(usage)) return
    const { prompt_tokens: prompt, completion_tokens: completion, total_tokens: _, ...rest } = usage
    const promptTokens = countOr(prompt, null)
    const completionTokens = countOr(completion, null)
    if (promptTokens === null || completionTokens === null) return
    const details = Object.entries(rest).filter(([, value]) => value !== null)
    this.usage = {
      promptTokens,
      completionTokens,
      ...(details.length === 0 ? {} : { details: Object.fromEntries(details) }),
    }
  }

  #readFinishReason(reason: unknown): void {
    if (typeof reason !== 'string') return
    if (failureReasons.has(reason)) {
      const message = `the server behind this one ended the answer with '${reason}'`
      throw inferenceError('upstream_error', message)
    }
    const known = Object.hasOwn(finishReasons, reason) ? finishReasons[reason] : undefined
    this.#nonStandardReason = known === undefined ? reason.slice(0, maxReasonChars) : null
    this.finishReason = known ?? (reason === 'function_call' ? 'tool_calls' : 'stop')
  }

  /** Reads a part of a tool call. Servers that send complete calls may omit the index. */
  #readCall(part: unknown): WireToolCallPiece {
    const index = countOr(getPath(part, 'index'), this.#callLengths.size)
    const isFirst = !this.#callLengths.has(index)
    const ownId = textOr(getPath(part, 'id'), '')
    const id = ownId === '' && isFirst ? `call_${newUuid()}` : ownId
    const name = textOr(getPath(part, 'function', 'name') ?? getPath(part, 'custom', 'name'), '')
    const given = getPath(part, 'function', 'arguments') ?? getPath(part, 'custom', 'input')
    const piece = textOr(given, '')
    const length = (this.#callLengths.get(index) ?? 0) + piece.length
    this.#callLengths.set(index, length)
    if (this.#callLengths.size > maxCalls || length > maxArgumentChars) {
      throw inferenceError('EngineContractError', 'the server sent tool calls without an end')
    }
    return {
      index,
      ...(id === '' ? {} : { id }),
      ...(name === '' ? {} : { name }),
      arguments: piece,
      ...(isPlainObject(part) && !isStandardCall(part) ? { wire: part } : {}),
    }
  }
}

const standardCallKeys = new Set(['index', 'id', 'type', 'function'])
const standardFunctionKeys = new Set(['name', 'arguments'])

function isStandardCall(part: WireFields): boolean {
  const { function: called, type } = part
  if (isPlainObject(called) && Object.keys(called).some((name) => !standardFunctionKeys.has(name)))
    return false
  if (typeof type === 'string' && type !== 'function') return false
  return Object.keys(part).every((name) => standardCallKeys.has(name))
}

function contentText(content: unknown): string {
  if (!Array.isArray(content)) return textOr(content, '')
  return content.map((part) => textOr(getPath(part, 'text'), '')).join('')
}

/** Chat completions list log probabilities as objects, text completions as parallel lists. */
function toLogprobs(logprobs: unknown): readonly TokenLogprob[] {
  if (typeof logprobs !== 'object' || logprobs === null) return []
  const content = getPath(logprobs, 'content')
  if (Array.isArray(content)) {
    return content.flatMap((entry: unknown) => {
      const top = listOf(getPath(entry, 'top_logprobs')).flatMap(toTokenChances)
      return toTokenChances(entry).map((pair) => ({ ...pair, top }))
    })
  }
  return listOf(getPath(logprobs, 'tokens')).flatMap((token, at) => {
    const top = getPath(logprobs, 'top_logprobs', at) ?? {}
    const pairs = Object.entries(top).flatMap(([one, value]) =>
      toTokenChances({ token: one, logprob: value }),
    )
    const chosen = toTokenChances({ token, logprob: getPath(logprobs, 'token_logprobs', at) })
    return chosen.map((pair) => ({ ...pair, top: pairs }))
  })
}

function toTokenChances(entry: unknown): TokenChance[] {
  const [token, logprob] = [getPath(entry, 'token'), getPath(entry, 'logprob')]
  if (typeof token !== 'string' || typeof logprob !== 'number') return []
  const bytes = getPath(entry, 'bytes')
  return [isBytes(bytes) ? { token, logprob, bytes } : { token, logprob }]
}

const isBytes = (value: unknown): value is readonly number[] =>
  Array.isArray(value) && value.every((byte) => (countOr(byte, null) ?? 256) < 256)

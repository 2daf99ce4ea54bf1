/** The surface `POST /v1/chat/completions`. */

import type { FinishReason, TokenChance, TokenLogprob } from '../../generation/inference-engine.ts'
import { isPlainObject } from '../../../foundation/json-value.ts'
import type {
  AnswerFields,
  WireToolCall,
  WireToolCallPiece,
  PassThroughDelta,
} from '../../generation/pass-through.ts'
import type { GenerationResult } from '../../generation/text-generator.ts'
import type { StreamWriter } from '../replies/stream-writer.ts'
import {
  ChunkStream,
  createChunkStream,
  createReplyHead,
  eventStreamType,
  mergeBodyFields,
  type ReplyHead,
  toChunkFailure,
  toErrorFields,
  toUsageFields,
} from './chunk-stream.ts'
import type { ReplyFormat, Surface } from './surface.ts'

export const chatCompletions: Surface = {
  path: '/v1/chat/completions',
  document: {
    summary: 'Answers a conversation.',
    body: 'ChatCompletionRequest',
    ok: 'ChatCompletion',
    streamType: eventStreamType,
  },
  bodyLimit: 'chatBodyBytes',
  promptField: 'messages',
  read(body, context) {
    const request = context.requests.readChat(body)
    const hasLogprobs = typeof request.sampling.logprobs === 'number'
    const head = createReplyHead('chatcmpl', request, context)
    return { request, format: createChatFormat(head, hasLogprobs) }
  },
  toErrorBody: toErrorFields,
  toFailure: (_, body) => toChunkFailure(body),
}

const createChatFormat = (head: ReplyHead, hasLogprobs: boolean): ReplyFormat => ({
  streamType: eventStreamType,
  toBody: (results, usage) => ({
    id: head.id,
    object: 'chat.completion',
    created: head.created,
    model: head.model,
    choices: results.map((result, index) => ({
      index,
      message: toMessage(result),
      logprobs: hasLogprobs ? toChatLogprobs(result.logprobs) : null,
      finish_reason: result.finishReason,
      ...result.fields?.choice,
    })),
    usage: toUsageFields(usage),
    system_fingerprint: null,
    ...mergeBodyFields(results),
  }),
  createStream: (writer) =>
    createChunkStream(writer, head, (index) => new ChatStream(index, writer, head, hasLogprobs)),
})

class ChatStream extends ChunkStream {
  readonly #hasLogprobs: boolean

  constructor(index: number, writer: StreamWriter, head: ReplyHead, hasLogprobs: boolean) {
    super(index, writer, 'chat.completion.chunk', head)
    this.#hasLogprobs = hasLogprobs
  }

  protected toOpeningChoice(): object {
    return this.#createChoice({ role: 'assistant', content: '', refusal: null })
  }

  protected toChoice(delta: PassThroughDelta): object {
    const { text, logprobs, fields } = delta
    const calls = this.#toWireCalls(delta)
    // Fast path: most deltas contain only text, and there are very many of them.
    if (calls === undefined && fields === undefined)
      return this.#createChoice({ content: text }, logprobs)
    const isAlone = calls === undefined && fields?.message === undefined
    const message = {
      ...(text === '' && !isAlone ? {} : { content: text }),
      ...(calls === undefined ? {} : { tool_calls: calls }),
      ...fields?.message,
    }
    return { ...this.#createChoice(message, logprobs), ...fields?.choice }
  }

  protected toClosingChoice(finishReason: FinishReason, fields?: AnswerFields): object {
    const delta = { ...fields?.message }
    return { ...this.#createChoice(delta), finish_reason: finishReason, ...fields?.choice }
  }

  #createChoice(delta: object, logprobs?: readonly TokenLogprob[]): object {
    return {
      index: this.index,
      delta,
      logprobs: this.#hasLogprobs && logprobs !== undefined ? toChatLogprobs(logprobs) : null,
      finish_reason: null,
    }
  }

  #toWireCalls(delta: PassThroughDelta): readonly object[] | undefined {
    const { toolCalls = [], toolCallPieces } = delta
    if (toolCallPieces !== undefined) return toolCallPieces.map(toWireCallPiece)
    if (toolCalls.length === 0) return undefined
    const first = this.countSentCalls(toolCalls.length)
    return toolCalls.map((call, at) => toWireCall(call, first + at))
  }
}

function toMessage(result: GenerationResult): object {
  const { text, toolCalls, fields } = result
  if (toolCalls.length === 0) {
    return { role: 'assistant', content: text, refusal: null, ...fields?.message }
  }
  return {
    role: 'assistant',
    content: text === '' ? null : text,
    refusal: null,
    tool_calls: toolCalls.map((call) => toWireCall(call)),
    ...fields?.message,
  }
}

/** Converts a complete tool call to the wire format. Only calls in a stream have an index. */
function toWireCall(
  { id, name, arguments: argumentText, wire = {} }: WireToolCall,
  index?: number,
): object {
  const head = index === undefined ? { ...wire, id } : { index, ...wire, id }
  const custom = wire['custom']
  if (isPlainObject(custom)) return { ...head, custom: { ...custom, input: argumentText } }
  const described = isPlainObject(wire['function']) ? wire['function'] : {}
  return { ...head, type: 'function', function: { ...described, name, arguments: argumentText } }
}

/** Only the first piece of a call has an id and a name. */
function toWireCallPiece(piece: WireToolCallPiece): object {
  const { index, id, name, arguments: argumentText, wire } = piece
  if (wire !== undefined) return { index, ...wire, ...(id === undefined ? {} : { id }) }
  const head = id === undefined ? { index } : { index, id, type: 'function' }
  return { ...head, function: { ...(name === undefined ? {} : { name }), arguments: argumentText } }
}

const toChatLogprobs = (logprobs: readonly TokenLogprob[]): object => ({
  content: logprobs.map((chosen) => ({
    ...toTokenFields(chosen),
    top_logprobs: chosen.top.map(toTokenFields),
  })),
  refusal: null,
})

const toTokenFields = ({ token, logprob, bytes }: TokenChance): object => ({
  token,
  logprob,
  bytes: bytes ?? encodeToken(token),
})

/** Returns the bytes; `null` for a part of a character (U+FFFD, or half a surrogate pair). */
const encodeToken = (token: string): number[] | null =>
  token.includes('\uFFFD') || !token.isWellFormed() ? null : [...Buffer.from(token)]

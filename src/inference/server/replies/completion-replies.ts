/** The formats of `POST /v1/chat/completions` and `POST /v1/completions`. */

import { isUtf8 } from 'node:buffer'
import type {
  FinishReason,
  PromptLogprob,
  TokenChance,
  TokenLogprob,
} from '../../generation/inference-engine.ts'
import { isPlainObject } from '../../../foundation/json-value.ts'
import type {
  AnswerFields,
  WireToolCall,
  WireToolCallPiece,
  PassThroughDelta,
} from '../../generation/pass-through.ts'
import type { GenerationResult } from '../../generation/text-generator.ts'
import {
  ChoiceStream,
  type ReplyFormat,
  type ReplyHead,
  type SseWriter,
  toUsageFields,
} from './choice-stream.ts'

export const createChatFormat = (head: ReplyHead, hasLogprobs: boolean): ReplyFormat => ({
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
  createStream: (index, writer) => new ChatStream(index, writer, head, hasLogprobs),
})

class ChatStream extends ChoiceStream {
  readonly #hasLogprobs: boolean

  constructor(index: number, writer: SseWriter, head: ReplyHead, hasLogprobs: boolean) {
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

function mergeBodyFields(results: readonly GenerationResult[]): object {
  const all = results.flatMap(({ fields }) => fields?.body ?? [])
  return all.length === 0 ? {} : Object.assign({}, ...all)
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

/** Formats a token that is not valid text as its bytes, as the public API does. */
const formatToken = ({ token, bytes }: Omit<TokenChance, 'logprob'>): string =>
  bytes === undefined ? token : `bytes:${bytes.map(toEscape).join('')}`

const toEscape = (byte: number): string => `\\x${byte.toString(16).padStart(2, '0')}`

/** If several tokens have the same text, all but the first are named by their bytes. */
function toTopLogprobs(top: readonly TokenChance[]): Record<string, number> {
  const fields: Record<string, number> = {}
  for (const chance of top) {
    const name = formatToken(chance)
    const bytes = [...Buffer.from(chance.token)]
    const other = formatToken({ token: chance.token, bytes })
    fields[Object.hasOwn(fields, name) ? other : name] = chance.logprob
  }
  return fields
}

interface CompletionReplyOptions {
  readonly hasLogprobs: boolean
  /** Returns the prompt of a choice if the answer must begin with the prompt; otherwise `''`. */
  readonly getEcho: (index: number) => string
}

export const createCompletionFormat = (
  head: ReplyHead,
  options: CompletionReplyOptions,
): ReplyFormat => ({
  toBody(results, usage) {
    const { id, created, model } = head
    const choices = results.map((result, index) => {
      const { prompt } = result
      const echo = prompt?.text ?? options.getEcho(index)
      const text = `${echo}${result.text}`
      const logprobs =
        prompt === undefined
          ? toTextLogprobs(result.logprobs, result.text, countCharacters(echo))
          : toTextLogprobs([...prompt.logprobs, ...result.logprobs], text, 0)
      return {
        text,
        index,
        logprobs: options.hasLogprobs ? logprobs : null,
        finish_reason: result.finishReason,
        ...result.fields?.choice,
      }
    })
    const object = 'text_completion'
    const reply = { id, object, created, model, choices }
    return { ...reply, usage: toUsageFields(usage), ...mergeBodyFields(results) }
  },
  createStream: (index, writer) => new CompletionStream(index, writer, head, options),
})

class CompletionStream extends ChoiceStream {
  readonly #options: CompletionReplyOptions
  /** The number of characters sent, for the text offsets of logprobs. */
  #sentCharacters = 0

  constructor(index: number, writer: SseWriter, head: ReplyHead, options: CompletionReplyOptions) {
    super(index, writer, 'text_completion', head)
    this.#options = options
  }

  protected toOpeningChoice(first?: PassThroughDelta): object | undefined {
    // If the engine reports the prompt, the first delta already contains it.
    if (first?.prompt !== undefined) return undefined
    const text = this.#options.getEcho(this.index)
    return text === '' ? undefined : this.toChoice({ text })
  }

  protected toChoice(delta: PassThroughDelta): object {
    const { prompt, fields } = delta
    const text = `${prompt?.text ?? ''}${delta.text}`
    const { hasLogprobs } = this.#options
    const logprobs = hasLogprobs ? [...(prompt?.logprobs ?? []), ...(delta.logprobs ?? [])] : []
    const start = this.#sentCharacters
    if (hasLogprobs) this.#sentCharacters += countCharacters(text)
    return {
      text,
      index: this.index,
      logprobs: logprobs.length === 0 ? null : toTextLogprobs(logprobs, text, start),
      finish_reason: null,
      ...fields?.choice,
    }
  }

  protected toClosingChoice(finishReason: FinishReason, fields?: AnswerFields): object {
    const end = { text: '', index: this.index, logprobs: null, finish_reason: finishReason }
    return { ...end, ...fields?.choice }
  }
}

const toTextLogprobs = (
  logprobs: readonly PromptLogprob[],
  text: string,
  start: number,
): object => ({
  tokens: logprobs.map(formatToken),
  token_logprobs: logprobs.map(({ logprob }) => logprob),
  top_logprobs: logprobs.map(({ logprob, top }) => (logprob === null ? null : toTopLogprobs(top))),
  text_offset: computeOffsets(text, logprobs, start),
})

const space = 0x20
const replacementBytes = Buffer.from('\uFFFD')

/** Offsets count code points. Tokens that are parts of one character have the same offset. */
export function computeOffsets(
  text: string,
  tokens: readonly Pick<TokenChance, 'token' | 'bytes'>[],
  start: number,
): number[] {
  const bytes = Buffer.from(text)
  let at = 0
  let characters = start
  return tokens.map(({ token, bytes: given }) => {
    const offset = isContinuationByte(bytes[at]) ? characters - 1 : characters
    const end = at + findTokenLength(bytes, at, Buffer.from(given ?? token))
    for (; at < end; at++) if (!isContinuationByte(bytes[at])) characters++
    return offset
  })
}

const countCharacters = (text: string): number =>
  Buffer.from(text).reduce((count, byte) => count + Number(!isContinuationByte(byte)), 0)

/** Returns the length in bytes of the token at a position; 0 if the token is not there. */
function findTokenLength(text: Buffer, at: number, token: Buffer): number {
  if (startsWith(text, at, token)) return token.length
  // The text may omit the leading space of its first token.
  const isFirst = at === 0 && token[0] === space
  if (isFirst && startsWith(text, at, token.subarray(1))) return token.length - 1
  // Bytes that form no character appear in the text as U+FFFD.
  return token.length > 0 && !isUtf8(token) && startsWith(text, at, replacementBytes)
    ? replacementBytes.length
    : 0
}

const startsWith = (text: Buffer, at: number, part: Buffer): boolean =>
  text.subarray(at, at + part.length).equals(part)

const isContinuationByte = (byte = 0): boolean => (byte & 0xc0) === 0x80

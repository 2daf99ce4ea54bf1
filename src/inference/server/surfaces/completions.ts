/** The surface `POST /v1/completions`. */

import { isUtf8 } from 'node:buffer'
import type { FinishReason, PromptLogprob, TokenChance } from '../../generation/inference-engine.ts'
import type { AnswerFields, PassThroughDelta } from '../../generation/pass-through.ts'
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

export const completions: Surface = {
  path: '/v1/completions',
  document: {
    summary: 'Continues texts.',
    body: 'CompletionRequest',
    ok: 'Completion',
    streamType: eventStreamType,
  },
  bodyLimit: 'bodyBytes',
  promptField: 'prompt',
  read(body, context) {
    const request = context.requests.readCompletion(body)
    const { prompts, isEcho, hasLogprobs, n } = request
    const format = createCompletionFormat(createReplyHead('cmpl', request, context), {
      hasLogprobs,
      getEcho: (index) => (isEcho ? (prompts[Math.floor(index / n)] ?? '') : ''),
    })
    return { request, format }
  },
  toErrorBody: toErrorFields,
  toFailure: (_, body) => toChunkFailure(body),
}

/** Formats a token that is not valid text as its bytes, as OpenAI's API does. */
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

const createCompletionFormat = (head: ReplyHead, options: CompletionReplyOptions): ReplyFormat => ({
  streamType: eventStreamType,
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
  createStream: (writer) =>
    createChunkStream(writer, head, (index) => new CompletionStream(index, writer, head, options)),
})

class CompletionStream extends ChunkStream {
  readonly #options: CompletionReplyOptions
  /** The number of characters sent, for the text offsets of logprobs. */
  #sentCharacters = 0

  constructor(
    index: number,
    writer: StreamWriter,
    head: ReplyHead,
    options: CompletionReplyOptions,
  ) {
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

/** The formats of `POST /v1/chat/completions` and `POST /v1/completions`. */

import type {
  FinishReason,
  PromptLogprob,
  TokenChance,
  TokenLogprob,
} from '../../generation/inference-engine.ts'
import {
  type AnswerFields,
  isFields,
  type PassedCall,
  type PassedCallPiece,
  type PassedDelta,
} from '../../generation/pass-through.ts'
import type { GenerationResult } from '../../generation/text-generator.ts'
import {
  ChoiceStream,
  type ReplyFormat,
  type ReplyHead,
  type SseWriter,
  usageFields,
} from './choice-stream.ts'
import { countCharacters, offsetsIn } from './text-offsets.ts'

/** The format of a chat response. */
export const chatReply = (head: ReplyHead, hasLogprobs: boolean): ReplyFormat => ({
  whole: (results, usage) => ({
    id: head.id,
    object: 'chat.completion',
    created: head.created,
    model: head.model,
    choices: results.map((result, index) => ({
      index,
      message: messageOf(result),
      logprobs: hasLogprobs ? logprobFields(result.logprobs) : null,
      finish_reason: result.finishReason,
      ...result.fields?.choice,
    })),
    usage: usageFields(usage),
    system_fingerprint: null,
    ...bodyFields(results),
  }),
  stream: (index, writer) => new ChatStream(index, writer, head, hasLogprobs),
})

class ChatStream extends ChoiceStream {
  readonly #hasLogprobs: boolean

  constructor(index: number, writer: SseWriter, head: ReplyHead, hasLogprobs: boolean) {
    super(index, writer, 'chat.completion.chunk', head)
    this.#hasLogprobs = hasLogprobs
  }

  protected opening(): object {
    return this.#choice({ role: 'assistant', content: '', refusal: null })
  }

  protected choiceOf(delta: PassedDelta): object {
    const { text, logprobs, fields } = delta
    const calls = this.#callsOf(delta)
    // Fast path: most deltas contain only text, and there are very many of them.
    if (calls === undefined && fields === undefined)
      return this.#choice({ content: text }, logprobs)
    const isAlone = calls === undefined && fields?.message === undefined
    const message = {
      ...(text === '' && !isAlone ? {} : { content: text }),
      ...(calls === undefined ? {} : { tool_calls: calls }),
      ...fields?.message,
    }
    return { ...this.#choice(message, logprobs), ...fields?.choice }
  }

  protected closing(finishReason: FinishReason, fields?: AnswerFields): object {
    const { index } = this
    const message = { ...fields?.message }
    const end = { index, delta: message, logprobs: null, finish_reason: finishReason }
    return { ...end, ...fields?.choice }
  }

  #choice(delta: object, logprobs?: readonly TokenLogprob[]): object {
    return {
      index: this.index,
      delta,
      logprobs: this.#hasLogprobs && logprobs !== undefined ? logprobFields(logprobs) : null,
      finish_reason: null,
    }
  }

  #callsOf({ toolCalls = [], toolCallPieces }: PassedDelta): readonly object[] | undefined {
    if (toolCallPieces !== undefined) return toolCallPieces.map(pieceOf)
    if (toolCalls.length === 0) return undefined
    const first = this.sentCalls(toolCalls.length)
    return toolCalls.map((call, at) => callOf(call, first + at))
  }
}

function messageOf(result: GenerationResult): object {
  const { text, toolCalls, fields } = result
  if (toolCalls.length === 0) {
    return { role: 'assistant', content: text, refusal: null, ...fields?.message }
  }
  return {
    role: 'assistant',
    content: text === '' ? null : text,
    refusal: null,
    tool_calls: toolCalls.map((call) => callOf(call)),
    ...fields?.message,
  }
}

/** Additional fields of the upstream responses from which the choices come. */
function bodyFields(results: readonly GenerationResult[]): object {
  const all = results.flatMap(({ fields }) => fields?.body ?? [])
  return all.length === 0 ? {} : Object.assign({}, ...all)
}

/** The wire format of a complete tool call. Only calls in a stream have an index. */
function callOf({ id, name, arguments: given, wire = {} }: PassedCall, index?: number): object {
  const head = index === undefined ? { ...wire, id } : { index, ...wire, id }
  const custom = wire['custom']
  if (isFields(custom)) return { ...head, custom: { ...custom, input: given } }
  const described = isFields(wire['function']) ? wire['function'] : {}
  return { ...head, type: 'function', function: { ...described, name, arguments: given } }
}

/** The wire format of a piece of a tool call. Only the first piece has an id and a name. */
function pieceOf({ index, id, name, arguments: given, wire }: PassedCallPiece): object {
  if (wire !== undefined) return { index, ...wire, ...(id === undefined ? {} : { id }) }
  const head = id === undefined ? { index } : { index, id, type: 'function' }
  return { ...head, function: { ...(name === undefined ? {} : { name }), arguments: given } }
}

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

/** The bytes of a token; `null` if it is part of a character (U+FFFD, or half a surrogate pair). */
const bytesOf = (token: string): number[] | null =>
  token.includes('\uFFFD') || !token.isWellFormed() ? null : [...Buffer.from(token)]

/** The token, or its bytes if it is not valid text, as in the public API. */
const nameOf = ({ token, bytes }: Omit<TokenChance, 'logprob'>): string =>
  bytes === undefined ? token : `bytes:${bytes.map(toEscape).join('')}`

const toEscape = (byte: number): string => `\\x${byte.toString(16).padStart(2, '0')}`

/**
 * The logprob of each token, by name. If tokens have the same text, all but the first are named by
 * their bytes.
 */
function topFields(top: readonly TokenChance[]): Record<string, number> {
  const fields: Record<string, number> = {}
  for (const chance of top) {
    const name = nameOf(chance)
    const bytes = [...Buffer.from(chance.token)]
    const other = nameOf({ token: chance.token, bytes })
    fields[Object.hasOwn(fields, name) ? other : name] = chance.logprob
  }
  return fields
}

interface CompletionReplyOptions {
  readonly hasLogprobs: boolean
  /** The prompt of a choice if the answer must begin with the prompt; otherwise `''`. */
  readonly echoOf: (index: number) => string
}

/** The format of a text completion. */
export const completionReply = (head: ReplyHead, options: CompletionReplyOptions): ReplyFormat => ({
  whole(results, usage) {
    const { id, created, model } = head
    const choices = results.map((result, index) => {
      const { prompt } = result
      const echo = prompt?.text ?? options.echoOf(index)
      const text = `${echo}${result.text}`
      const logprobs =
        prompt === undefined
          ? textLogprobs(result.logprobs, result.text, countCharacters(echo))
          : textLogprobs([...prompt.logprobs, ...result.logprobs], text, 0)
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
    return { ...reply, usage: usageFields(usage), ...bodyFields(results) }
  },
  stream: (index, writer) => new CompletionStream(index, writer, head, options),
})

class CompletionStream extends ChoiceStream {
  readonly #options: CompletionReplyOptions
  /** The number of characters sent, for the text offsets of logprobs. */
  #length = 0

  constructor(index: number, writer: SseWriter, head: ReplyHead, options: CompletionReplyOptions) {
    super(index, writer, 'text_completion', head)
    this.#options = options
  }

  protected opening(first?: PassedDelta): object | undefined {
    // The first delta already contains the prompt, as the engine reports it.
    if (first?.prompt !== undefined) return undefined
    const text = this.#options.echoOf(this.index)
    return text === '' ? undefined : this.choiceOf({ text })
  }

  protected choiceOf(delta: PassedDelta): object {
    const { prompt, fields } = delta
    const text = `${prompt?.text ?? ''}${delta.text}`
    const { hasLogprobs } = this.#options
    const logprobs = hasLogprobs ? [...(prompt?.logprobs ?? []), ...(delta.logprobs ?? [])] : []
    const start = this.#length
    if (hasLogprobs) this.#length += countCharacters(text)
    return {
      text,
      index: this.index,
      logprobs: logprobs.length === 0 ? null : textLogprobs(logprobs, text, start),
      finish_reason: null,
      ...fields?.choice,
    }
  }

  protected closing(finishReason: FinishReason, fields?: AnswerFields): object {
    const end = { text: '', index: this.index, logprobs: null, finish_reason: finishReason }
    return { ...end, ...fields?.choice }
  }
}

const textLogprobs = (logprobs: readonly PromptLogprob[], text: string, start: number): object => ({
  tokens: logprobs.map(nameOf),
  token_logprobs: logprobs.map(({ logprob }) => logprob),
  top_logprobs: logprobs.map(({ logprob, top }) => (logprob === null ? null : topFields(top))),
  text_offset: offsetsIn(text, logprobs, start),
})

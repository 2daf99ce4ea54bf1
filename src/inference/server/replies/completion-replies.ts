/** Responses of `POST /v1/chat/completions` and `POST /v1/completions`. */

import { isFields } from '../../generation/fields/answer-fields.ts'
import type {
  AnswerFields,
  FinishReason,
  GenerationDelta,
  PromptLogprob,
  TokenChance,
  TokenLogprob,
  ToolCall,
  ToolCallPiece,
  Usage,
} from '../../generation/inference-engine.ts'
import type { GenerationResult } from '../../generation/text-generator.ts'
import { countCharacters, offsetsIn } from './text-offsets.ts'
import { ChunkWriter, type ReplyHead, type ReplyShape, usageFields } from './reply-shape.ts'

/** The format of one chat response. Counts the tool calls of each choice to number them. */
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
        ...result.fields?.choice,
      })),
      usage: usageFields(usage),
      system_fingerprint: null,
      ...bodyFields(results),
    }
  }

  opening(index: number, first?: GenerationDelta): string {
    this.#chunks.learn(first?.fields?.body)
    return this.#chunk(index, { role: 'assistant', content: '', refusal: null })
  }

  delta(index: number, delta: GenerationDelta): string {
    const { text, logprobs, fields } = delta
    const calls = this.#callsOf(index, delta)
    // A fast path: most deltas are text alone, and there are very many.
    if (calls === undefined && fields === undefined) {
      return this.#chunk(index, { content: text }, logprobs)
    }
    const isAlone = calls === undefined && fields?.message === undefined
    return this.#chunk(
      index,
      {
        ...(text === '' && !isAlone ? {} : { content: text }),
        ...(calls === undefined ? {} : { tool_calls: calls }),
        ...fields?.message,
      },
      logprobs,
      fields,
    )
  }

  #callsOf(index: number, delta: GenerationDelta): readonly object[] | undefined {
    const { toolCalls = [], toolCallPieces } = delta
    if (toolCallPieces !== undefined) return toolCallPieces.map(pieceOf)
    if (toolCalls.length === 0) return undefined
    const first = this.#toolCalls[index] ?? 0
    this.#toolCalls[index] = first + toolCalls.length
    return toolCalls.map((call, at) => callOf(call, first + at))
  }

  closing(index: number, finishReason: FinishReason, fields?: AnswerFields): string {
    return this.#chunks.choice(
      {
        index,
        delta: { ...fields?.message },
        logprobs: null,
        finish_reason: finishReason,
        ...fields?.choice,
      },
      fields?.body,
    )
  }

  usage(usage: Usage): string {
    return this.#chunks.usage(usage)
  }

  #chunk(
    index: number,
    delta: object,
    logprobs?: readonly TokenLogprob[],
    fields?: AnswerFields,
  ): string {
    const choice = {
      index,
      delta,
      logprobs: this.#hasLogprobs && logprobs !== undefined ? logprobFields(logprobs) : null,
      finish_reason: null,
    }
    if (fields === undefined) return this.#chunks.choice(choice)
    return this.#chunks.choice({ ...choice, ...fields.choice }, fields.body)
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

/** Additional fields of the upstream responses that the choices come from. */
function bodyFields(results: readonly GenerationResult[]): object {
  const all = results.flatMap(({ fields }) => fields?.body ?? [])
  return all.length === 0 ? {} : Object.assign({}, ...all)
}

/** A complete call; calls in a stream have an index. */
function callOf({ id, name, arguments: given, wire = {} }: ToolCall, index?: number): object {
  const head = index === undefined ? { ...wire, id } : { index, ...wire, id }
  const custom = wire['custom']
  if (isFields(custom)) return { ...head, custom: { ...custom, input: given } }
  const described = isFields(wire['function']) ? wire['function'] : {}
  return { ...head, type: 'function', function: { ...described, name, arguments: given } }
}

/** Only the first piece of a call has an id and a name. */
function pieceOf({ index, id, name, arguments: given, wire }: ToolCallPiece): object {
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

/** `null` for a part of a character, which arrives as U+FFFD or as half of a surrogate pair. */
const bytesOf = (token: string): number[] | null =>
  token.includes('\uFFFD') || !token.isWellFormed() ? null : [...Buffer.from(token)]

/** A token that is not valid text is named by its bytes, as in the public API. */
const nameOf = ({ token, bytes }: Omit<TokenChance, 'logprob'>): string =>
  bytes === undefined ? token : `bytes:${bytes.map(toEscape).join('')}`

const toEscape = (byte: number): string => `\\x${byte.toString(16).padStart(2, '0')}`

/**
 * Logprobs by the name of the token. Of tokens with the same text, all but the first are named by
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

export interface CompletionReplyOptions {
  readonly hasLogprobs: boolean
  /** The prompt of a choice if the answer must begin with it; otherwise empty. */
  readonly echoOf: (index: number) => string
}

/** The format of one text completion. */
export class CompletionReply implements ReplyShape {
  readonly #head: ReplyHead
  readonly #options: CompletionReplyOptions
  #writer: ChunkWriter | undefined
  /** The number of characters sent for each choice, for the text offsets of its logprobs. */
  readonly #lengths: number[] = []

  constructor(head: ReplyHead, options: CompletionReplyOptions) {
    this.#head = head
    this.#options = options
  }

  get #chunks(): ChunkWriter {
    return (this.#writer ??= new ChunkWriter('text_completion', this.#head))
  }

  whole(results: readonly GenerationResult[], usage: Usage): object {
    const { id, created, model } = this.#head
    const choices = results.map((result, index) => {
      const { prompt } = result
      const echo = prompt?.text ?? this.#options.echoOf(index)
      const text = `${echo}${result.text}`
      return {
        text,
        index,
        logprobs:
          prompt === undefined
            ? this.#logprobs(result.logprobs, result.text, countCharacters(echo))
            : this.#logprobs([...prompt.logprobs, ...result.logprobs], text, 0),
        finish_reason: result.finishReason,
        ...result.fields?.choice,
      }
    })
    const object = 'text_completion'
    const head = { id, object, created, model, choices }
    return { ...head, usage: usageFields(usage), ...bodyFields(results) }
  }

  opening(index: number, first?: GenerationDelta): string | undefined {
    // The first delta contains the prompt as the engine reports it.
    if (first?.prompt !== undefined) return undefined
    const text = this.#options.echoOf(index)
    return text === '' ? undefined : this.delta(index, { text })
  }

  delta(index: number, delta: GenerationDelta): string {
    const { prompt, fields } = delta
    const text = `${prompt?.text ?? ''}${delta.text}`
    const logprobs = [...(prompt?.logprobs ?? []), ...(delta.logprobs ?? [])]
    const start = this.#lengths[index] ?? 0
    if (this.#options.hasLogprobs) this.#lengths[index] = start + countCharacters(text)
    return this.#chunks.choice(
      {
        text,
        index,
        logprobs: logprobs.length === 0 ? null : this.#logprobs(logprobs, text, start),
        finish_reason: null,
        ...fields?.choice,
      },
      fields?.body,
    )
  }

  closing(index: number, finishReason: FinishReason, fields?: AnswerFields): string {
    const choice = { text: '', index, logprobs: null, finish_reason: finishReason }
    return this.#chunks.choice({ ...choice, ...fields?.choice }, fields?.body)
  }

  usage(usage: Usage): string {
    return this.#chunks.usage(usage)
  }

  #logprobs(logprobs: readonly PromptLogprob[], text: string, start: number): object | null {
    if (!this.#options.hasLogprobs) return null
    return {
      tokens: logprobs.map(nameOf),
      token_logprobs: logprobs.map(({ logprob }) => logprob),
      top_logprobs: logprobs.map(({ logprob, top }) => (logprob === null ? null : topFields(top))),
      text_offset: offsetsIn(text, logprobs, start),
    }
  }
}

/** Streams of the two completions APIs: each delta of a choice becomes a chunk with `choices`. */

import { newUuid } from '../../../foundation/ids.ts'
import type { FinishReason, Usage } from '../../generation/inference-engine.ts'
import type { AnswerFields, PassThroughDelta, WireFields } from '../../generation/pass-through.ts'
import type { HttpError } from '../../../runtime/http/http-error.ts'
import type { GenerationResult } from '../../generation/text-generator.ts'
import type { StreamWriter } from '../replies/stream-writer.ts'
import type { TextRequest } from '../requests/request-reader.ts'
import type { ChoiceListener, ReplyStream, SurfaceContext } from './surface.ts'

export interface ReplyHead {
  readonly id: string
  readonly created: number
  readonly model: string
  /** Whether a last chunk has the token usage. All earlier chunks then have `usage: null`. */
  readonly includesUsage: boolean
}

export const createReplyHead = (
  prefix: string,
  { model, includesUsage }: TextRequest,
  { clock }: SurfaceContext,
): ReplyHead => ({
  id: `${prefix}-${newUuid()}`,
  created: Math.floor(clock.now()),
  model,
  includesUsage,
})

/** The content type of server-sent events. */
export const eventStreamType = 'text/event-stream; charset=utf-8'

/** Creates a stream. `createChoice` creates the writers of its choices. */
export function createChunkStream(
  writer: StreamWriter,
  { includesUsage }: ReplyHead,
  createChoice: (index: number) => ChunkStream,
): ReplyStream {
  const choices: ChunkStream[] = []
  return {
    createChoice(index) {
      const choice = createChoice(index)
      choices.push(choice)
      return choice
    },
    end(usage) {
      if (includesUsage) choices[0]?.sendUsage(usage)
      void writer.send(lastEvent)
    },
    fail: (_, body) => void writer.send(toChunkFailure(body)),
  }
}

const lastEvent = 'data: [DONE]\n\n'

/** Returns the end of a stream that has failed. */
export const toChunkFailure = (body: object): string =>
  `data: ${JSON.stringify(body)}\n\n${lastEvent}`

export function toUsageFields(usage: Usage): object {
  const { promptTokens, completionTokens, details } = usage
  const counts = {
    prompt_tokens: promptTokens,
    completion_tokens: completionTokens,
    total_tokens: promptTokens + completionTokens,
  }
  return details === undefined ? counts : { ...counts, ...details }
}

/** Writes one choice as chunks. The fields that all chunks share are serialized only once. */
export abstract class ChunkStream implements ChoiceListener {
  protected readonly index: number
  readonly #writer: StreamWriter
  #head: WireFields
  #prefix: string
  readonly #suffix: string
  #isOpen = false
  #hasText = false
  #toolCalls = 0
  /** Whether tool calls arrive in pieces. If so, `finish` need not send complete calls. */
  #hasCallPieces = false

  constructor(index: number, writer: StreamWriter, object: string, head: ReplyHead) {
    const { id, created, model } = head
    this.index = index
    this.#writer = writer
    this.#head = { id, object, created, model, system_fingerprint: null }
    this.#prefix = toPrefix(this.#head)
    this.#suffix = head.includesUsage ? '],"usage":null}\n\n' : ']}\n\n'
  }

  delta(delta: PassThroughDelta): Promise<void> | undefined {
    if (!this.#isOpen) this.#sendOpening(delta)
    this.#hasText ||= delta.text !== ''
    this.#toolCalls += delta.toolCalls?.length ?? 0
    this.#hasCallPieces ||= delta.toolCallPieces !== undefined
    const chunk = this.#toChunk(this.toChoice(delta), delta.fields?.body)
    return this.#writer.send(chunk, delta.ignored)
  }

  /** Sends output that no delta contained, such as a refusal, and the last event of the choice. */
  finish(result: GenerationResult): void {
    const text = this.#hasText ? '' : result.text
    const toolCalls = this.#hasCallPieces ? [] : result.toolCalls.slice(this.#toolCalls)
    if (text !== '' || toolCalls.length > 0) void this.delta({ text, toolCalls })
    if (!this.#isOpen) this.#sendOpening()
    const { finishReason, lastFields } = result
    const closing = this.toClosingChoice(finishReason, lastFields)
    void this.#writer.send(this.#toChunk(closing, lastFields?.body))
  }

  sendUsage(usage: Usage): void {
    void this.#writer.send(`${this.#prefix}],"usage":${JSON.stringify(toUsageFields(usage))}}\n\n`)
  }

  /** Returns the event before the first delta; `undefined` if there is none. */
  protected abstract toOpeningChoice(first?: PassThroughDelta): object | undefined
  protected abstract toChoice(delta: PassThroughDelta): object
  /** Returns the last event. `fields` has the fields that no delta contained. */
  protected abstract toClosingChoice(finishReason: FinishReason, fields?: AnswerFields): object

  protected countSentCalls(current: number): number {
    return this.#toolCalls - current
  }

  #sendOpening(first?: PassThroughDelta): void {
    this.#isOpen = true
    this.#updateFingerprint(first?.fields?.body)
    const opening = this.toOpeningChoice(first)
    if (opening !== undefined) void this.#writer.send(this.#toChunk(opening), first?.ignored)
  }

  #updateFingerprint(body: WireFields | undefined): void {
    const fingerprint = body?.['system_fingerprint']
    // Most servers send the same fingerprint with every chunk, so the head rarely changes.
    const known = this.#head['system_fingerprint']
    if (typeof fingerprint !== 'string' || fingerprint === known) return
    this.#head = { ...this.#head, system_fingerprint: fingerprint }
    this.#prefix = toPrefix(this.#head)
  }

  #toChunk(choice: object, body?: WireFields): string {
    const json = JSON.stringify(choice)
    if (body === undefined) return `${this.#prefix}${json}${this.#suffix}`
    this.#updateFingerprint(body)
    const head = JSON.stringify({ ...this.#head, ...body })
    return `data: ${head.slice(0, -1)},"choices":[${json}${this.#suffix}`
  }
}

const toPrefix = (head: WireFields): string =>
  `data: ${JSON.stringify(head).slice(0, -1)},"choices":[`

export function mergeBodyFields(results: readonly GenerationResult[]): object {
  const all = results.flatMap(({ fields }) => fields?.body ?? [])
  return all.length === 0 ? {} : Object.assign({}, ...all)
}

/** The body of an error, as in the chat-completions API. */
export const toErrorFields = ({ message, param, code, details, status }: HttpError): object => ({
  error: { ...details, message, type: toErrorType(status), param, code },
})

function toErrorType(status: number): string {
  if (status === 401) return 'authentication_error'
  if (status === 403) return 'permission_error'
  if (status === 429) return 'rate_limit_error'
  if (status === 408 || status === 504) return 'timeout_error'
  if (status === 503) return 'service_unavailable_error'
  return status >= 500 ? 'server_error' : 'invalid_request_error'
}

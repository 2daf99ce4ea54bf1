/** The surfaces `POST /api/chat` and `POST /api/generate`, Ollama's API. */

import type { Clock } from '../../../foundation/clock.ts'
import { tryRead } from '../../../foundation/errors.ts'
import type { HttpError } from '../../../runtime/http/http-error.ts'
import type { PassThroughDelta, WireFields, WireToolCall } from '../../generation/pass-through.ts'
import type { GenerationResult } from '../../generation/text-generator.ts'
import { z } from '../../schema/schema.ts'
import type { StreamWriter } from '../replies/stream-writer.ts'
import {
  ollamaChatRequest,
  ollamaGenerateRequest,
  toChatTranslation,
  toPromptTranslation,
  toRawBody,
} from './ollama-request.ts'
import { readReasoning } from './part-stream.ts'
import type {
  ChoiceListener,
  ReplyFormat,
  ReplyStream,
  Sender,
  Surface,
  SurfaceContext,
} from './surface.ts'
import { expectOneAnswer, expectValid, readTranslated } from './translation.ts'

const count = z.int().min(0)
const replyFields = {
  model: z.string(),
  created_at: z.string(),
  done: z.boolean(),
  done_reason: z.string().optional(),
  total_duration: count.optional().describe('Nanoseconds.'),
  load_duration: count.optional(),
  prompt_eval_count: count.optional().describe('Tokens of the prompt.'),
  prompt_eval_duration: count.optional(),
  eval_count: count.optional().describe('Tokens of the answer.'),
  eval_duration: count.optional(),
}

const sharedFields = {
  bodyLimit: 'chatBodyBytes',
  prefix: '/api',
  isAnyTypeAccepted: true,
  toErrorBody: ({ message }: HttpError) => ({ error: message }),
  isStreamDefault: true,
  toFailure: (_: HttpError, body: object) => toJsonLine(body),
} as const

const streamType = 'application/x-ndjson'

const toJsonLine = (line: object): string => `${JSON.stringify(line)}\n`

/** JSON has no comments, so a stream whose model is loading has lines without text. */
function toWaitingLine(toFields: ToFields, { model }: WireFields, clock: Clock): string {
  const head = { model, created_at: toIsoTime(clock.now()) }
  return toJsonLine({ ...head, ...toFields(noPiece), done: false })
}

export const ollamaChat: Surface = {
  ...sharedFields,
  path: '/api/chat',
  document: {
    summary: 'Answers a conversation, in the form of the Ollama API.',
    body: 'OllamaChatRequest',
    ok: 'OllamaChat',
    failure: 'OllamaError',
    streamType,
  },
  schemas: {
    OllamaChatRequest: ollamaChatRequest,
    OllamaChat: z.object({
      ...replyFields,
      message: z.looseObject({ role: z.literal('assistant'), content: z.string() }),
    }),
    OllamaError: z.object({ error: z.string() }),
  },
  promptField: 'messages',
  toWaitingText: (body, clock) => toWaitingLine(toChatFields, body, clock),
  read(body, context, sender) {
    const fields = expectValid(ollamaChatRequest, body)
    if ((fields.messages ?? []).length === 0) return loadReply(fields, context, toChatFields)
    const request = readTranslated(toChatTranslation(fields, context.requests), context)
    const head = { model: fields.model, ...sender }
    return { request, format: createFormat(head, context, toChatFields) }
  },
}

export const ollamaGenerate: Surface = {
  ...sharedFields,
  path: '/api/generate',
  document: {
    summary: 'Answers a prompt, in the form of the Ollama API.',
    body: 'OllamaGenerateRequest',
    ok: 'OllamaGenerated',
    failure: 'OllamaError',
    streamType,
  },
  schemas: {
    OllamaGenerateRequest: ollamaGenerateRequest,
    OllamaGenerated: z.object({
      ...replyFields,
      response: z.string(),
      thinking: z.string().optional(),
    }),
  },
  promptField: 'prompt',
  toWaitingText: (body, clock) => toWaitingLine(toPromptFields, body, clock),
  read(body, context, sender) {
    const fields = expectValid(ollamaGenerateRequest, body)
    const { requests } = context
    const format = createFormat({ model: fields.model, ...sender }, context, toPromptFields)
    if ((fields.prompt ?? '') === '') return loadReply(fields, context, toPromptFields)
    if (fields.raw === true) {
      const request = expectOneAnswer(requests.readCompletion(toRawBody(fields, requests)))
      return { request, format }
    }
    return { request: readTranslated(toPromptTranslation(fields, requests), context), format }
  },
}

interface Piece {
  readonly text: string
  readonly reasoning: string
  readonly toolCalls: readonly WireToolCall[]
}

type ToFields = (piece: Piece) => object

const toChatFields: ToFields = ({ text: content, reasoning, toolCalls }) => ({
  message: {
    role: 'assistant',
    content,
    ...(reasoning === '' ? {} : { thinking: reasoning }),
    ...(toolCalls.length === 0 ? {} : { tool_calls: toolCalls.map(toToolCall) }),
  },
})

const toPromptFields: ToFields = ({ text: response, reasoning }) => ({
  response,
  ...(reasoning === '' ? {} : { thinking: reasoning }),
})

const toToolCall = ({ id, name, arguments: given }: WireToolCall, index: number): object => ({
  id,
  function: { index, name, arguments: tryRead(() => JSON.parse(given) as unknown) ?? {} },
})

const noPiece: Piece = { text: '', reasoning: '', toolCalls: [] }

/** Clients load a model by a request without a prompt. The model is already loaded here. */
function loadReply(
  { model, keep_alive: keepAlive }: { readonly model: string; readonly keep_alive?: unknown },
  { clock }: SurfaceContext,
  toFields: ToFields,
): { readonly reply: object } {
  const reason = keepAlive === 0 ? 'unload' : 'load'
  const head = { model, created_at: toIsoTime(clock.now()) }
  return { reply: { ...head, ...toFields(noPiece), done: true, done_reason: reason } }
}

let latestTime = { ms: Number.NaN, text: '' }

/**
 * Formatting a time takes as long as the rest of a line, so lines of the same millisecond share the
 * text.
 */
function toIsoTime(seconds: number): string {
  const ms = Math.floor(seconds * 1000)
  if (ms !== latestTime.ms) latestTime = { ms, text: new Date(ms).toISOString() }
  return latestTime.text
}

interface ReplyHead extends Pick<Sender, 'loadMs'> {
  readonly model: string
}

function createFormat(
  { model, loadMs }: ReplyHead,
  { clock }: SurfaceContext,
  toFields: ToFields,
): ReplyFormat {
  const startMs = clock.monotonicMs()
  const toLine = (piece: Piece, rest: object): object => ({
    model,
    created_at: toIsoTime(clock.now()),
    ...toFields(piece),
    ...rest,
  })
  const toLast = ({ finishReason, usage, firstTokenMs = 0 }: GenerationResult): object => {
    const answerMs = clock.monotonicMs() - startMs
    const toNanoseconds = (ms: number): number => Math.round(ms * 1_000_000)
    return {
      done: true,
      done_reason: finishReason === 'tool_calls' ? 'stop' : finishReason,
      total_duration: toNanoseconds(loadMs + answerMs),
      load_duration: toNanoseconds(loadMs),
      prompt_eval_count: usage.promptTokens,
      prompt_eval_duration: toNanoseconds(firstTokenMs),
      eval_count: usage.completionTokens,
      eval_duration: toNanoseconds(answerMs - firstTokenMs),
    }
  }
  return {
    streamType: `${streamType}; charset=utf-8`,
    toBody: ([result]) => toLine(toPiece(result), toLast(result)),
    createStream: (writer) =>
      new LineStream(writer, (piece, result) =>
        toLine(piece, result === undefined ? { done: false } : toLast(result)),
      ),
  }
}

const toPiece = ({ text, toolCalls, fields }: GenerationResult): Piece => {
  return { text, toolCalls, reasoning: readReasoning(fields) }
}

/** Writes a line of JSON for each delta. Calls that arrive in pieces are sent when complete. */
class LineStream implements ReplyStream, ChoiceListener {
  readonly #writer: StreamWriter
  readonly #toLine: (piece: Piece, result?: GenerationResult) => object
  #hasText = false
  #sentCalls = 0

  constructor(writer: StreamWriter, toLine: (piece: Piece, result?: GenerationResult) => object) {
    this.#writer = writer
    this.#toLine = toLine
  }

  createChoice(): ChoiceListener {
    return this
  }

  delta({ text, fields, toolCalls = [], ignored }: PassThroughDelta): Promise<void> | undefined {
    const reasoning = readReasoning(fields)
    if (text === '' && reasoning === '' && toolCalls.length === 0) return undefined
    this.#hasText ||= text !== ''
    this.#sentCalls += toolCalls.length
    return this.#send(this.#toLine({ text, reasoning, toolCalls }), ignored)
  }

  finish(result: GenerationResult): void {
    const text = this.#hasText ? '' : result.text
    const toolCalls = result.toolCalls.slice(this.#sentCalls)
    const missing = { text, toolCalls, reasoning: readReasoning(result.lastFields) }
    const isMissing = text !== '' || toolCalls.length > 0 || missing.reasoning !== ''
    if (isMissing) void this.#send(this.#toLine(missing))
    void this.#send(this.#toLine(noPiece, result), result.ignored)
  }

  end(): void {
    // Writes nothing: `finish` of the only choice has already written the last line.
  }

  fail(_: HttpError, body: object): void {
    void this.#send(body)
  }

  #send(line: object, ignored?: readonly string[]): Promise<void> | undefined {
    return this.#writer.send(toJsonLine(line), ignored)
  }
}

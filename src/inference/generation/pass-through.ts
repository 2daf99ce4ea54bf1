/**
 * The proxy in front of typed generation: requests and answers that the server behind an engine
 * gets and sends as they were written. Only an engine with an `EngineProxy` gets and reports them;
 * the public port of engines has typed generation alone.
 */

import type { Clock } from '../../foundation/clock.ts'
import { TimeoutError } from '../../foundation/errors.ts'
import { boundedWait } from '../../foundation/promises.ts'
import type { StepScheduler } from '../../runtime/turn-budget.ts'
import type { Guard } from '../guardrails/guard.ts'
import { guardFields, redactAnswer } from '../guardrails/guarded-input.ts'
import type {
  ChatInput,
  ChatMessage,
  GenerationDelta,
  GenerationEnd,
  GenerationRequest,
  InferenceEngine,
  TextInput,
  ToolCall,
  ToolCallPiece,
  ToolDefinition,
} from './inference-engine.ts'
import { inferenceError } from './inference-errors.ts'

/** Fields of the API as a client or a server wrote them, by their names in the API. */
export type WireFields = Readonly<Record<string, unknown>>

/** A message, tool, call or piece of a call, and how the client or the server wrote it. */
type Passed<Part> = Part & { readonly wire?: WireFields }

/**
 * A message with parts that may not be text. `content` and `toolCalls` take precedence over `wire`,
 * because guardrails may have changed them.
 */
export type PassedMessage = Passed<Omit<ChatMessage, 'toolCalls'>> & {
  readonly toolCalls?: readonly PassedCall[]
}
export type PassedTool = Passed<ToolDefinition>
export type PassedCall = Passed<ToolCall>
export type PassedCallPiece = Passed<ToolCallPiece>

export interface PassedChat extends ChatInput {
  readonly messages: readonly PassedMessage[]
  readonly tools?: readonly PassedTool[]
  /** All other fields of the body; their values take precedence over `Sampling`. */
  readonly fields?: WireFields
}

export interface PassedText extends TextInput {
  /** A prompt that is neither text nor token ids. */
  readonly wire?: unknown
  readonly fields?: WireFields
}

export type PassedInput = PassedChat | PassedText

export interface PassedRequest extends GenerationRequest {
  readonly input: PassedInput
}

/**
 * Additional fields of an answer, as a server sent them. Texts and lists of `message`, such as
 * `reasoning_content`, arrive in pieces.
 */
export interface AnswerFields {
  /** Fields of the message, or of its delta. */
  readonly message?: WireFields
  readonly choice?: WireFields
  /** Fields of the whole response. */
  readonly body?: WireFields
}

export interface PassedDelta extends GenerationDelta {
  readonly toolCalls?: readonly PassedCall[]
  readonly toolCallPieces?: readonly PassedCallPiece[]
  readonly fields?: AnswerFields
  /** With the first delta: fields of the request that the server says it ignored. */
  readonly ignored?: readonly string[]
}

/** `fields` arrived after the last delta. */
export type PassedEnd = GenerationEnd & { readonly fields?: AnswerFields }

/** What an engine offers besides typed generation if a server is behind it. */
export interface EngineProxy {
  /** Other paths of the server, such as `/v1/embeddings`, that may be passed on. */
  readonly paths: readonly string[]
  forward(call: ForwardedCall): Promise<ForwardedAnswer>
}

/** The proxy of an engine; `null` for an engine of typed generation alone. */
export const proxyOf = (
  engine: InferenceEngine & { proxy?: EngineProxy | null },
): EngineProxy | null => engine.proxy ?? null

/** A request for a path that does not generate text the usual way, such as `/v1/embeddings`. */
export interface ForwardedCall {
  readonly path: string
  /** The body as the client wrote it; the engine inserts the name of its model. */
  readonly fields: WireFields
  /** Aborts the call, also while its answer is being read. */
  readonly signal: AbortSignal
}

/** A successful answer. Its bytes must be read to the end, or the call aborted. */
export interface ForwardedAnswer {
  readonly status: number
  readonly contentType: string
  readonly bytes: AsyncIterable<Uint8Array>
  /** Fields of the request that the server says it ignored. */
  readonly ignored?: readonly string[]
}

export interface PathProxyParts {
  /** The paths that are passed on. */
  readonly paths: readonly string[]
  readonly forward: EngineProxy['forward']
  readonly guard: Guard
  readonly checks: StepScheduler
  readonly clock: Clock
  /** How long the engine may be silent. */
  readonly engineTimeoutMs: number
}

/**
 * Prompt rules judge every text of the body. Answer rules judge every text of a whole JSON answer.
 * They cannot judge streams, whose format is unknown for these paths, so streams are refused.
 */
export class PathProxy {
  readonly #parts: PathProxyParts

  constructor(parts: PathProxyParts) {
    this.#parts = parts
  }

  get paths(): readonly string[] {
    return this.#parts.paths
  }

  async forward({ path, fields, signal }: ForwardedCall): Promise<ForwardedAnswer> {
    const { guard, checks, forward } = this.#parts
    const steps = guardFields(fields, guard)
    const judged = guard.judgesInput ? await checks.run(steps, signal) : fields
    const judgesAnswer = guard.openOutput() !== null
    if (judgesAnswer && fields['stream'] === true) throw streamRefusal()
    const over = new AbortController()
    const call = { path, fields: judged, signal: AbortSignal.any([signal, over.signal]) }
    const answer = await this.#within(over, forward(call))
    const limited = { ...answer, bytes: this.#limited(over, answer.bytes) }
    return judgesAnswer ? this.#judge(limited, over) : limited
  }

  async *#limited(
    over: AbortController,
    bytes: AsyncIterable<Uint8Array>,
  ): AsyncGenerator<Uint8Array> {
    const iterator = bytes[Symbol.asyncIterator]()
    try {
      for (;;) {
        const { value, done } = await this.#within(over, iterator.next())
        if (done === true) return
        yield value
      }
    } finally {
      over.abort(inferenceError('canceled', 'the client stopped reading the answer'))
    }
  }

  async #within<T>(over: AbortController, promise: Promise<T>): Promise<T> {
    const { clock, engineTimeoutMs } = this.#parts
    try {
      return await boundedWait(clock, engineTimeoutMs, promise)
    } catch (error) {
      if (!(error instanceof TimeoutError)) throw error
      const late = inferenceError('engine_timeout', 'the server did not answer in time')
      over.abort(late)
      throw late
    }
  }

  async #judge(answer: ForwardedAnswer, over: AbortController): Promise<ForwardedAnswer> {
    if (!/^application\/json\b/i.test(answer.contentType)) {
      over.abort(streamRefusal())
      throw streamRefusal()
    }
    const chunks: Uint8Array[] = []
    let size = 0
    for await (const chunk of answer.bytes) {
      size += chunk.length
      if (size > maxAnswerBytes) throw inferenceError('engine_error', 'the answer is too long')
      chunks.push(chunk)
    }
    const text = redactAnswer(Buffer.concat(chunks).toString(), this.#parts.guard)
    return { ...answer, bytes: once(Buffer.from(text)) }
  }
}

/**
 * The size limit of answers that rules judge, because such an answer is held in memory as a whole.
 */
const maxAnswerBytes = 16 << 20

async function* once(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  yield bytes
}

const streamRefusal = (): Error =>
  inferenceError('unsupported', 'the guardrails cannot read a stream of this path', {
    refusal: {
      status: 400,
      message: "Invalid 'stream': the guardrails of this server read whole JSON answers only here.",
      param: 'stream',
      code: 'invalid_value',
    },
  })

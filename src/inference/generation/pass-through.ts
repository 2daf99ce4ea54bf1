/**
 * The proxy in front of typed generation: requests and answers that the server behind an engine
 * gets and sends as they were written. Only an engine with an `EngineProxy` gets and reports them;
 * the public port of engines has typed generation alone.
 */

import type {
  GenerationDelta,
  GenerationEnd,
  GenerationInput,
  GenerationRequest,
  InferenceEngine,
  ToolCall,
  ToolCallPiece,
} from './inference-engine.ts'

/** Fields of the API as a client or a server wrote them, by their names in the API. */
export type WireFields = Readonly<Record<string, unknown>>

export const isFields = (value: unknown): value is WireFields =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** A call or a piece of a call, and how the server wrote it. */
type Passed<Part> = Part & { readonly wire?: WireFields }
export type PassedCall = Passed<ToolCall>
export type PassedCallPiece = Passed<ToolCallPiece>

/**
 * An input that may be passed on. The server gets `body`, whose fields take precedence over
 * `Sampling`; the rest of the input has only the texts of the body.
 */
export type PassedInput = GenerationInput & { readonly body?: WireFields }

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

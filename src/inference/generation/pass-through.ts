/**
 * Types for requests and answers that are passed unchanged between a client and the server behind
 * an engine. Only engines with an `EngineProxy` use them; the public port of engines has only typed
 * generation.
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

/** A tool call or a piece of one; `wire` has the fields that the server sent for it. */
type Passed<Part> = Part & { readonly wire?: WireFields }
export type PassedCall = Passed<ToolCall>
export type PassedCallPiece = Passed<ToolCallPiece>

/**
 * An input that may be passed on: the server gets `body`, whose fields take precedence over
 * `Sampling`. The other fields of the input then only repeat the texts of the body.
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
  /** Fields of the message, or of a streamed delta of the message. */
  readonly message?: WireFields
  readonly choice?: WireFields
  /** Fields of the whole response. */
  readonly body?: WireFields
}

export interface PassedDelta extends GenerationDelta {
  readonly toolCalls?: readonly PassedCall[]
  readonly toolCallPieces?: readonly PassedCallPiece[]
  readonly fields?: AnswerFields
  /** Request fields that the server reports as ignored. Present only in the first delta. */
  readonly ignored?: readonly string[]
}

/** How a request ended. `fields` has the fields that arrived after the last delta. */
export type PassedEnd = GenerationEnd & { readonly fields?: AnswerFields }

/** Passes requests on to the server behind an engine, for paths without typed generation. */
export interface EngineProxy {
  /** The paths whose requests may be passed on, such as `/v1/embeddings`. */
  readonly paths: readonly string[]
  forward(call: ForwardedCall): Promise<ForwardedAnswer>
}

/** The proxy of an engine; `null` if the engine has only typed generation. */
export const proxyOf = (
  engine: InferenceEngine & { proxy?: EngineProxy | null },
): EngineProxy | null => engine.proxy ?? null

/** A request for one of the proxy's paths, such as `/v1/embeddings`. */
export interface ForwardedCall {
  readonly path: string
  /** The body as the client wrote it; the engine inserts the name of its model. */
  readonly fields: WireFields
  /** Aborts the call, even while its answer is being read. */
  readonly signal: AbortSignal
}

/** A successful answer. Its bytes must be read to the end, or the call aborted. */
export interface ForwardedAnswer {
  readonly status: number
  readonly contentType: string
  readonly bytes: AsyncIterable<Uint8Array>
  /** Request fields that the server reports as ignored. */
  readonly ignored?: readonly string[]
}

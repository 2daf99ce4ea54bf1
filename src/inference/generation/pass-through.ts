/** The parts of requests and answers that pass unchanged between clients and an upstream server. */

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

/** A tool call, or a piece of one. `wire` has the fields that the server sent for it. */
type WithWireFields<Part> = Part & { readonly wire?: WireFields }
export type WireToolCall = WithWireFields<ToolCall>
export type WireToolCallPiece = WithWireFields<ToolCallPiece>

/**
 * If there is a `body`, the server behind the engine gets it. The other fields then only repeat the
 * texts of the body.
 */
export type PassThroughInput = GenerationInput & { readonly body?: WireFields }

export interface PassThroughRequest extends GenerationRequest {
  readonly input: PassThroughInput
}

/** Fields that a server added to an answer. Texts of `message` arrive in pieces. */
export interface AnswerFields {
  readonly message?: WireFields
  readonly choice?: WireFields
  readonly body?: WireFields
}

export interface PassThroughDelta extends GenerationDelta {
  readonly toolCalls?: readonly WireToolCall[]
  readonly toolCallPieces?: readonly WireToolCallPiece[]
  readonly fields?: AnswerFields
  /** Request fields that the server reports as ignored. Present only in the first delta. */
  readonly ignored?: readonly string[]
}

/** How a request ended. `fields` has the fields that arrived after the last delta. */
export type PassThroughEnd = GenerationEnd & { readonly fields?: AnswerFields }

/**
 * Forwards requests for further paths, such as `/v1/embeddings`, to the server behind an engine.
 */
export interface EngineProxy {
  readonly paths: readonly string[]
  forward(call: ForwardedCall): Promise<ForwardedAnswer>
}

export const getProxy = (
  engine: InferenceEngine & { proxy?: EngineProxy | null },
): EngineProxy | null => engine.proxy ?? null

export interface ForwardedCall {
  readonly path: string
  /** The body as the client wrote it; the engine inserts the name of its model. */
  readonly fields: WireFields
  /** Aborts the call, even while its answer is being read. */
  readonly signal: AbortSignal
}

/** A successful answer. The caller must read its bytes to the end or abort the call. */
export interface ForwardedAnswer {
  readonly status: number
  readonly contentType: string
  readonly bytes: AsyncIterable<Uint8Array>
  readonly ignored?: readonly string[]
}

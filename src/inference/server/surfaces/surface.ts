/** The port of a surface: an API whose requests and replies the server translates. */

import type { Clock } from '../../../foundation/clock.ts'
import type { HttpError } from '../../../runtime/http/http-error.ts'
import type { Usage } from '../../generation/inference-engine.ts'
import type { WireFields } from '../../generation/pass-through.ts'
import type {
  GenerationResult,
  ProgressListener,
  TextGenerator,
} from '../../generation/text-generator.ts'
import type { z } from '../../schema/schema.ts'
import type { ServedModel } from '../served-model.ts'
import type { RouteDocument } from '../openapi.ts'
import type { StreamWriter } from '../replies/stream-writer.ts'
import type { RequestReader, TextRequest } from '../requests/request-reader.ts'
import type { ServerLimits } from '../server-limits.ts'
import type { ResponseStore } from './response-store.ts'

/** A POST route that generates text. All surfaces share queue, guardrails, limits and metrics. */
export interface Surface {
  readonly path: string
  /** Errors of all paths below this one have the form of this surface. Default: `path`. */
  readonly prefix?: string
  readonly document: RouteDocument
  /** The schemas that `document` names, besides those of the OpenAPI document itself. */
  readonly schemas?: Readonly<Record<string, z.ZodType>>
  /** Whether a body may have any `Content-Type`, because clients of this API omit the header. */
  readonly isAnyTypeAccepted?: boolean
  /** The limit for the size of a body. */
  readonly bodyLimit: 'bodyBytes' | 'chatBodyBytes'
  /** The field that is named in an error about a prompt that is too long. */
  readonly promptField: string
  /** Converts a body to a request. Throws `HttpError` for an invalid body. */
  read(body: unknown, context: SurfaceContext, sender: Sender): SurfaceCall
  readonly toErrorBody: (problem: HttpError) => object
  /** Whether a body without `stream` asks for a stream. Default `false`. */
  readonly isStreamDefault?: boolean
  /** The sign of life of a stream whose model is loading. Default: a comment. */
  readonly toWaitingText?: (body: WireFields, clock: Clock) => string
  /** The end of a stream that has failed before its first text. */
  readonly toFailure: (problem: HttpError, body: object) => string
}

/** What is known about a request besides its body. */
export interface Sender {
  /** The name of the key; `""` for a key without a name, or without a key. */
  readonly owner: string
  /** How long the request has waited for its model to be loaded. */
  readonly loadMs: number
}

export interface SurfaceContext {
  readonly requests: RequestReader
  readonly responses: ResponseStore
  readonly clock: Clock
}

/** What the other routes of an API need, such as those that count tokens or list models. */
export interface CompanionContext extends SurfaceContext {
  readonly listModels: () => readonly ServedModel[]
  readonly generator: TextGenerator
  readonly limits: ServerLimits
}

/** What to generate and how to reply, or a reply that needs no generation. */
export type SurfaceCall =
  | { readonly request: TextRequest; readonly format: ReplyFormat }
  | { readonly reply: object }

/** How the reply to one request is written. */
export interface ReplyFormat {
  /** The content type of streams. */
  readonly streamType: string
  /** Returns the body, or its JSON text. */
  toBody(results: Results, usage: Usage): object | string
  createStream(writer: StreamWriter): ReplyStream
}

/** The results of all answers: `n` per input, and at least one. */
export type Results = readonly [GenerationResult, ...GenerationResult[]]

export interface ReplyStream {
  /** Returns the listener of the choice with this index. */
  createChoice(index: number): ChoiceListener
  /** Writes what follows the last event of all choices. */
  end(usage: Usage): void
  /** Writes an error after the headers were sent. `body` is what `toErrorBody` returned. */
  fail(problem: HttpError, body: object): void
}

export interface ChoiceListener extends ProgressListener {
  /** Writes output that no delta contained, such as a refusal, and the end of the choice. */
  finish(result: GenerationResult): void
}

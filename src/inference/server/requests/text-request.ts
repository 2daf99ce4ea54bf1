/** What every request for text has in common once its body is checked. */

import type { GenerationInput, Sampling } from '../../generation/inference-engine.ts'
import { HttpError } from '../http-error.ts'
import { unknownModel, wrongValue } from './invalid-request.ts'
import type { ChatBody, CompletionBody, GenerateBody, RequestBounds } from './request-schema.ts'

/** A request for text, checked and complete. */
export interface TextRequest {
  /** The served name that the client used. */
  readonly model: string
  readonly inputs: readonly GenerationInput[]
  /** Answers for each input. */
  readonly n: number
  readonly sampling: Partial<Sampling>
  readonly priority: number
  readonly timeoutSeconds: number | null
  readonly isStream: boolean
  readonly includesUsage: boolean
  /** Fields that the schema does not know. */
  readonly ignored: readonly string[]
}

/** What a request is checked against. */
export interface RequestRules extends RequestBounds {
  /** The served names; the first is the default. */
  readonly models: readonly string[]
  readonly defaultMaxTokens: number
  /** Refuses unknown fields instead of ignoring them. */
  readonly isStrict: boolean
}

/** The served model that is asked for, or an error with status 404. */
export function servedModel(asked: string | null | undefined, rules: RequestRules): string {
  if (asked === undefined || asked === null) return rules.models[0] ?? ''
  if (rules.models.includes(asked)) return asked
  throw unknownModel(asked, rules.models)
}

/** Names of fields that the schema does not know; a strict server refuses them. */
export function ignoredFields(
  body: object,
  known: ReadonlySet<string>,
  isStrict: boolean,
): readonly string[] {
  const ignored = Object.keys(body).filter((name) => !known.has(name))
  const [first] = ignored
  if (first === undefined || !isStrict) return ignored
  const name = first.length > 64 ? `${first.slice(0, 61)}...` : first
  throw new HttpError(400, `Unrecognized request argument supplied: '${name}'.`, {
    code: 'unknown_parameter',
    param: name,
  })
}

/** How tokens are chosen; what the request leaves out is left to the configuration. */
export function samplingOf(
  body: ChatBody | CompletionBody | GenerateBody,
  defaultMaxTokens: number,
): { -readonly [K in keyof Sampling]?: Sampling[K] } {
  const maxTokens = body.max_completion_tokens ?? body.max_tokens ?? defaultMaxTokens
  const sampling: ReturnType<typeof samplingOf> = { maxTokens }
  if (isGiven(body.temperature)) sampling.temperature = body.temperature
  if (isGiven(body.top_p)) sampling.topP = body.top_p
  if (isGiven(body.top_k)) sampling.topK = Math.max(0, body.top_k)
  if (isGiven(body.min_p)) sampling.minP = body.min_p
  if (isGiven(body.repetition_penalty)) sampling.repetitionPenalty = body.repetition_penalty
  if (isGiven(body.seed)) sampling.seed = body.seed
  if (isGiven(body.stop)) sampling.stop = typeof body.stop === 'string' ? [body.stop] : body.stop
  if (isGiven(body.ignore_eos)) sampling.ignoreEos = body.ignore_eos
  return sampling
}

/** Whether the answer is streamed, and whether the stream ends with its usage. */
export function streamingOf(
  body: ChatBody | CompletionBody,
): Pick<TextRequest, 'isStream' | 'includesUsage'> {
  const isStream = body.stream ?? false
  if (isGiven(body.stream_options) && !isStream) {
    throw wrongValue(
      'stream_options',
      "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
    )
  }
  return { isStream, includesUsage: body.stream_options?.include_usage ?? false }
}

/** A field that is `null` counts as left out. */
export const isGiven = <T>(value: T | null | undefined): value is T =>
  value !== undefined && value !== null

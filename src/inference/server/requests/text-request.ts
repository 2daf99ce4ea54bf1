/** What chat and text completions have in common, read from a request's body. */

import type { GenerationInput, OutputFormat, Sampling } from '../../generation/inference-engine.ts'
import { expectList, expectText, type FieldReader, wrongType } from './field-reader.ts'
import { HttpError } from '../http-error.ts'

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
  /** Fields that nobody reads. */
  readonly ignored: readonly string[]
}

/** What a request is checked against. */
export interface RequestRules {
  /** The served names; the first is the default. */
  readonly models: readonly string[]
  readonly contextLength: number
  readonly maxPrompts: number
  readonly defaultMaxTokens: number
  readonly isStrict: boolean
}

/** The served model that is asked for; 404 names what there is. */
export function readModel(fields: FieldReader, rules: RequestRules): string {
  const asked = fields.string('model', 256)
  if (asked === undefined) return rules.models[0] ?? ''
  if (rules.models.includes(asked)) return asked
  throw unknownModel(asked, rules.models)
}

export function unknownModel(asked: string, served: readonly string[]): HttpError {
  const name = asked.length > 128 ? `${asked.slice(0, 125)}...` : asked
  return new HttpError(
    404,
    `The model '${name}' does not exist here. Served: ${served.join(', ')}.`,
    { code: 'model_not_found', param: 'model' },
  )
}

/** Fields that say how tokens are chosen; `format` and `logprobs` differ by endpoint. */
export function readSampling(
  fields: FieldReader,
  rules: RequestRules,
  rest: { readonly format?: OutputFormat; readonly logprobs?: number | null } = {},
): Partial<Sampling> {
  const range = { min: 1, max: rules.contextLength }
  const maxTokens = fields.integer('max_tokens', range)
  const maxCompletionTokens = fields.integer('max_completion_tokens', range)
  const topK = fields.integer('top_k', { min: -1, max: 1_000_000 })
  return {
    maxTokens: maxCompletionTokens ?? maxTokens ?? rules.defaultMaxTokens,
    ...given('temperature', fields.decimal('temperature', { min: 0, max: 2 })),
    ...given('topP', fields.decimal('top_p', { min: 0, max: 1 })),
    ...given('topK', topK === -1 ? 0 : topK),
    ...given('minP', fields.decimal('min_p', { min: 0, max: 1 })),
    ...given('repetitionPenalty', fields.decimal('repetition_penalty', { above: 0, max: 10 })),
    ...given('seed', fields.integer('seed', {})),
    ...given('stop', readStop(fields)),
    ...given('ignoreEos', fields.boolean('ignore_eos')),
    ...rest,
  }
}

/** How urgent and how patient it is. */
export function readUrgency(fields: FieldReader): Pick<TextRequest, 'priority' | 'timeoutSeconds'> {
  return {
    priority: fields.integer('priority', { min: -1000, max: 1000 }) ?? 0,
    timeoutSeconds: fields.decimal('timeout', { above: 0, max: 86_400 }) ?? null,
  }
}

export function readStreaming(
  fields: FieldReader,
): Pick<TextRequest, 'isStream' | 'includesUsage'> {
  const isStream = fields.boolean('stream') ?? false
  const options = fields.object('stream_options')
  if (options !== undefined && !isStream) {
    throw new HttpError(
      400,
      "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
      { code: 'invalid_value', param: 'stream_options' },
    )
  }
  return { isStream, includesUsage: options?.boolean('include_usage') ?? false }
}

/** What nobody has read: told to the client, or refused. */
export function readIgnored(fields: FieldReader, rules: RequestRules): readonly string[] {
  const ignored = fields.unread()
  const [first] = ignored
  if (first === undefined || !rules.isStrict) return ignored
  const name = first.length > 64 ? `${first.slice(0, 61)}...` : first
  throw new HttpError(400, `Unrecognized request argument supplied: '${name}'.`, {
    code: 'unknown_parameter',
    param: name,
  })
}

const given = <K extends string, V>(key: K, value: V | undefined): { [P in K]?: V } =>
  value === undefined ? {} : ({ [key]: value } as { [P in K]: V })

function readStop(fields: FieldReader): readonly string[] | undefined {
  const stop = fields.raw('stop')
  if (stop === undefined) return undefined
  if (typeof stop === 'string') return [expectStop('stop', stop)]
  if (!Array.isArray(stop)) throw wrongType('stop', 'a string or an array of strings', stop)
  return expectList('stop', stop, { max: 16 }).map((one, at) => expectStop(`stop[${at}]`, one))
}

/** An empty one would end every answer before it begins. */
function expectStop(path: string, value: unknown): string {
  const text = expectText(path, value, 1024)
  if (text !== '') return text
  throw new HttpError(
    400,
    `Invalid '${path}': empty string. Expected a string with minimum length 1.`,
    { code: 'empty_string', param: path },
  )
}

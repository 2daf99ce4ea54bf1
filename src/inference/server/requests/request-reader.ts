/** Converts the JSON bodies that a server receives to checked requests for text. */

import { Checker } from '../../schema/problems.ts'
import { z } from '../../schema/schema.ts'
import type { Sampling } from '../../generation/inference-engine.ts'
import { isFields, type PassedInput, type WireFields } from '../../generation/pass-through.ts'
import { tokenizeFields, withoutNeutral } from '../../generation/fields/request-fields.ts'
import { HttpError } from '../../../runtime/http/http-error.ts'
import { FieldCheck, type FieldCheckOptions } from './field-check.ts'
import {
  isForced,
  isGiven,
  isOfResponse,
  logprobsOf,
  outputFormatOf,
  samplingOf,
  toChatInput,
} from './typed-request.ts'
import {
  createPassedSchemas,
  type PassedChatBody,
  type PassedCompletionBody,
  type PassedGenerateBody,
  passedSampling,
  promptsOf,
  toPassedChat,
  toPassedPrompts,
  toPassedQuestions,
} from './passed-request.ts'
import {
  invalidRequest,
  missingField,
  outOfRange,
  unknownModel,
  unreadField,
  wrongLength,
  wrongType,
  wrongValue,
} from './invalid-request.ts'
import {
  type ChatBody,
  type CompletionBody,
  createRequestSchemas,
  type GenerateBody,
  type RequestBounds,
  type RequestSchemas,
} from './request-schema.ts'

/** One function for each kind of body; all of them throw `HttpError`. */
export interface RequestReader {
  readonly rules: RequestRules
  /** The schemas of the bodies, for the OpenAPI document. */
  readonly schemas: Readonly<Record<keyof RequestSchemas, z.ZodObject>>
  readonly readChat: (body: unknown) => TextRequest
  readonly readCompletion: (body: unknown) => CompletionRequest
  readonly readGenerate: (body: unknown) => TextRequest
  readonly readTokenize: (body: unknown) => TokenizeRequest
  /** Returns the fields of a body for a forwarded path, without the model. */
  readonly readForwarded: (body: unknown) => WireFields
}

/** Compiles the schemas once, so that a request only runs the checks. */
export function createRequestReader(rules: RequestRules): RequestReader {
  const typed = createRequestSchemas(rules)
  if (rules.isPassedOn) return createPassedReader(rules, typed.TokenizeRequest)
  const schemas = typed
  const paths = {
    '/v1/chat/completions': schemas.ChatCompletionRequest,
    '/v1/completions': schemas.CompletionRequest,
  }
  const pathsWith = (name: string): readonly string[] =>
    Object.entries(paths).flatMap(([path, { shape }]) => (Object.hasOwn(shape, name) ? path : []))
  const check = { pathsWith }
  return {
    rules,
    schemas: {
      ChatCompletionRequest: takenBy(schemas.ChatCompletionRequest, rules),
      CompletionRequest: takenBy(schemas.CompletionRequest, rules),
      GenerateRequest: takenBy(schemas.GenerateRequest, rules),
      TokenizeRequest: schemas.TokenizeRequest,
    },
    readChat: readerOf(schemas.ChatCompletionRequest, rules, toChatRequest, check),
    readCompletion: readerOf(schemas.CompletionRequest, rules, toCompletionRequest, check),
    readGenerate: readerOf(schemas.GenerateRequest, rules, toGenerateRequest, check),
    readTokenize: tokenizeReaderOf(schemas.TokenizeRequest, rules),
    readForwarded: (body) => toForwardedFields(body, rules),
  }
}

/** The schema without the fields that the engine or a strict server refuses. */
function takenBy(schema: z.ZodObject, { fields: supported, isStrict }: RequestRules): z.ZodObject {
  const described = Object.keys(schema.shape)
  const check = new FieldCheck({ described, supported, isPassedOn: false, isStrict })
  const taken = Object.entries(schema.shape).filter(([name]) => check.takes(name))
  return z.object(Object.fromEntries(taken))
}

/** The reader for an engine that passes requests on. */
function createPassedReader(
  rules: RequestRules,
  TokenizeRequest: RequestSchemas['TokenizeRequest'],
): RequestReader {
  const schemas = { ...createPassedSchemas(rules), TokenizeRequest }
  return {
    rules,
    schemas,
    readChat: readerOf(schemas.ChatCompletionRequest, rules, (body, _, ignored) =>
      toPassedRequest(body, [toPassedChat(body)], rules, ignored),
    ),
    readCompletion: readerOf(schemas.CompletionRequest, rules, (body, _, ignored) => {
      const inputs = toPassedPrompts(body)
      expectPrompts(inputs.length, rules)
      expectAnswers(body.n ?? 1, inputs.length, rules)
      // No echo here: the server behind the engine repeats the prompt, with its log probabilities.
      return {
        ...toPassedRequest(body, inputs, rules, ignored),
        prompts: inputs.map(() => ''),
        isEcho: false,
      }
    }),
    readGenerate: readerOf(schemas.GenerateRequest, rules, (body, _, ignored) =>
      toPassedRequest({ ...body, stream: false }, toPassedQuestions(body), rules, ignored),
    ),
    readTokenize: tokenizeReaderOf(TokenizeRequest, rules),
    readForwarded: (body) => toForwardedFields(body, rules),
  }
}

function toForwardedFields(body: unknown, rules: RequestRules): WireFields {
  if (!isFields(body)) throw wrongType('body', 'an object', body)
  const { model, ...fields } = body
  const isName = model === undefined || model === null || typeof model === 'string'
  if (!isName) throw wrongType('model', 'a string', model)
  servedModel(model, rules)
  return fields
}

function toPassedRequest(
  body: PassedChatBody | PassedCompletionBody | PassedGenerateBody,
  inputs: readonly PassedInput[],
  rules: RequestRules,
  ignored: readonly string[],
): TextRequest {
  const isChat = inputs[0]?.kind !== 'text'
  const sampling = { maxTokens: rules.defaultMaxTokens, ...passedSampling(body, isChat) }
  return { ...commonOf(body, rules), inputs, sampling, ignored }
}

type Convert<Body, Request> = (
  body: Body,
  rules: RequestRules,
  ignored: readonly string[],
) => Request

function readerOf<S extends z.ZodObject, Request>(
  schema: S,
  rules: RequestRules,
  convert: Convert<z.input<S>, Request>,
  check: Partial<FieldCheckOptions> = {},
): (body: unknown) => Request {
  const checker = new Checker(schema)
  const { fields: supported, isPassedOn, isStrict } = rules
  const described = Object.keys(schema.shape)
  const fields = new FieldCheck({ described, supported, isPassedOn, isStrict, ...check })
  return (body) => {
    if (checker.isValid(body)) return convert(body, rules, fields.ignoredIn(body))
    fields.expectSupported(body)
    const [first] = checker.problemsIn(body)
    if (first === undefined) throw new TypeError('the compiled check and the schema disagree')
    throw withLimitName(invalidRequest(first, body), rules)
  }
}

const passedPath = "It is passed on where '/tokenize' is among the paths that are passed on."

/** Engines tokenize only the text, even engines that pass other requests on. */
function tokenizeReaderOf(
  schema: RequestSchemas['TokenizeRequest'],
  rules: RequestRules,
): (body: unknown) => TokenizeRequest {
  const check = rules.isPassedOn
    ? { known: withoutNeutral(tokenizeFields), advice: passedPath }
    : { known: tokenizeFields }
  return readerOf(schema, rules, toTokenizeRequest, {
    ...check,
    supported: [],
    isPassedOn: false,
  })
}

function toTokenizeRequest(
  body: z.infer<RequestSchemas['TokenizeRequest']>,
  rules: RequestRules,
  ignored: readonly string[],
): TokenizeRequest {
  servedModel(body.model, rules)
  const text = body.content ?? body.prompt
  if (typeof text === 'string') return { text, ignored }
  throw text === undefined ? missingField('prompt') : wrongType('prompt', 'a string', text)
}

/** A text to tokenize. */
interface TokenizeRequest {
  readonly text: string
  /** Paths of unread fields. */
  readonly ignored: readonly string[]
}

/** A request for text, checked and complete. */
export interface TextRequest {
  /** The served name that the client used. */
  readonly model: string
  readonly inputs: readonly PassedInput[]
  /** The number of answers for each input. */
  readonly n: number
  readonly sampling: Partial<Sampling>
  readonly priority: number
  readonly timeoutSeconds: number | null
  readonly isStream: boolean
  readonly includesUsage: boolean
  /** Paths of unread fields. */
  readonly ignored: readonly string[]
}

/** The limits and names that requests are checked against. */
interface RequestRules extends RequestBounds {
  /** The served names; the first is the default. */
  readonly models: readonly string[]
  /** Other accepted names, which are not listed. */
  readonly hiddenModels: readonly string[]
  readonly defaultMaxTokens: number
  /** The fields that the engine supports besides the basic ones. */
  readonly fields: readonly string[]
  /** Whether a proxy passes all fields on to the server behind the engine. */
  readonly isPassedOn: boolean
  /** Whether unread fields are refused instead of ignored. */
  readonly isStrict: boolean
}

/** The name of the model that the client asks for; throws an error with status 404 if unknown. */
function servedModel(asked: string | null | undefined, rules: RequestRules): string {
  if (asked === undefined || asked === null) return rules.models[0] ?? ''
  if (rules.models.includes(asked) || rules.hiddenModels.includes(asked)) return asked
  throw unknownModel(asked, rules.models)
}

type CommonBody = Partial<
  Pick<ChatBody, 'model' | 'n' | 'priority' | 'timeout' | 'stream' | 'stream_options'>
>

/** The fields that all requests have in common, for any engine. */
function commonOf(
  body: CommonBody,
  rules: RequestRules,
): Omit<TextRequest, 'inputs' | 'sampling' | 'ignored'> {
  const model = servedModel(body.model, rules)
  const isStream = body.stream ?? false
  if (isGiven(body.stream_options) && !isStream) {
    throw wrongValue(
      'stream_options',
      "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
    )
  }
  return {
    model,
    n: body.n ?? 1,
    priority: body.priority ?? 0,
    timeoutSeconds: body.timeout ?? null,
    isStream,
    includesUsage: body.stream_options?.include_usage ?? false,
  }
}

/** Converts a chat body. Throws `HttpError` if fields contradict each other. */
function toChatRequest(
  body: ChatBody,
  rules: RequestRules,
  ignored: readonly string[],
): TextRequest {
  const common = commonOf(body, rules)
  const input = toChatInput(body)
  const sampling = samplingOf(body, rules.defaultMaxTokens)
  sampling.logprobs = logprobsOf(body)
  const format = outputFormatOf(body)
  if (format !== undefined) sampling.format = format
  const isUnused = format !== undefined && isForced(input) && isOfResponse(body, format)
  if (isUnused && rules.isStrict) throw unreadField('response_format')
  const unread = isUnused ? [...ignored, 'response_format'] : ignored
  return { ...common, inputs: [input], sampling, ignored: unread }
}

/** A completion request. With `isEcho`, each answer begins with its prompt. */
interface CompletionRequest extends TextRequest {
  readonly prompts: readonly string[]
  readonly isEcho: boolean
}

/** Converts a completion body. Throws `HttpError` for more than `maxPrompts` answers in total. */
function toCompletionRequest(
  body: CompletionBody,
  rules: RequestRules,
  ignored: readonly string[],
): CompletionRequest {
  const common = commonOf(body, rules)
  const prompts = promptsOf(body.prompt)
  expectAnswers(common.n, prompts.length, rules)
  const sampling = samplingOf(body, rules.defaultMaxTokens)
  sampling.logprobs = body.logprobs ?? null
  const format = outputFormatOf(body)
  if (format !== undefined) sampling.format = format
  const isEcho = body.echo ?? false
  const hasTokens = prompts.some((prompt) => typeof prompt !== 'string')
  if (isEcho && (hasTokens || sampling.logprobs !== null)) sampling.echo = true
  return {
    ...common,
    prompts: prompts.map((prompt) => (typeof prompt === 'string' ? prompt : '')),
    inputs: prompts.map((prompt) =>
      typeof prompt === 'string'
        ? { kind: 'text', text: prompt }
        : { kind: 'text', text: '', tokens: prompt },
    ),
    isEcho,
    sampling,
    ignored,
  }
}

function expectAnswers(n: number, prompts: number, rules: RequestRules): void {
  const max = Math.max(1, Math.min(publicMax, Math.floor(rules.maxPrompts / prompts)))
  if (n <= max) return
  const bound = { side: 'max', value: max, isInclusive: true } as const
  throw withLimitName(outOfRange('n', 'integer', n, bound), rules)
}

/** Not in the schema, because a list may also be one prompt of token ids and texts. */
function expectPrompts(count: number, rules: RequestRules): void {
  if (count <= rules.maxPrompts) return
  const bound = { side: 'max', value: rules.maxPrompts, isInclusive: true } as const
  throw withLimitName(wrongLength('prompt', 'array', bound, count), rules)
}

/** Adds the name of the setting to an error about too many prompts or answers. */
function withLimitName(error: HttpError, { promptLimitName, maxPrompts }: RequestRules): HttpError {
  const { param, code, status, message } = error
  const isOfPrompts = code === 'array_above_max_length' && /^prompts?$/.test(param ?? '')
  const isOfAnswers = code === 'integer_above_max_value' && param === 'n'
  const isLimit = isOfPrompts || (isOfAnswers && !message.includes(`<= ${publicMax},`))
  if (!isLimit) return error
  const reason = `This server answers at most ${maxPrompts} per request (${promptLimitName}).`
  return new HttpError(status, `${message} ${reason}`, { code, param })
}

/** The maximum number of answers per prompt in the public API. */
const publicMax = 128

/** Converts each prompt to a chat with one user message and one answer; never a stream. */
function toGenerateRequest(
  body: GenerateBody,
  rules: RequestRules,
  ignored: readonly string[],
): TextRequest {
  const { model, priority, timeout } = body
  return {
    ...commonOf({ model, priority, timeout }, rules),
    inputs: body.prompts.map((content) => ({
      kind: 'chat',
      messages: [{ role: 'user', content }],
    })),
    sampling: samplingOf(body, rules.defaultMaxTokens),
    ignored,
  }
}

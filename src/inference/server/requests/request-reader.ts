/** Converts the JSON bodies that a server receives to checked requests for text. */

import { findFirstProblems, isValid } from '../../schema/problems.ts'
import { z } from '../../schema/schema.ts'
import type { Sampling } from '../../generation/inference-engine.ts'
import { isPlainObject } from '../../../foundation/json-value.ts'
import type { PassThroughInput, WireFields } from '../../generation/pass-through.ts'
import { tokenizeFields, dropNeutralValues } from '../../generation/fields/request-fields.ts'
import { HttpError } from '../../../runtime/http/http-error.ts'
import { FieldCheck, type FieldCheckOptions } from './field-check.ts'
import {
  requiresToolCall,
  isGiven,
  isResponseFormat,
  toLogprobs,
  toOutputFormat,
  toSampling,
  toChatInput,
} from './typed-request.ts'
import {
  createPassThroughSchemas,
  type PassThroughChatBody,
  type PassThroughCompletionBody,
  type PassThroughGenerateBody,
  readSampling,
  toPromptList,
  toPassThroughChat,
  toPassThroughPrompts,
  toPassThroughChats,
} from './pass-through-request.ts'
import {
  toRequestError,
  missingFieldError,
  outOfRangeError,
  unknownModelError,
  unreadFieldError,
  wrongLengthError,
  wrongTypeError,
  wrongValueError,
} from './invalid-request.ts'
import {
  type ChatBody,
  type CompletionBody,
  type EmbeddingBody,
  createRequestSchemas,
  type GenerateBody,
  type RequestBounds,
  type RequestSchemas,
} from './request-schema.ts'

export type RequestReader = ReturnType<typeof createRequestReader>

/**
 * Creates the functions that read each kind of body. They throw `HttpError` for an invalid body.
 */
export function createRequestReader(rules: RequestRules) {
  const typed = createRequestSchemas(rules)
  const { TokenizeRequest, DetokenizeRequest, EmbeddingRequest } = typed
  const own = { TokenizeRequest, DetokenizeRequest }
  const canEmbed = rules.fields.includes('embeddings')
  const { schemas, ...readers } = rules.isPassedOn
    ? createPassThroughReaders(rules)
    : createTypedReaders(typed, rules)
  return {
    rules,
    schemas: { ...schemas, ...own, ...(canEmbed ? { EmbeddingRequest } : {}) },
    readEmbedding: createReader(EmbeddingRequest, rules, toEmbeddingRequest),
    readTokenize: createTokenizeReader(TokenizeRequest, rules),
    readDetokenize: createReader(DetokenizeRequest, rules, toDetokenizeRequest, ownFields),
    readForwarded: (body: unknown) => toForwardedFields(body, rules),
    ...readers,
  }
}

function createTypedReaders(schemas: RequestSchemas, rules: RequestRules) {
  const { ChatCompletionRequest, CompletionRequest, GenerateRequest } = schemas
  const paths = {
    '/v1/chat/completions': ChatCompletionRequest,
    '/v1/completions': CompletionRequest,
  }
  const findPaths = (name: string): readonly string[] =>
    Object.entries(paths).flatMap(([path, { shape }]) => (Object.hasOwn(shape, name) ? path : []))
  return {
    schemas: {
      ChatCompletionRequest: selectAcceptedFields(ChatCompletionRequest, rules),
      CompletionRequest: selectAcceptedFields(CompletionRequest, rules),
      GenerateRequest: selectAcceptedFields(GenerateRequest, rules),
    },
    readChat: createReader(ChatCompletionRequest, rules, toChatRequest, { findPaths }),
    readCompletion: createReader(CompletionRequest, rules, toCompletionRequest, { findPaths }),
    readGenerate: createReader(GenerateRequest, rules, toGenerateRequest, { findPaths }),
  }
}

function selectAcceptedFields(
  schema: z.ZodObject,
  { fields: supported, isStrict }: RequestRules,
): z.ZodObject {
  const schemaFields = Object.keys(schema.shape)
  const check = new FieldCheck({ schemaFields, supported, isPassedOn: false, isStrict })
  const acceptedFields = Object.entries(schema.shape).filter(([name]) => check.accepts(name))
  return z.object(Object.fromEntries(acceptedFields))
}

function createPassThroughReaders(rules: RequestRules) {
  const schemas = createPassThroughSchemas(rules)
  return {
    schemas,
    readChat: createReader(schemas.ChatCompletionRequest, rules, (body, _, ignored) =>
      toPassThroughRequest(body, [toPassThroughChat(body)], rules, ignored),
    ),
    readCompletion: createReader(schemas.CompletionRequest, rules, (body, _, ignored) => {
      const inputs = toPassThroughPrompts(body)
      expectPromptCount(inputs.length, rules)
      expectAnswerCount(body.n ?? 1, inputs.length, rules)
      const request = toPassThroughRequest(body, inputs, rules, ignored)
      // With `echo`, the server behind the engine already repeats the prompt.
      return {
        ...request,
        hasLogprobs: typeof request.sampling.logprobs === 'number',
        prompts: inputs.map(() => ''),
        isEcho: false,
      }
    }),
    readGenerate: createReader(schemas.GenerateRequest, rules, (body, _, ignored) =>
      toPassThroughRequest({ ...body, stream: false }, toPassThroughChats(body), rules, ignored),
    ),
  }
}

/** Returns the fields of a body for a forwarded path. The model is left out. */
function toForwardedFields(body: unknown, rules: RequestRules): WireFields {
  if (!isPlainObject(body)) throw wrongTypeError('body', 'an object', body)
  const { model, ...fields } = body
  const isName = model === undefined || model === null || typeof model === 'string'
  if (!isName) throw wrongTypeError('model', 'a string', model)
  expectServedModel(model, rules)
  return fields
}

function toPassThroughRequest(
  body: PassThroughChatBody | PassThroughCompletionBody | PassThroughGenerateBody,
  inputs: readonly PassThroughInput[],
  rules: RequestRules,
  ignored: readonly string[],
): TextRequest {
  const isChat = inputs[0]?.kind !== 'text'
  const sampling = { maxTokens: rules.defaultMaxTokens, ...readSampling(body, isChat) }
  return { ...toCommonFields(body, rules), inputs, sampling, ignored }
}

function createReader<S extends z.ZodObject, Request>(
  schema: S,
  rules: RequestRules,
  convert: (body: z.input<S>, rules: RequestRules, ignored: readonly string[]) => Request,
  check: Partial<FieldCheckOptions> = {},
): (body: unknown) => Request {
  const { fields: supported, isPassedOn, isStrict } = rules
  const schemaFields = Object.keys(schema.shape)
  const fields = new FieldCheck({ schemaFields, supported, isPassedOn, isStrict, ...check })
  return (body) => {
    if (isValid(schema, body)) return convert(body, rules, fields.findIgnored(body))
    fields.expectSupported(body)
    const [first] = findFirstProblems(schema, body)
    if (first === undefined) throw new TypeError('the compiled check and the schema disagree')
    throw withLimitName(toRequestError(first, body), rules)
  }
}

const tokenizeAdvice = "It is passed on where '/tokenize' is among the paths that are passed on."

/** Engines tokenize a text only. They do not pass on the other fields of the request. */
function createTokenizeReader(schema: RequestSchemas['TokenizeRequest'], rules: RequestRules) {
  const check = rules.isPassedOn
    ? { known: dropNeutralValues(tokenizeFields), advice: tokenizeAdvice }
    : { known: tokenizeFields }
  return createReader(schema, rules, toTokenizeRequest, { ...check, ...ownFields })
}

/** For paths that the server answers itself, even if there is a server behind the engine. */
const ownFields = { supported: [], isPassedOn: false }

function toDetokenizeRequest(
  { model, tokens }: z.infer<RequestSchemas['DetokenizeRequest']>,
  rules: RequestRules,
  ignored: readonly string[],
) {
  expectServedModel(model, rules)
  return { tokens, ignored }
}

function toTokenizeRequest(
  body: z.infer<RequestSchemas['TokenizeRequest']>,
  rules: RequestRules,
  ignored: readonly string[],
) {
  expectServedModel(body.model, rules)
  const text = body.content ?? body.prompt
  if (typeof text === 'string') return { text, ignored }
  throw text === undefined
    ? missingFieldError('prompt')
    : wrongTypeError('prompt', 'a string', text)
}

export interface TextRequest {
  readonly model: string
  readonly inputs: readonly PassThroughInput[]
  readonly n: number
  /** The number of answers to each input, of which the best `n` are returned. Default: `n`. */
  readonly bestOf?: number
  readonly sampling: Partial<Sampling>
  readonly priority: number
  readonly timeoutSeconds: number | null
  readonly isStream: boolean
  readonly includesUsage: boolean
  readonly ignored: readonly string[]
}

interface RequestRules extends RequestBounds {
  /** The served names; the first is the default. */
  readonly models: readonly string[]
  /** Other names that are accepted but not listed. */
  readonly hiddenModels: readonly string[]
  readonly purpose: 'chat' | 'embedding'
  readonly defaultMaxTokens: number
  readonly fields: readonly string[]
  readonly isPassedOn: boolean
  readonly isStrict: boolean
}

function expectServedModel(requested: string | null | undefined, rules: RequestRules): string {
  if (requested === undefined || requested === null) return rules.models[0] ?? ''
  if (rules.models.includes(requested) || rules.hiddenModels.includes(requested)) return requested
  throw unknownModelError(requested, rules.models)
}

type CommonBody = Partial<
  Pick<ChatBody, 'model' | 'n' | 'priority' | 'timeout' | 'stream' | 'stream_options'>
>

function toCommonFields(
  body: CommonBody,
  rules: RequestRules,
): Omit<TextRequest, 'inputs' | 'sampling' | 'ignored'> {
  const model = expectServedModel(body.model, rules)
  if (rules.purpose === 'embedding') {
    throw wrongValueError(
      'model',
      `The model '${model}' computes embeddings and generates no text.`,
    )
  }
  const isStream = body.stream ?? false
  if (isGiven(body.stream_options) && !isStream) {
    throw wrongValueError(
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

function toChatRequest(
  body: ChatBody,
  rules: RequestRules,
  ignored: readonly string[],
): TextRequest {
  const common = toCommonFields(body, rules)
  const input = toChatInput(body)
  const sampling = toSampling(body, rules.defaultMaxTokens)
  sampling.logprobs = toLogprobs(body)
  const format = toOutputFormat(body)
  if (format !== undefined) sampling.format = format
  const isUnused = format !== undefined && requiresToolCall(input) && isResponseFormat(body, format)
  if (input.continuesFinalMessage === true && (format !== undefined || requiresToolCall(input))) {
    throw wrongValueError(
      'continue_final_message',
      "Invalid value for 'continue_final_message': the answer must be text, in no required form.",
    )
  }
  if (isUnused && rules.isStrict) throw unreadFieldError('response_format')
  const unread = isUnused ? [...ignored, 'response_format'] : ignored
  return { ...common, inputs: [input], sampling, ignored: unread }
}

/** If `isEcho` is set, each answer begins with its prompt. */
interface CompletionRequest extends TextRequest {
  readonly prompts: readonly string[]
  readonly isEcho: boolean
  readonly hasLogprobs: boolean
}

/** Throws `HttpError` if all prompts together request more answers than the limit `maxPrompts`. */
function toCompletionRequest(
  body: CompletionBody,
  rules: RequestRules,
  ignored: readonly string[],
): CompletionRequest {
  const common = toCommonFields(body, rules)
  const prompts = toPromptList(body.prompt)
  const bestOf = readBestOf(body, common)
  expectAnswerCount(bestOf, prompts.length, rules)
  const sampling = toSampling(body, rules.defaultMaxTokens)
  const hasLogprobs = isGiven(body.logprobs)
  // The log probabilities are needed to choose the best answers.
  sampling.logprobs = body.logprobs ?? (bestOf > common.n ? 0 : null)
  const format = toOutputFormat(body)
  if (format !== undefined) sampling.format = format
  const isEcho = body.echo ?? false
  const hasTokens = prompts.some((prompt) => typeof prompt !== 'string')
  if (isEcho && (hasTokens || hasLogprobs)) sampling.echo = true
  return {
    ...common,
    prompts: prompts.map((prompt) => (typeof prompt === 'string' ? prompt : '')),
    inputs: prompts.map((prompt) =>
      typeof prompt === 'string'
        ? { kind: 'text', text: prompt }
        : { kind: 'text', text: '', tokens: prompt },
    ),
    isEcho,
    hasLogprobs,
    bestOf,
    sampling,
    ignored,
  }
}

export interface EmbeddingRequest extends TextRequest {
  readonly dimensions: number | null
  readonly isBase64: boolean
}

function toEmbeddingRequest(
  body: EmbeddingBody,
  rules: RequestRules,
  ignored: readonly string[],
): EmbeddingRequest {
  const model = expectServedModel(body.model, rules)
  if (!rules.fields.includes('embeddings')) {
    throw wrongValueError('model', `The model '${model}' has no embeddings.`)
  }
  const inputs = toPromptList(body.input).map((input) =>
    typeof input === 'string'
      ? ({ kind: 'text', text: input, wantsEmbedding: true } as const)
      : ({ kind: 'text', text: '', tokens: input, wantsEmbedding: true } as const),
  )
  expectPromptCount(inputs.length, rules)
  return {
    model,
    inputs,
    n: 1,
    sampling: { maxTokens: 0 },
    priority: body.priority ?? 0,
    timeoutSeconds: body.timeout ?? null,
    isStream: false,
    includesUsage: false,
    ignored,
    dimensions: body.dimensions ?? null,
    isBase64: body.encoding_format === 'base64',
  }
}

function readBestOf(body: CompletionBody, { n, isStream }: Pick<TextRequest, 'n' | 'isStream'>) {
  const bestOf = body.best_of ?? n
  if (bestOf >= n && (bestOf === n || !isStream)) return bestOf
  const reason = bestOf < n ? "it must be at least 'n'." : "it is not allowed with 'stream'."
  throw wrongValueError('best_of', `Invalid value for 'best_of': ${reason}`)
}

function expectAnswerCount(n: number, prompts: number, rules: RequestRules): void {
  const max = Math.max(1, Math.min(maxAnswersPerPrompt, Math.floor(rules.maxPrompts / prompts)))
  if (n <= max) return
  const bound = { side: 'max', value: max, isInclusive: true } as const
  throw withLimitName(outOfRangeError('n', 'integer', n, bound), rules)
}

/** The schema cannot check the number of prompts, because a list may also be one prompt. */
function expectPromptCount(count: number, rules: RequestRules): void {
  if (count <= rules.maxPrompts) return
  const bound = { side: 'max', value: rules.maxPrompts, isInclusive: true } as const
  throw withLimitName(wrongLengthError('prompt', 'array', bound, count), rules)
}

/** Adds the name of the setting to an error about too many prompts or answers. */
function withLimitName(error: HttpError, { promptLimitName, maxPrompts }: RequestRules): HttpError {
  const { param, code, status, message } = error
  const isPromptLimit = code === 'array_above_max_length' && /^prompts?$/.test(param ?? '')
  const isAnswerLimit = code === 'integer_above_max_value' && param === 'n'
  const isServerLimit =
    isPromptLimit || (isAnswerLimit && !message.includes(`<= ${maxAnswersPerPrompt},`))
  if (!isServerLimit) return error
  const reason = `This server answers at most ${maxPrompts} per request (${promptLimitName}).`
  return new HttpError(status, `${message} ${reason}`, { code, param })
}

/** The maximum number of answers per prompt in the public API. */
const maxAnswersPerPrompt = 128

/** Converts each prompt to a chat with one user message. */
function toGenerateRequest(
  body: GenerateBody,
  rules: RequestRules,
  ignored: readonly string[],
): TextRequest {
  const { model, priority, timeout } = body
  return {
    ...toCommonFields({ model, priority, timeout }, rules),
    inputs: body.prompts.map((content) => ({
      kind: 'chat',
      messages: [{ role: 'user', content }],
    })),
    sampling: toSampling(body, rules.defaultMaxTokens),
    ignored,
  }
}

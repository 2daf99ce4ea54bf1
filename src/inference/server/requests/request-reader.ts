/** Turns the JSON bodies that one server receives into checked requests for text. */

import { Checker } from '../../../schema/problems.ts'
import type { z } from '../../../schema/schema.ts'
import type {
  ChatMessage,
  GenerationInput,
  Sampling,
  SupportedFields,
  ToolChoice,
  ToolDefinition,
  WireFields,
} from '../../generation/inference-engine.ts'
import { isFields } from '../../generation/fields/answer-fields.ts'
import { FieldCheck } from './field-check.ts'
import { outputFormatOf } from './output-format.ts'
import { isGiven, logprobsOf, samplingOf } from './sampling-of.ts'
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
  wrongType,
  wrongValue,
} from './invalid-request.ts'
import {
  type ChatBody,
  type CompletionBody,
  createRequestSchemas,
  type GenerateBody,
  type MessageBody,
  type RequestBounds,
  type RequestSchemas,
} from './request-schema.ts'

/** One function for each kind of body; all of them throw `HttpError`. */
export interface RequestReader {
  readonly rules: RequestRules
  readonly schemas: Readonly<Record<keyof RequestSchemas, z.ZodObject>>
  readonly readChat: (body: unknown) => TextRequest
  readonly readCompletion: (body: unknown) => CompletionRequest
  readonly readGenerate: (body: unknown) => TextRequest
  /** The text whose tokens are asked for. */
  readonly readTokenize: (body: unknown) => string
  /** The fields of a body that is passed on to another path, without the model. */
  readonly readForwarded: (body: unknown) => WireFields
}

/** Compiles the schemas once: a request only runs the checks. */
export function createRequestReader(rules: RequestRules): RequestReader {
  const typed = createRequestSchemas(rules)
  if (rules.fields === 'all') return createPassedReader(rules, typed.TokenizeRequest)
  const schemas = typed
  return {
    rules,
    schemas,
    readChat: readerOf(schemas.ChatCompletionRequest, rules, toChatRequest),
    readCompletion: readerOf(schemas.CompletionRequest, rules, toCompletionRequest),
    readGenerate: readerOf(schemas.GenerateRequest, rules, toGenerateRequest),
    readTokenize: readerOf(schemas.TokenizeRequest, rules, toTokenizeText),
    readForwarded: (body) => toForwardedFields(body, rules),
  }
}

/** For an engine that passes requests on. */
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
      expectAnswers(body.n ?? 1, inputs.length, rules)
      // The server behind the engine repeats the prompt, with its log probabilities.
      return {
        ...toPassedRequest(body, inputs, rules, ignored),
        prompts: inputs.map(() => ''),
        isEcho: false,
      }
    }),
    readGenerate: readerOf(schemas.GenerateRequest, rules, (body, _, ignored) =>
      toPassedRequest({ ...body, stream: false }, toPassedQuestions(body), rules, ignored),
    ),
    readTokenize: readerOf(TokenizeRequest, rules, toTokenizeText),
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
  inputs: readonly GenerationInput[],
  rules: RequestRules,
  ignored: readonly string[],
): TextRequest {
  const { n, priority, timeout } = body as { n?: number; priority?: number; timeout?: number }
  const isChat = inputs[0]?.kind !== 'text'
  return {
    model: servedModel(body.model, rules),
    inputs,
    n: n ?? 1,
    sampling: { maxTokens: rules.defaultMaxTokens, ...passedSampling(body, isChat) },
    priority: priority ?? 0,
    timeoutSeconds: timeout ?? null,
    ...streamingOf(body),
    ignored,
  }
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
): (body: unknown) => Request {
  const checker = new Checker(schema)
  const { fields: supported, isStrict } = rules
  const fields = new FieldCheck({ described: Object.keys(schema.shape), supported, isStrict })
  return (body) => {
    if (checker.isValid(body)) return convert(body, rules, fields.ignoredIn(body))
    fields.expectSupported(body)
    const [first] = checker.problemsIn(body)
    if (first === undefined) throw new TypeError('the compiled check and the schema disagree')
    throw invalidRequest(first, body)
  }
}

function toTokenizeText(
  body: z.infer<RequestSchemas['TokenizeRequest']>,
  rules: RequestRules,
): string {
  servedModel(body.model, rules)
  const text = body.content ?? body.prompt
  if (typeof text === 'string') return text
  throw text === undefined ? missingField('prompt') : wrongType('prompt', 'a string', text)
}

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
  /** Paths of fields that nobody reads. */
  readonly ignored: readonly string[]
}

/** What a request is checked against. */
interface RequestRules extends RequestBounds {
  /** The served names; the first is the default. */
  readonly models: readonly string[]
  /** Names that are understood, but not shown. */
  readonly hiddenModels: readonly string[]
  readonly defaultMaxTokens: number
  /** What the engine supports besides the basic fields. */
  readonly fields: SupportedFields
  /** Refuses fields that nobody reads instead of ignoring them. */
  readonly isStrict: boolean
}

/** The served model that is asked for, or an error with status 404. */
function servedModel(asked: string | null | undefined, rules: RequestRules): string {
  if (asked === undefined || asked === null) return rules.models[0] ?? ''
  if (rules.models.includes(asked) || rules.hiddenModels.includes(asked)) return asked
  throw unknownModel(asked, rules.models)
}

/** Whether the answer is streamed, and whether the stream ends with its usage. */
function streamingOf(
  body: Pick<ChatBody, 'stream' | 'stream_options'>,
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

/** The request; fields that do not fit together are an `HttpError` that names one of them. */
function toChatRequest(
  body: ChatBody,
  rules: RequestRules,
  ignored: readonly string[],
): TextRequest {
  const model = servedModel(body.model, rules)
  const tools = body.tools?.map(toTool)
  const toolChoice = toolChoiceOf(body, tools)
  const sampling = samplingOf(body, rules.defaultMaxTokens)
  sampling.logprobs = logprobsOf(body)
  const format = outputFormatOf(body)
  if (format !== undefined) sampling.format = format
  return {
    model,
    inputs: [
      {
        kind: 'chat',
        messages: body.messages.map(toMessage),
        ...(tools === undefined ? {} : { tools }),
        ...(toolChoice === undefined ? {} : { toolChoice }),
        ...templateFields(body),
      },
    ],
    n: body.n ?? 1,
    sampling,
    priority: body.priority ?? 0,
    timeoutSeconds: body.timeout ?? null,
    ...streamingOf(body),
    ignored,
  }
}

function templateFields(body: ChatBody): Partial<Extract<GenerationInput, { kind: 'chat' }>> {
  const { parallel_tool_calls: parallel, chat_template_kwargs: given, reasoning_effort } = body
  return {
    ...(parallel === false ? { parallelToolCalls: false } : {}),
    ...(isGiven(given) ? { templateArguments: given } : {}),
    ...(isGiven(reasoning_effort) ? { reasoningEffort: reasoning_effort } : {}),
  }
}

function toMessage(body: MessageBody): ChatMessage {
  const { role, content, name } = body
  const calls = role === 'assistant' ? body.tool_calls : undefined
  const thought = role === 'assistant' ? (body.reasoning_content ?? body.reasoning) : undefined
  return {
    role: role === 'developer' ? 'system' : role,
    content: typeof content === 'string' ? content : textOf(content ?? []),
    ...(isGiven(name) ? { name } : {}),
    ...(isGiven(thought) ? { reasoning: thought } : {}),
    ...(isGiven(calls) ? { toolCalls: calls.map(toToolCall) } : {}),
    ...(role === 'tool' ? { toolCallId: body.tool_call_id } : {}),
  }
}

const textOf = (parts: readonly { readonly text: string }[]): string =>
  parts.map(({ text }) => text).join('')

type AssistantBody = Extract<MessageBody, { role: 'assistant' }>
type ToolCallBody = NonNullable<AssistantBody['tool_calls']>[number]

const toToolCall = ({ id, function: called }: ToolCallBody) => ({
  id,
  name: called.name,
  arguments: called.arguments,
})

function toTool({ function: described }: NonNullable<ChatBody['tools']>[number]): ToolDefinition {
  const { name, description, parameters } = described
  return {
    name,
    ...(isGiven(description) ? { description } : {}),
    ...(isGiven(parameters) ? { parameters } : {}),
  }
}

function toolChoiceOf(
  { tool_choice: choice }: ChatBody,
  tools: readonly ToolDefinition[] | undefined,
): ToolChoice | undefined {
  if (!isGiven(choice)) return undefined
  if (choice !== 'none' && (tools === undefined || tools.length === 0)) {
    throw wrongValue(
      'tool_choice',
      "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified.",
    )
  }
  if (typeof choice === 'string') return choice
  const { name } = choice.function
  if (tools?.some((tool) => tool.name === name) === true) return { name }
  throw wrongValue(
    'tool_choice.function.name',
    `Invalid value for 'tool_choice.function.name': no tool in 'tools' is called '${name}'.`,
  )
}

/** A completion request; with `isEcho` each answer begins with its prompt. */
interface CompletionRequest extends TextRequest {
  readonly prompts: readonly string[]
  readonly isEcho: boolean
}

/** The request; more answers than `maxPrompts` for all prompts together are an `HttpError`. */
function toCompletionRequest(
  body: CompletionBody,
  rules: RequestRules,
  ignored: readonly string[],
): CompletionRequest {
  const model = servedModel(body.model, rules)
  const prompts = promptsOf(body.prompt)
  const n = body.n ?? 1
  expectAnswers(n, prompts.length, rules)
  const sampling = samplingOf(body, rules.defaultMaxTokens)
  sampling.logprobs = body.logprobs ?? null
  const format = outputFormatOf(body)
  if (format !== undefined) sampling.format = format
  const isEcho = body.echo ?? false
  const hasTokens = prompts.some((prompt) => typeof prompt !== 'string')
  if (isEcho && (hasTokens || sampling.logprobs !== null)) sampling.echo = true
  return {
    model,
    prompts: prompts.map((prompt) => (typeof prompt === 'string' ? prompt : '')),
    inputs: prompts.map((prompt) =>
      typeof prompt === 'string'
        ? { kind: 'text', text: prompt }
        : { kind: 'text', text: '', tokens: prompt },
    ),
    n,
    isEcho,
    sampling,
    priority: body.priority ?? 0,
    timeoutSeconds: body.timeout ?? null,
    ...streamingOf(body),
    ignored,
  }
}

function expectAnswers(n: number, prompts: number, { maxPrompts }: RequestRules): void {
  const most = Math.max(1, Math.min(128, Math.floor(maxPrompts / prompts)))
  if (n <= most) return
  throw outOfRange('n', 'integer', n, { side: 'max', value: most, isInclusive: true })
}

/** One answer to each prompt, as if a user had asked it; never a stream. */
function toGenerateRequest(
  body: GenerateBody,
  rules: RequestRules,
  ignored: readonly string[],
): TextRequest {
  return {
    model: servedModel(body.model, rules),
    inputs: body.prompts.map((content) => ({
      kind: 'chat',
      messages: [{ role: 'user', content }],
    })),
    n: 1,
    sampling: samplingOf(body, rules.defaultMaxTokens),
    priority: body.priority ?? 0,
    timeoutSeconds: body.timeout ?? null,
    isStream: false,
    includesUsage: false,
    ignored,
  }
}

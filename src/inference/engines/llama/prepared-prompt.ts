/** Converts a request to tokens, a grammar and a parser for the output, or to a failure. */

import { isDeepStrictEqual } from 'node:util'
import { messageOf, tryRead } from '../../../foundation/errors.ts'
import { definedFields } from '../../../foundation/options.ts'
import type {
  ChatMessage,
  GenerationInput,
  OutputFormat,
  PromptTokens,
  ToolDefinition,
} from '../../generation/inference-engine.ts'
import type { Failure, LlamaRequest } from './protocol.ts'
import type { ChatTemplate, TemplateTraits, TemplateVariables } from './templates/chat-template.ts'
import { grammarPrefix, planParsing, requiresCall } from './formats/output-parsing.ts'
import type { OutputParsing } from './formats/answer-decoder.ts'
import {
  ArgumentError,
  callableTools,
  type ChatInput,
  emptyParameters,
  toPlainMessage,
  toTemplateArguments,
  toTemplateMessages,
  withDescribedTools,
} from './templates/template-messages.ts'
import { TemplateError } from './jinja/limits.ts'
import type { CachedGrammar } from './grammar/next-characters.ts'
import type { LlamaRuntime, Token, Vocabulary } from './runtime.ts'
import type { GrammarFormat } from './grammar/output-grammar.ts'
import { SchemaError } from './grammar/schema-keywords.ts'

export interface PreparedPrompt {
  readonly tokens: readonly Token[]
  readonly grammar: CachedGrammar | null
  readonly parsing: OutputParsing
}

/** Compares the contents, because this process receives copies of requests. */
export const isSamePrompt = (one: LlamaRequest, other: LlamaRequest): boolean =>
  isDeepStrictEqual(one.input, other.input) &&
  isDeepStrictEqual(one.sampling.format, other.sampling.format)

export type PrepareResult = PreparedPrompt | Failure

export function preparePrompt(request: LlamaRequest, runtime: LlamaRuntime): PrepareResult {
  const { input, sampling } = request
  const { template, vocabulary, contextLength } = runtime
  const tools = callableTools(input)
  if (requiresCall(input) && tools.length === 0) {
    return { code: 'unsupported', message: 'the required tool is not among the tools' }
  }
  try {
    const format: GrammarFormat | TextFormat = requiresCall(input)
      ? { kind: 'call', tools }
      : sampling.format
    const hasGrammar = format.kind !== 'text'
    const rendered = renderPrompt(input, template, hasGrammar)
    const minTokens = minTokenCount(rendered, vocabulary)
    if (minTokens >= contextLength) return tooLongFailure(`at least ${minTokens}`, contextLength)
    const ids = input.kind === 'text' ? input.tokens : undefined
    const unknown = ids?.find((id) => id < 0 || id >= vocabulary.size)
    if (unknown !== undefined) return unknownTokenFailure(unknown, vocabulary, 'prompt')
    const tokens = ids ?? promptTokens(rendered, vocabulary)
    if (tokens.length === 0) return { code: 'unsupported', message: 'the prompt is empty' }
    if (tokens.length >= contextLength) return tooLongFailure(`${tokens.length}`, contextLength)
    const grammar = createGrammar(format, request, runtime)
    if (grammar !== null && 'code' in grammar) return grammar
    const prompt = rendered.pieces.at(-1) ?? ''
    const parsing = planParsing({ input, template, prompt, hasGrammar, vocabulary })
    return { tokens, grammar, parsing }
  } catch (error) {
    return toFailure(error, template)
  }
}

/** Returns a prompt as the model reads it. A prompt of tokens has no text. */
export function readPrompt(input: GenerationInput, runtime: LlamaRuntime): PromptTokens | Failure {
  const { template, vocabulary, contextLength } = runtime
  try {
    const rendered = renderPrompt(input, template, requiresCall(input))
    const fewest = minTokenCount(rendered, vocabulary)
    if (fewest >= contextLength) return tooLongFailure(`at least ${fewest}`, contextLength)
    const given = input.kind === 'text' ? input.tokens : undefined
    const tokens = given ?? promptTokens(rendered, vocabulary)
    return { text: rendered.pieces.join(''), tokens }
  } catch (error) {
    return toFailure(error, template)
  }
}

export function detokenize(
  tokens: readonly Token[],
  vocabulary: Vocabulary,
): PromptTokens | Failure {
  const unknownToken = tokens.find((id) => id < 0 || id >= vocabulary.size)
  if (unknownToken !== undefined) return unknownTokenFailure(unknownToken, vocabulary, 'tokens')
  return { text: vocabulary.fullTextOf(tokens), tokens }
}

/** If the template rejects the conversation, the client is at fault; otherwise the template is. */
function toFailure(error: unknown, template: ChatTemplate | null): Failure {
  const message = messageOf(error)
  if (error instanceof ArgumentError) {
    const { param, clientCode } = error
    return { code: 'unsupported', message, param, clientCode }
  }
  if (!(error instanceof TemplateError)) return { code: 'unsupported', message }
  const problem = template?.problem ?? null
  if (error.isRaised && problem === null) {
    return { code: 'unsupported', message, param: 'messages' }
  }
  return {
    code: 'engine_error',
    message: `the chat template of the model cannot be rendered: ${problem ?? message}`,
  }
}

function createGrammar(
  format: GrammarFormat | TextFormat,
  request: LlamaRequest,
  runtime: LlamaRuntime,
): CachedGrammar | Failure | null {
  if (format.kind === 'text') return null
  try {
    return runtime.createGrammar(format)
  } catch (error) {
    const param = toolParam(error, request) ?? grammarParam(request)
    const message = `Invalid '${param}': ${messageOf(error)}`
    const isInvalid = error instanceof SchemaError && error.isInvalid
    const clientCode = isInvalid ? 'invalid_value' : 'unsupported_value'
    return { code: 'unsupported', message, param, clientCode }
  }
}

export function grammarParam({ input, sampling }: LlamaRequest): string {
  if (requiresCall(input)) return 'tools'
  const { format } = sampling
  return ('field' in format ? format.field : undefined) ?? 'response_format'
}

function toolParam(error: unknown, { input }: LlamaRequest): string | null {
  const isOfTool = error instanceof SchemaError && error.tool !== null
  if (!isOfTool || input.kind === 'text') return null
  const tool = callableTools(input)[error.tool]
  return `tools[${input.tools?.findIndex((one) => one === tool)}].function.parameters`
}

type TextFormat = Extract<OutputFormat, { kind: 'text' }>

const unknownTokenFailure = (id: number, { size }: Vocabulary, param: string): Failure => ({
  code: 'unsupported',
  message: `Invalid token in '${param}': ${id}. The model has ${size} tokens.`,
  param,
})

const tooLongFailure = (count: string, limit: number): Failure => ({
  code: 'context_length_exceeded',
  message:
    `the prompt has ${count} tokens, and the model's context is ${limit} tokens ` +
    'for prompt and answer together',
  hint: 'shorten the prompt, or raise max_model_len if the model allows it',
})

/** Inserted into the texts of control tokens in client input, to split them. */
const splitMark = '\uFDD0'

/** The text that the model continues. Its pieces are tokenized separately. */
export interface RenderedPrompt {
  readonly pieces: readonly string[]
  readonly hasControlTokens: boolean
}

export function renderPrompt(
  input: GenerationInput,
  template: ChatTemplate | null,
  hasGrammar = false,
): RenderedPrompt {
  if (input.kind === 'text') return { pieces: [input.text], hasControlTokens: false }
  if (template === null) {
    toTemplateArguments(input, null)
    return { pieces: [toPlainText(input)], hasControlTokens: false }
  }
  const { chat, beginning } = splitFinalMessage(input)
  const text = template.render(toTemplateVariables(chat, template))
  const isAnswer = hasGrammar || beginning !== ''
  const prefix = isAnswer ? grammarPrefix(template, text) : ''
  const all = text + prefix + escapeControls(beginning, template.controlTexts)
  const pieces = all.split(splitMark)
  return { pieces, hasControlTokens: true }
}

/**
 * Templates close each message. An answer that the model continues must stay open, so it is added
 * after the rendered messages.
 */
function splitFinalMessage(chat: ChatInput): {
  readonly chat: ChatInput
  readonly beginning: string
} {
  if (chat.continuesFinalMessage !== true) return { chat, beginning: '' }
  const messages = chat.messages.slice(0, -1)
  return { chat: { ...chat, messages }, beginning: chat.messages.at(-1)?.content ?? '' }
}

export function promptTokens(
  { pieces, hasControlTokens }: RenderedPrompt,
  vocabulary: Vocabulary,
): Token[] {
  const tokens = pieces.flatMap((text, at) =>
    vocabulary.tokenize(text, { special: hasControlTokens, inner: at > 0 }),
  )
  const { firstToken } = vocabulary
  return firstToken === null || tokens[0] === firstToken ? tokens : [firstToken, ...tokens]
}

/** Returns a lower bound, without tokenizing the text. It is often enough to refuse a prompt. */
function minTokenCount({ pieces }: RenderedPrompt, { maxTokenLength }: Vocabulary): number {
  return Math.ceil(pieces.reduce((sum, { length }) => sum + length, 0) / maxTokenLength)
}

function toPlainText(chat: ChatInput): string {
  const messages = withDescribedTools(chat).map(toPlainMessage)
  const isSystem = ({ role }: ChatMessage): boolean => role === 'system'
  const others = messages.filter((message) => !isSystem(message))
  const ordered = [...messages.filter(isSystem), ...others]
  return ordered.map(({ content }) => content).join('\n\n')
}

/** Texts of the client are escaped, so that they cannot become control tokens. */
function toTemplateVariables(chat: ChatInput, template: ChatTemplate): TemplateVariables {
  const { traits, controlTexts } = template
  const tools = traits.rendersTools ? callableTools(chat).map(toFunctionDefinition) : []
  const messages = toTemplateMessages(chat, traits)
  const hasTools = tools.length > 0
  const system = hasTools && traits.toolsIn === 'system' ? { tools: JSON.stringify(tools) } : {}
  const entries = tools.map((tool) => ({ type: 'function', function: tool }))
  const more = hasTools && traits.toolsIn === 'variable' ? { tools: entries } : {}
  return {
    messages: messages.map((message, at) => ({
      role: message.role,
      ...(escapeAll(
        { ...toTemplateMessage(message, traits), ...(at === 0 ? system : {}) },
        controlTexts,
      ) as object),
    })),
    ...toTemplateArguments(chat, template),
    ...(escapeAll(more, controlTexts) as typeof more),
    add_generation_prompt: true,
  }
}

function toTemplateMessage(
  { content, name, toolCalls, toolCallId, reasoning }: ChatMessage,
  { argumentsAs }: TemplateTraits,
): object {
  return definedFields({
    content,
    name,
    reasoning_content: reasoning,
    tool_call_id: toolCallId,
    tool_calls: toolCalls?.map(({ id, name: tool, arguments: text }) => ({
      id,
      type: 'function',
      function: { name: tool, arguments: argumentsAs === 'text' ? text : parseOrKeep(text) },
    })),
  })
}

/** Parses arguments, because templates encode them as JSON. Text that is not JSON is kept. */
function parseOrKeep(text: string): unknown {
  const value = tryRead(() => JSON.parse(text) as unknown)
  return value === undefined ? text : value
}

const toFunctionDefinition = ({ name, description = '', parameters }: ToolDefinition): object => ({
  name,
  description,
  parameters: parameters ?? emptyParameters,
})

function escapeAll(value: unknown, controls: readonly string[]): unknown {
  if (typeof value === 'string') return escapeControls(value, controls)
  if (Array.isArray(value)) return value.map((item) => escapeAll(item, controls))
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(
    Object.entries(value).map(([key, item]) => [
      escapeControls(key, controls),
      escapeAll(item, controls),
    ]),
  )
}

function escapeControls(text: string, controls: readonly string[]): string {
  let escaped = text.replaceAll(splitMark, '')
  for (const control of controls) {
    if (control === '' || !escaped.includes(control)) continue
    const [head = ''] = control
    escaped = escaped.replaceAll(control, () => head + splitMark + control.slice(head.length))
  }
  return escaped
}

/** Converts a request to tokens, a grammar and a parser for the output, or to a failure. */

import { isDeepStrictEqual } from 'node:util'
import { messageOf } from '../../../foundation/errors.ts'
import type {
  ChatMessage,
  GenerationInput,
  OutputFormat,
  ToolDefinition,
} from '../../generation/inference-engine.ts'
import type { Failure, PlainRequest } from './protocol.ts'
import { ArgumentError, templateArguments } from './templates/template-arguments.ts'
import type { ChatTemplate, TemplateTraits, TemplateVariables } from './templates/chat-template.ts'
import { prefixOfGrammar, readingOf, requiresCall } from './formats/output-reading.ts'
import type { OutputReading } from './formats/result-text.ts'
import {
  callableTools,
  emptyParameters,
  toPlainRole,
  toTemplateMessages,
  withDescribedTools,
} from './templates/template-messages.ts'
import { TemplateError } from './jinja/limits.ts'
import type { FollowedGrammar } from './grammar/next-characters.ts'
import type { LlamaRuntime, Token, Vocabulary } from './runtime.ts'
import type { GrammarFormat } from './grammar/output-grammar.ts'
import { SchemaFault } from './grammar/schema-keywords.ts'

export interface PreparedPrompt {
  readonly tokens: readonly Token[]
  readonly grammar: FollowedGrammar | null
  readonly reading: OutputReading
}

/**
 * Prepares consecutive requests with equal prompts only once, such as the choices of one HTTP
 * request. The shared result is never changed.
 */
export class PromptPreparer {
  readonly #runtime: LlamaRuntime
  #last: { readonly request: PlainRequest; readonly prepared: Prepared } | null = null

  constructor(runtime: LlamaRuntime) {
    this.#runtime = runtime
  }

  prepare(request: PlainRequest): Prepared {
    if (this.#last !== null && isSamePrompt(this.#last.request, request)) {
      return this.#last.prepared
    }
    const prepared = preparePrompt(request, this.#runtime)
    this.#last = { request, prepared }
    return prepared
  }

  /** Releases the last prompt. */
  forget(): void {
    this.#last = null
  }
}

/** Compares by content, because this process receives copies of requests. */
const isSamePrompt = (one: PlainRequest, other: PlainRequest): boolean =>
  isDeepStrictEqual(one.input, other.input) &&
  isDeepStrictEqual(one.sampling.format, other.sampling.format)

type Prepared = PreparedPrompt | Failure

/** Never throws: returns a failure for a request that cannot be prepared. */
function preparePrompt(request: PlainRequest, runtime: LlamaRuntime): Prepared {
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
    const fewest = minTokens(rendered, vocabulary)
    if (fewest >= contextLength) return tooLong(`at least ${fewest}`, contextLength)
    const ids = input.kind === 'text' ? input.tokens : undefined
    const unknown = ids?.find((id) => id < 0 || id >= vocabulary.size)
    if (unknown !== undefined) return unknownToken(unknown, vocabulary)
    const tokens = ids ?? promptTokens(rendered, vocabulary)
    if (tokens.length === 0) return { code: 'unsupported', message: 'the prompt is empty' }
    if (tokens.length >= contextLength) return tooLong(`${tokens.length}`, contextLength)
    const grammar = createGrammar(format, request, runtime)
    if (grammar !== null && 'code' in grammar) return grammar
    const prompt = rendered.pieces.at(-1) ?? ''
    const reading = readingOf({ input, template, prompt, hasGrammar, vocabulary })
    return { tokens, grammar, reading }
  } catch (error) {
    return toFailure(error, template)
  }
}

/**
 * A conversation that the template rejects is the client's error. A failure of the template itself
 * is the server's error.
 */
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

/** Returns a failure that names the field if the format cannot be enforced. */
function createGrammar(
  format: GrammarFormat | TextFormat,
  request: PlainRequest,
  runtime: LlamaRuntime,
): FollowedGrammar | Failure | null {
  if (format.kind === 'text') return null
  try {
    return runtime.createGrammar(format)
  } catch (error) {
    const param = paramOfTool(error, request) ?? paramOfGrammar(request)
    const message = `Invalid '${param}': ${messageOf(error)}`
    const isInvalid = error instanceof SchemaFault && error.isInvalid
    const clientCode = isInvalid ? 'invalid_value' : 'unsupported_value'
    return { code: 'unsupported', message, param, clientCode }
  }
}

/** The field of the request that requires the grammar. */
export function paramOfGrammar({ input, sampling }: PlainRequest): string {
  if (requiresCall(input)) return 'tools'
  const { format } = sampling
  return ('field' in format ? format.field : undefined) ?? 'response_format'
}

/** The path of the tool parameters that caused the error; `null` for other errors. */
function paramOfTool(error: unknown, { input }: PlainRequest): string | null {
  const isOfTool = error instanceof SchemaFault && error.tool !== null
  if (!isOfTool || input.kind === 'text') return null
  const tool = callableTools(input)[error.tool]
  return `tools[${input.tools?.findIndex((one) => one === tool)}].function.parameters`
}

type TextFormat = Extract<OutputFormat, { kind: 'text' }>

const unknownToken = (id: number, { size }: Vocabulary): Failure => ({
  code: 'unsupported',
  message: `Invalid token in 'prompt': ${id}. The model has ${size} tokens.`,
  param: 'prompt',
})

const tooLong = (count: string, limit: number): Failure => ({
  code: 'context_length_exceeded',
  message:
    `the prompt has ${count} tokens, and the model's context is ${limit} tokens ` +
    'for prompt and answer together',
  hint: 'shorten the prompt, or raise max_model_len if the model allows it',
})

type Chat = Extract<GenerationInput, { kind: 'chat' }>

/**
 * Marks where a text is split so that it is not read as a control token. A Unicode noncharacter
 * that is removed from all texts first.
 */
const splitMark = '\uFDD0'

/** The text to continue, in pieces that are tokenized separately. */
export interface RenderedPrompt {
  readonly pieces: readonly string[]
  /** Whether texts of control tokens are tokenized as control tokens. */
  readonly special: boolean
}

/** Throws the errors of the template. */
export function renderPrompt(
  input: GenerationInput,
  template: ChatTemplate | null,
  hasGrammar = false,
): RenderedPrompt {
  if (input.kind === 'text') return { pieces: [input.text], special: false }
  if (template === null) {
    templateArguments(input, null)
    return { pieces: [toPlainText(input)], special: false }
  }
  const text = template.render(templateInput(input, template))
  const all = hasGrammar ? text + prefixOfGrammar(template, text) : text
  const pieces = all.split(splitMark)
  return { pieces, special: true }
}

export function promptTokens({ pieces, special }: RenderedPrompt, vocabulary: Vocabulary): Token[] {
  const tokens = pieces.flatMap((text, at) => vocabulary.tokenize(text, { special, inner: at > 0 }))
  const { first } = vocabulary
  return first === null || tokens[0] === first ? tokens : [first, ...tokens]
}

/**
 * A lower bound of the number of tokens, computed without tokenizing. Often sufficient to refuse a
 * prompt.
 */
function minTokens({ pieces }: RenderedPrompt, { maxTokenLength }: Vocabulary): number {
  return Math.ceil(pieces.reduce((sum, { length }) => sum + length, 0) / maxTokenLength)
}

/** For models without a template: the messages in order, system messages first. */
function toPlainText(chat: Chat): string {
  const messages = withDescribedTools(chat).map(toPlainRole)
  const isSystem = ({ role }: ChatMessage): boolean => role === 'system'
  const others = messages.filter((message) => !isSystem(message))
  const ordered = [...messages.filter(isSystem), ...others]
  return ordered.map(({ content }) => content).join('\n\n')
}

/** The variables that templates expect. Client texts cannot become control tokens. */
function templateInput(chat: Chat, template: ChatTemplate): TemplateVariables {
  const { traits, controls } = template
  const tools = traits.knowsTools ? callableTools(chat).map(toFunction) : []
  const messages = toTemplateMessages(chat, traits)
  const hasTools = tools.length > 0
  const system = hasTools && traits.toolsIn === 'system' ? { tools: JSON.stringify(tools) } : {}
  const more = hasTools && traits.toolsIn === 'variable' ? { tools: tools.map(toListed) } : {}
  return {
    messages: messages.map((message, at) => ({
      role: message.role,
      ...(escapeAll(
        { ...toTemplateMessage(message, traits), ...(at === 0 ? system : {}) },
        controls,
      ) as object),
    })),
    ...templateArguments(chat, template),
    ...(escapeAll(more, controls) as typeof more),
    add_generation_prompt: true,
  }
}

function toTemplateMessage(
  { content, name, toolCalls, toolCallId, reasoning }: ChatMessage,
  { argumentsAs }: TemplateTraits,
): object {
  return {
    content,
    ...(name === undefined ? {} : { name }),
    ...(reasoning === undefined ? {} : { reasoning_content: reasoning }),
    ...(toolCallId === undefined ? {} : { tool_call_id: toolCallId }),
    ...(toolCalls === undefined
      ? {}
      : {
          tool_calls: toolCalls.map(({ id, name: tool, arguments: text }) => ({
            id,
            type: 'function',
            function: { name: tool, arguments: argumentsAs === 'text' ? text : parsed(text) },
          })),
        }),
  }
}

/** Parsed, because templates themselves encode arguments as JSON. */
function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return text
  }
}

const toFunction = ({ name, description = '', parameters }: ToolDefinition): object => ({
  name,
  description,
  parameters: parameters ?? emptyParameters,
})

const toListed = (tool: object): object => ({ type: 'function', function: tool })

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

/** Splits every control-token text after its first character. */
function escapeControls(text: string, controls: readonly string[]): string {
  let escaped = text.replaceAll(splitMark, '')
  for (const control of controls) {
    if (control === '' || !escaped.includes(control)) continue
    const [head = ''] = control
    escaped = escaped.replaceAll(control, () => head + splitMark + control.slice(head.length))
  }
  return escaped
}

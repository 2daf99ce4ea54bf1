/** Turns a request into tokens, a grammar and tools; what is impossible is a failure. */

import { isDeepStrictEqual } from 'node:util'
import { messageOf } from '../../../foundation/errors.ts'
import type {
  GenerationInput,
  OutputFormat,
  ToolDefinition,
} from '../../generation/inference-engine.ts'
import { callableTools, minTokens, promptTokens, renderPrompt } from './chat-prompt.ts'
import type { Failure, PlainRequest } from './protocol.ts'
import type { Grammar, LlamaRuntime, Token } from './runtime.ts'
import { callSchema } from './tool-calls.ts'

export interface PreparedPrompt {
  readonly tokens: readonly Token[]
  readonly grammar: Grammar | null
  /** Calls of these are recognised in the output. */
  readonly tools: readonly ToolDefinition[]
}

/**
 * Prepares consecutive requests with equal prompts once, such as the choices of one HTTP request.
 * What they share is never changed.
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

/** By content: requests arrive in this process as copies. */
const isSamePrompt = (one: PlainRequest, other: PlainRequest): boolean =>
  isDeepStrictEqual(one.input, other.input) &&
  isDeepStrictEqual(one.sampling.format, other.sampling.format)

type Prepared = PreparedPrompt | Failure

/** Never throws: what is impossible is returned as a failure. */
function preparePrompt(request: PlainRequest, runtime: LlamaRuntime): Prepared {
  const { input, sampling } = request
  const { template, vocabulary, contextLength } = runtime
  const tools = callableTools(input)
  if (requiresCall(input) && tools.length === 0) {
    return { code: 'unsupported', message: 'the required tool is not among the tools' }
  }
  try {
    const rendered = renderPrompt(input, template)
    const fewest = minTokens(rendered, vocabulary)
    if (fewest >= contextLength) return tooLong(`at least ${fewest}`, contextLength)
    const tokens = promptTokens(rendered, vocabulary)
    if (tokens.length === 0) return { code: 'unsupported', message: 'the prompt is empty' }
    if (tokens.length >= contextLength) return tooLong(`${tokens.length}`, contextLength)
    const format = requiresCall(input) ? formatOfCall(tools) : sampling.format
    const grammar = format.kind === 'text' ? null : runtime.createGrammar(format)
    return { tokens, grammar, tools }
  } catch (error) {
    return { code: 'unsupported', message: messageOf(error) }
  }
}

const formatOfCall = (tools: readonly ToolDefinition[]): OutputFormat => ({
  kind: 'json_schema',
  schema: callSchema(tools),
})

/** Whether the output must be a tool call. */
function requiresCall(input: GenerationInput): boolean {
  if (input.kind === 'text') return false
  return input.toolChoice === 'required' || typeof input.toolChoice === 'object'
}

const tooLong = (count: string, limit: number): Failure => ({
  code: 'context_length_exceeded',
  message:
    `the prompt has ${count} tokens, and the model's context is ${limit} tokens ` +
    'for prompt and answer together',
  hint: 'shorten the prompt, or raise max_model_len if the model allows it',
})

/** Turns a request into what the model is given; fails with words for whoever asked. */

import { isDeepStrictEqual } from 'node:util'
import { messageOf } from '../../../foundation/errors.ts'
import type {
  GenerationInput,
  OutputFormat,
  ToolDefinition,
} from '../../generation/inference-engine.ts'
import { callableTools, leastTokens, spellPrompt, promptTokens } from './chat-prompt.ts'
import type { Failure, PlainRequest } from './protocol.ts'
import type { Grammar, LlamaRuntime, Token } from './runtime.ts'
import { callSchema } from './tool-calls.ts'

export interface PreparedPrompt {
  readonly tokens: readonly Token[]
  readonly grammar: Grammar | null
  /** Calls of these are looked for in the answer. */
  readonly tools: readonly ToolDefinition[]
}

/**
 * Prepares requests that follow each other and have equal prompts once, as the choices of one
 * question are. What they share is never changed.
 */
export class PromptPreparer {
  readonly #runtime: LlamaRuntime
  #latest: { readonly request: PlainRequest; readonly prepared: Prepared } | null = null

  constructor(runtime: LlamaRuntime) {
    this.#runtime = runtime
  }

  prepare(request: PlainRequest): Prepared {
    if (this.#latest !== null && isSamePrompt(this.#latest.request, request)) {
      return this.#latest.prepared
    }
    const prepared = preparePrompt(request, this.#runtime)
    this.#latest = { request, prepared }
    return prepared
  }

  /** Lets go of the latest prompt. */
  forget(): void {
    this.#latest = null
  }
}

/** By their content: texts and copies do not stay the same objects on their way here. */
const isSamePrompt = (one: PlainRequest, other: PlainRequest): boolean =>
  isDeepStrictEqual(one.input, other.input) &&
  isDeepStrictEqual(one.sampling.format, other.sampling.format)

type Prepared = PreparedPrompt | Failure

/** What cannot be done comes back as a failure, never as a throw. */
function preparePrompt(request: PlainRequest, runtime: LlamaRuntime): Prepared {
  const { input, sampling } = request
  const { template, vocabulary, contextLength } = runtime
  const tools = callableTools(input)
  if (isForced(input) && tools.length === 0) {
    return { code: 'unsupported', message: 'the tool that is to be called is not among the tools' }
  }
  try {
    const spelled = spellPrompt(input, template)
    const least = leastTokens(spelled, vocabulary)
    if (least >= contextLength) return tooLong(`at least ${least}`, contextLength)
    const tokens = promptTokens(spelled, vocabulary)
    if (tokens.length === 0) return { code: 'unsupported', message: 'the prompt is empty' }
    if (tokens.length >= contextLength) return tooLong(`${tokens.length}`, contextLength)
    const format = isForced(input) ? formatOfCall(tools) : sampling.format
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

/** The answer has to be a call. */
function isForced(input: GenerationInput): boolean {
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

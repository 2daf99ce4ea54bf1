/** Turns a request into what the model is given; fails with words for whoever asked. */

import { messageOf } from '../../../foundation/errors.ts'
import type { GenerationInput, OutputFormat, ToolDefinition } from '../../engine.ts'
import { callableTools, promptTokens } from './chat-prompt.ts'
import type { Failure, PlainRequest } from './protocol.ts'
import type { Grammar, LlamaRuntime, Token } from './runtime.ts'
import { callSchema } from './tool-calls.ts'

export interface PreparedPrompt {
  readonly tokens: readonly Token[]
  readonly grammar: Grammar | null
  /** Calls of these are looked for in the answer. */
  readonly tools: readonly ToolDefinition[]
}

/** What cannot be done comes back as a failure, never as a throw. */
export function preparePrompt(
  request: PlainRequest,
  runtime: LlamaRuntime,
): PreparedPrompt | Failure {
  const { input, sampling } = request
  const { template, vocabulary, contextLength } = runtime
  const tools = callableTools(input)
  if (isForced(input) && tools.length === 0) {
    return { code: 'unsupported', message: 'the tool that is to be called is not among the tools' }
  }
  try {
    const tokens = promptTokens(input, template, vocabulary)
    if (tokens.length === 0) return { code: 'unsupported', message: 'the prompt is empty' }
    if (tokens.length >= contextLength) return tooLong(tokens.length, contextLength)
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

const tooLong = (count: number, limit: number): Failure => ({
  code: 'context_length_exceeded',
  message:
    `the prompt has ${count} tokens, and the model's context is ${limit} tokens ` +
    'for prompt and answer together',
  hint: 'shorten the prompt, or raise max_model_len if the model allows it',
})

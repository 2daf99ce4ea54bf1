/** What the echo engine answers to a request. Pure: the same request, the same answer. */

import type {
  FinishReason,
  GenerationDelta,
  GenerationInput,
  GenerationRequest,
  OutputFormat,
  TokenLogprob,
  ToolDefinition,
  Usage,
} from '../generation/inference-engine.ts'
import { inferenceError } from '../generation/inference-errors.ts'
import { toPieces, toTokenId } from './echo-tokens.ts'
import { sampleJson } from './sample-json.ts'

export interface EchoAnswer {
  readonly deltas: readonly GenerationDelta[]
  readonly finishReason: FinishReason
  readonly usage: Usage
}

const mostDeltas = 8

/**
 * The prompt, or the last user's message, cut at `maxTokens` and stop strings; in JSON where a
 * format asks for it; a call where a tool is demanded. Throws an `InferenceError` for what it
 * cannot do.
 */
export function echoAnswer(request: GenerationRequest, contextLength: number): EchoAnswer {
  const { input, sampling } = request
  const promptTokens = countPrompt(input)
  if (promptTokens >= contextLength) {
    throw inferenceError(
      'context_length_exceeded',
      `the prompt has ${promptTokens} tokens, the context ${contextLength} for it and an answer`,
    )
  }
  const prompt = lastWords(input)
  const tool = demandedTool(input)
  if (tool !== null) return callOf(tool, prompt, request.id, promptTokens)
  const room = Math.min(sampling.maxTokens, contextLength - promptTokens)
  const all = toPieces(formatted(prompt, sampling.format))
  if (sampling.ignoreEos) repeat(all, room)
  const pieces = all.length > room ? all.slice(0, room) : all
  const isCut = all.length > room || (sampling.ignoreEos && all.length === room)
  const stopped = stopAt(pieces, sampling.stop)
  const kept = stopped ?? pieces
  return {
    deltas: toDeltas(kept, sampling.logprobs, promptTokens),
    finishReason: stopped === null && isCut ? 'length' : 'stop',
    usage: { promptTokens, completionTokens: kept.length },
  }
}

/** Each message and each text has a start token, as models have it. */
function countPrompt(input: GenerationInput): number {
  if (input.kind === 'text') return 1 + toPieces(input.text).length
  let count = 0
  for (const { content } of input.messages) count += 1 + toPieces(content).length
  return count
}

function lastWords(input: GenerationInput): string {
  if (input.kind === 'text') return input.text
  const last = input.messages.findLast(({ role }) => role === 'user') ?? input.messages.at(-1)
  return last?.content ?? ''
}

function formatted(prompt: string, format: OutputFormat): string {
  if (format.kind === 'text') return prompt
  if (format.kind === 'json_object') return JSON.stringify({ echo: prompt })
  return JSON.stringify(sampleJson(format.schema, prompt))
}

/** An end was not wished for: the words come again and again. */
function repeat(pieces: string[], length: number): void {
  const { length: period } = pieces
  if (period === 0) return
  for (let at = period; at < length; at++) pieces.push(pieces[at - period] ?? '')
}

/** What comes before the first stop string; `null` when there is none. */
function stopAt(pieces: readonly string[], stop: readonly string[]): string[] | null {
  if (stop.length === 0) return null
  const text = pieces.join('')
  let end = Infinity
  for (const one of stop) {
    const at = one === '' ? -1 : text.indexOf(one)
    if (at >= 0) end = Math.min(end, at)
  }
  return end === Infinity ? null : toPieces(text.slice(0, end))
}

function toDeltas(
  pieces: readonly string[],
  logprobs: number | null,
  promptTokens: number,
): GenerationDelta[] {
  const size = Math.ceil(pieces.length / mostDeltas)
  const deltas: GenerationDelta[] = []
  for (let at = 0; at < pieces.length; at += size) {
    const some = pieces.slice(at, at + size)
    const delta = { text: some.join(''), ...(at === 0 ? { promptTokens } : {}) }
    if (logprobs === null) deltas.push(delta)
    else deltas.push({ ...delta, logprobs: some.map((token) => toLogprob(token, logprobs)) })
  }
  return deltas
}

/** Numbers that only look like probabilities. */
function toLogprob(token: string, count: number): TokenLogprob {
  const logprob = -(toTokenId(token) % 1000) / 1000
  const top = Array.from({ length: count }, (_, at) => ({
    token: at === 0 ? token : `${token}${at}`,
    logprob: logprob - at,
  }))
  return { token, logprob, top }
}

function demandedTool(input: GenerationInput): ToolDefinition | null {
  if (input.kind === 'text') return null
  const { tools = [], toolChoice = 'auto' } = input
  if (toolChoice === 'auto' || toolChoice === 'none') return null
  const tool =
    toolChoice === 'required' ? tools[0] : tools.find(({ name }) => name === toolChoice.name)
  if (tool === undefined) throw inferenceError('unsupported', 'the demanded tool is not defined')
  return tool
}

function callOf(
  tool: ToolDefinition,
  prompt: string,
  id: string,
  promptTokens: number,
): EchoAnswer {
  const given = JSON.stringify(sampleJson(tool.parameters ?? { type: 'object' }, prompt))
  const completionTokens = toPieces(tool.name).length + toPieces(given).length
  const toolCalls = [{ id: `call_${id}`, name: tool.name, arguments: given }]
  return {
    deltas: [{ text: '', toolCalls, promptTokens }],
    finishReason: 'tool_calls',
    usage: { promptTokens, completionTokens },
  }
}

/** An engine that returns the prompt, for tests and benchmarks. */

import { type Clock, systemClock } from '../../../foundation/clock.ts'
import type {
  EngineCapacity,
  FinishReason,
  GenerationDelta,
  GenerationEnd,
  GenerationInput,
  GenerationListener,
  GenerationRequest,
  InferenceEngine,
  ModelFacts,
  OutputFormat,
  TokenLogprob,
  ToolDefinition,
  Usage,
} from '../../generation/inference-engine.ts'
import { inferenceError } from '../../generation/inference-errors.ts'
import { toUnitVector } from '../../generation/fields/unit-vector.ts'
import { expectNumber } from '../../../foundation/options.ts'
import { numberBetween, section } from '../../schema/config-fields.ts'
import { z } from '../../schema/schema.ts'
import type { EngineDescriptor, EngineSettings } from '../engine-descriptor.ts'
import { sampleJson } from './sample-json.ts'
import {
  sharedChecks,
  expectOptions,
  integerAtLeast,
  optional,
  type OptionChecks,
} from '../engine-options.ts'

/** The latency, name and context length of the simulated model. */
export interface EchoEngineOptions {
  /** The simulated duration of a batch. Default 0. */
  readonly latencyMs?: number
  /** The additional simulated duration per request of a batch. Default 0. */
  readonly latencyPerPromptMs?: number
  readonly clock?: Clock
  /** The name of the simulated model. Default `echo`. */
  readonly modelName?: string
  /** The maximum number of tokens of prompt and answer together. Default 8192. */
  readonly contextLength?: number
}

/** Creates a deterministic engine. Without latency, `generate` reports results synchronously. */
export function createEchoEngine(options: EchoEngineOptions = {}): InferenceEngine {
  expectOptions('createEchoEngine', options, checks)
  return new EchoEngine(options)
}

const checkLatency = (field: string, value: unknown): number =>
  expectNumber(field, value, { min: 0, max: 3_600_000 })

const checks: OptionChecks<EchoEngineOptions> = {
  latencyMs: optional(checkLatency),
  latencyPerPromptMs: optional(checkLatency),
  clock: optional(sharedChecks.clock),
  modelName: optional(sharedChecks.modelName),
  contextLength: optional(integerAtLeast(1)),
}

/** The settings of the `echo` engine, which answers with the prompt. */
export interface EchoEngineConfig extends EngineSettings {
  readonly kind: 'echo'
  /** The simulated duration of a batch. */
  readonly latencyMs: number
  readonly latencyPerPromptMs: number
}

export const echoEngine: EngineDescriptor<EchoEngineConfig> = {
  kind: 'echo',
  model: 'name',
  nodes: 'any',
  hasServer: false,
  section() {
    const milliseconds = numberBetween(0, 3_600_000)
    return section({
      kind: z.literal('echo').describe('Repeats the prompt; for tests and benchmarks.'),
      latency_ms: milliseconds.default(0).describe('Simulated time of a batch.'),
      latency_per_prompt_ms: milliseconds
        .default(0)
        .describe('Simulated time of each prompt in it.'),
    }).describe('A deterministic engine without a model.')
  },
  slots: (_, maxBatchSize) => maxBatchSize,
  findPossibleFields: () => echoFields,
  create: (settings, { config, clock }) =>
    createEchoEngine({
      ...settings,
      modelName: config.modelPath,
      contextLength: config.llm.maxModelLen,
      clock,
    }),
}

const echoFields: readonly string[] = ['embeddings']

class EchoEngine implements InferenceEngine {
  readonly capacity: EngineCapacity = { admits: 'batch', slots: 65_536 }
  readonly #facts: ModelFacts
  readonly #latencyMs: number
  readonly #latencyPerPromptMs: number
  readonly #clock: Clock
  readonly #running = new Set<EchoRun>()
  #isClosed = false

  constructor(options: EchoEngineOptions) {
    const { modelName = 'echo', contextLength = 8192, clock = systemClock } = options
    this.#facts = { name: modelName, contextLength, hasChatTemplate: true, fields: echoFields }
    this.#latencyMs = options.latencyMs ?? 0
    this.#latencyPerPromptMs = options.latencyPerPromptMs ?? 0
    this.#clock = clock
  }

  async start(): Promise<ModelFacts> {
    if (this.#isClosed) throw closedError()
    return this.#facts
  }

  async generate(
    requests: readonly GenerationRequest[],
    listener: GenerationListener,
  ): Promise<void> {
    const waitMs = this.#latencyMs + this.#latencyPerPromptMs * requests.length
    const open: EchoRun[] = []
    for (const request of requests) {
      const run = new EchoRun(request, listener, this.#facts.contextLength)
      if (this.#isClosed) run.end({ kind: 'failed', error: closedError() })
      else if (waitMs === 0) run.send()
      if (!run.hasEnded) open.push(run)
    }
    if (open.length === 0) return
    const all = Promise.all(open.map((run) => run.watch()))
    for (const run of open) this.#running.add(run)
    const answer = (): void => {
      for (const run of open) run.send()
    }
    const cancel = waitMs === 0 ? undefined : this.#clock.after(waitMs, answer)
    await all
    cancel?.()
    for (const run of open) this.#running.delete(run)
  }

  async tokenize(text: string): Promise<readonly number[]> {
    return splitTokens(text).map(toTokenId)
  }

  lost(): Promise<string> {
    return new Promise(() => {})
  }

  async close(): Promise<void> {
    this.#isClosed = true
    for (const run of this.#running) run.end({ kind: 'failed', error: closedError() })
  }
}

const closedError = (): Error => inferenceError('closing', 'the echo engine was closed')

/** One running request. A slow reader delays only its own request. */
class EchoRun {
  readonly #request: GenerationRequest
  readonly #listener: GenerationListener
  readonly #contextLength: number
  #ended: PromiseWithResolvers<void> | null = null
  #result: EchoResult | null = null
  #nextDelta = 0
  hasEnded = false

  constructor(request: GenerationRequest, listener: GenerationListener, contextLength: number) {
    this.#request = request
    this.#listener = listener
    this.#contextLength = contextLength
  }

  watch(): Promise<void> {
    this.#ended = Promise.withResolvers()
    const { signal } = this.#request
    if (signal.aborted) this.handleEvent()
    else signal.addEventListener('abort', this)
    return this.#ended.promise
  }

  handleEvent(): void {
    this.end({ kind: 'canceled' })
  }

  send(): void {
    const { id, signal } = this.#request
    while (!this.hasEnded) {
      if (signal.aborted) return this.handleEvent()
      try {
        this.#result ??= createEchoResult(this.#request, this.#contextLength)
      } catch (error) {
        return this.end({ kind: 'failed', error })
      }
      const { deltas, finishReason, usage } = this.#result
      const delta = deltas[this.#nextDelta++]
      if (delta === undefined) return this.end({ kind: 'done', finishReason, usage })
      const paused = this.#listener.delta(id, delta)
      if (paused === undefined) continue
      const proceed = (): void => this.send()
      paused.then(proceed, proceed)
      return
    }
  }

  end(end: GenerationEnd): void {
    if (this.hasEnded) return
    this.hasEnded = true
    if (this.#ended !== null) this.#request.signal.removeEventListener('abort', this)
    this.#listener.end(this.#request.id, end)
    this.#ended?.resolve()
  }
}

interface EchoResult {
  readonly deltas: readonly GenerationDelta[]
  readonly finishReason: FinishReason
  readonly usage: Usage
}

const maxDeltas = 8

/**
 * Creates the answer, and cuts it at `maxTokens` and at stop texts. Throws for unsupported
 * requests.
 */
function createEchoResult(request: GenerationRequest, contextLength: number): EchoResult {
  const { input, sampling } = request
  const promptTokens = countPromptTokens(input)
  if (promptTokens >= contextLength) {
    throw inferenceError(
      'context_length_exceeded',
      `the prompt has ${promptTokens} tokens, the context ${contextLength} for it and an answer`,
    )
  }
  if (input.kind === 'text' && input.wantsEmbedding === true) {
    return toEmbeddingResult(input.text, promptTokens)
  }
  const prompt = lastUserText(input)
  const tool = requiredTool(input)
  if (tool !== null) return toToolCallResult(tool, prompt, request.id, promptTokens)
  const room = Math.min(sampling.maxTokens, contextLength - promptTokens)
  const all = splitTokens(formatText(prompt, sampling.format))
  if (sampling.ignoreEos) repeatTokens(all, room)
  const pieces = all.length > room ? all.slice(0, room) : all
  const isCut = all.length > room || (sampling.ignoreEos && all.length === room)
  const stopped = cutAtStop(pieces, sampling.stop)
  const kept = stopped ?? pieces
  return {
    deltas: toDeltas(kept, sampling.logprobs, promptTokens),
    finishReason: stopped === null && isCut ? 'length' : 'stop',
    usage: { promptTokens, completionTokens: kept.length },
  }
}

const embeddingLength = 64

/**
 * Each token of the text adds invented numbers, so that texts with common tokens have similar
 * embeddings.
 */
function toEmbeddingResult(text: string, promptTokens: number): EchoResult {
  const sums = new Float32Array(embeddingLength)
  for (const token of splitTokens(text)) {
    for (let at = 0; at < embeddingLength; at++) {
      sums[at] = (sums[at] ?? 0) + toTokenId(`${at} ${token.trim()}`) / 0x8000 - 1
    }
  }
  return {
    deltas: [{ text: '', promptTokens, embedding: toUnitVector(sums) }],
    finishReason: 'stop',
    usage: { promptTokens, completionTokens: 0 },
  }
}

/** Counts the tokens, and one start token per text or message, as real models do. */
function countPromptTokens(input: GenerationInput): number {
  if (input.kind === 'text') return 1 + splitTokens(input.text).length
  let count = 0
  for (const { content } of input.messages) count += 1 + splitTokens(content).length
  return count
}

function lastUserText(input: GenerationInput): string {
  if (input.kind === 'text') return input.text
  const last = input.messages.findLast(({ role }) => role === 'user') ?? input.messages.at(-1)
  return last?.content ?? ''
}

function formatText(prompt: string, format: OutputFormat): string {
  if (format.kind === 'text') return prompt
  if (format.kind === 'json_object') return JSON.stringify({ echo: prompt })
  return format.kind === 'json_schema' ? JSON.stringify(sampleJson(format.schema, prompt)) : prompt
}

function repeatTokens(pieces: string[], length: number): void {
  const { length: period } = pieces
  if (period === 0) return
  for (let at = period; at < length; at++) pieces.push(pieces[at - period] ?? '')
}

function cutAtStop(pieces: readonly string[], stop: readonly string[]): string[] | null {
  if (stop.length === 0) return null
  const text = pieces.join('')
  let end = Infinity
  for (const one of stop) {
    const at = one === '' ? -1 : text.indexOf(one)
    if (at >= 0) end = Math.min(end, at)
  }
  return end === Infinity ? null : splitTokens(text.slice(0, end))
}

function toDeltas(
  pieces: readonly string[],
  logprobs: number | null,
  promptTokens: number,
): GenerationDelta[] {
  const size = Math.ceil(pieces.length / maxDeltas)
  const deltas: GenerationDelta[] = []
  for (let at = 0; at < pieces.length; at += size) {
    const slice = pieces.slice(at, at + size)
    const delta = { text: slice.join(''), ...(at === 0 ? { promptTokens } : {}) }
    if (logprobs === null) deltas.push(delta)
    else deltas.push({ ...delta, logprobs: slice.map((token) => toLogprob(token, logprobs)) })
  }
  return deltas
}

/** Invented log probabilities that depend only on the token. */
function toLogprob(token: string, count: number): TokenLogprob {
  const logprob = -(toTokenId(token) % 1000) / 1000
  const top = Array.from({ length: count }, (_, at) => ({
    token: at === 0 ? token : `${token}${at}`,
    logprob: logprob - at,
  }))
  return { token, logprob, top }
}

function requiredTool(input: GenerationInput): ToolDefinition | null {
  if (input.kind === 'text') return null
  const { tools = [], toolChoice = 'auto' } = input
  if (toolChoice === 'auto' || toolChoice === 'none') return null
  const tool =
    toolChoice === 'required' ? tools[0] : tools.find(({ name }) => name === toolChoice.name)
  if (tool === undefined) throw inferenceError('unsupported', 'the required tool is not defined')
  return tool
}

function toToolCallResult(
  tool: ToolDefinition,
  prompt: string,
  id: string,
  promptTokens: number,
): EchoResult {
  const given = JSON.stringify(sampleJson(tool.parameters ?? { type: 'object' }, prompt))
  const completionTokens = splitTokens(tool.name).length + splitTokens(given).length
  const toolCalls = [{ id: `call_${id}`, name: tool.name, arguments: given }]
  return {
    deltas: [{ text: '', toolCalls, promptTokens }],
    finishReason: 'tool_calls',
    usage: { promptTokens, completionTokens },
  }
}

/** A token is up to eight characters of a word, with the white space before them. */
const tokenPattern = /\s{0,8}\S{1,8}|\s{1,8}/gu

function splitTokens(text: string): string[] {
  return text.match(tokenPattern) ?? []
}

function toTokenId(token: string): number {
  let hash = 0x811c9dc5
  for (let at = 0; at < token.length; at++) {
    hash = Math.imul(hash ^ token.charCodeAt(at), 0x01000193)
  }
  return hash >>> 16
}

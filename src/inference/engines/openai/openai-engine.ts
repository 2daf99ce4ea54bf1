/** The engine that uses a running OpenAI-compatible server. It starts no process itself. */

import { type Clock, sleep } from '../../../foundation/clock.ts'
import type { InferenceError } from '../../../foundation/errors.ts'
import type { Log } from '../../../foundation/log.ts'
import { didYouMean, expectString, invalid } from '../../../foundation/options.ts'
import { boundedWait, unlessAborted } from '../../../foundation/promises.ts'
import { registerSecret } from '../../../foundation/secrets.ts'
import { once } from '../../../foundation/service.ts'
import type {
  EngineCapacity,
  GenerationInput,
  GenerationListener,
  GenerationRequest,
  InferenceEngine,
  ModelFacts,
  Usage,
} from '../../generation/inference-engine.ts'
import { inferenceCodeOf, inferenceError } from '../../generation/inference-errors.ts'
import type {
  EngineProxy,
  ForwardedAnswer,
  ForwardedCall,
  PassedEnd,
} from '../../generation/pass-through.ts'
import { estimateTokens, promptText } from '../../generation/fields/message-text.ts'
import { createTextSchema, orNull, section } from '../../schema/config-fields.ts'
import { z } from '../../schema/schema.ts'
import { Secret } from '../../schema/secret.ts'
import type { EngineDescriptor, EngineSettings } from '../engine-descriptor.ts'
import {
  sharedChecks,
  expectOptions,
  integerFrom,
  nullable,
  type OptionChecks,
  secretText,
} from '../engine-options.ts'
import { toCall } from './request-body.ts'
import { addressSchema, concurrency, pathsSchema } from './server-fields.ts'
import { callUpstream } from './upstream-call.ts'
import {
  countOr,
  isResponding,
  listOf,
  parseJson,
  pick,
  type ServerAddress,
  textOr,
  toServerAddress,
  UpstreamLink,
  type UpstreamResponse,
} from './upstream-link.ts'
import { readRefusal, toRefusal } from './upstream-refusal.ts'

/** The server to attach to, the key to use, and the number of concurrent requests. */
export interface OpenAiEngineOptions {
  /** The address of the API, such as `http://127.0.0.1:8000/v1`. Without a path, `/v1` is added. */
  readonly baseUrl: string
  readonly apiKey: string | null
  /** The model's name in the server's list of models. */
  readonly modelName: string
  readonly maxConcurrency: number
  /** Paths whose requests may be passed on, such as `/v1/embeddings`. Default: none. */
  readonly paths?: readonly string[]
  /** The context length to assume if the server does not report it. */
  readonly contextLength: number
  readonly clock: Clock
  readonly log: Log
}

/**
 * An engine whose owner also watches the server, and may notice first that the server has ended.
 */
export interface AttachedEngine extends InferenceEngine {
  /**
   * Informs the engine that the server is gone: running requests reject with `engine_lost`, and
   * `lost` resolves.
   */
  abandon(reason: string): void
}

/** Creates an engine for a running server. The key is sent only in the authorization header. */
export function createOpenAiEngine(options: OpenAiEngineOptions): AttachedEngine {
  expectOptions('createOpenAiEngine', options, checks)
  const { apiKey } = options
  if (apiKey !== null) registerSecret(apiKey, 'apiKey')
  if (apiKey !== null && !/^[\x21-\x7e]+$/.test(apiKey)) {
    throw invalid('apiKey', 'printable ASCII without spaces', undefined)
  }
  return new OpenAiEngine(options, toServerAddress(options.baseUrl))
}

const checks: OptionChecks<OpenAiEngineOptions> = {
  baseUrl: expectString,
  apiKey: nullable(secretText),
  modelName: sharedChecks.modelName,
  maxConcurrency: sharedChecks.maxConcurrency,
  paths: sharedChecks.paths,
  contextLength: integerFrom(1),
  clock: sharedChecks.clock,
  log: sharedChecks.log,
}

/** The settings of the engine for a server that is already running. */
export interface OpenAiEngineConfig extends EngineSettings {
  readonly kind: 'openai'
  /** The address of the server, without a trailing `/`. */
  readonly baseUrl: string
  readonly apiKey: Secret | null
  /** The maximum number of concurrent requests. Default 64. */
  readonly maxConcurrency: number
  /** Paths to pass on to the server. Default `/v1/embeddings`, `/v1/responses`, `/v1/rerank`. */
  readonly paths: readonly string[]
}

export const openAiEngine: EngineDescriptor<OpenAiEngineConfig> = {
  kind: 'openai',
  model: 'name',
  nodes: 'this',
  hasServer: true,
  section: (env) =>
    section({
      kind: z.literal('openai').describe('An OpenAI-compatible server that runs already.'),
      base_url: addressSchema(env).describe(
        'Address of the server, such as http://localhost:8000/v1.',
      ),
      api_key: orNull(
        createTextSchema(env)({ isPrivate: true }).transform((key) => new Secret(key)),
      ).describe('Key of the server. Prefer `${env:NAME}`.'),
      max_concurrency: concurrency(),
      paths: pathsSchema(env),
    }).describe('A server that runs already.'),
  slots: ({ maxConcurrency }, maxBatchSize) => Math.min(maxConcurrency, maxBatchSize),
  create: (settings, { config, clock, log }) =>
    createOpenAiEngine({
      ...settings,
      apiKey: settings.apiKey?.reveal() ?? null,
      modelName: config.modelPath,
      contextLength: config.llm.maxModelLen,
      clock,
      log,
    }),
}

/** The time limit of requests that do not generate text. */
const metadataMs = 30_000
/** The maximum number of retries of a request if the server is too busy. */
const maxRetries = 2
/** The maximum number of retries if the connection broke before any text was delivered. */
const maxBreaks = 1
/** The number of additional connections for requests that do not generate text. */
const spareConnections = 4

class OpenAiEngine implements AttachedEngine {
  readonly capacity: EngineCapacity
  readonly proxy: EngineProxy
  readonly #options: OpenAiEngineOptions
  readonly #address: ServerAddress
  readonly #link: UpstreamLink
  readonly #lost = Promise.withResolvers<string>()
  /** Aborted when the engine is lost or closed. The reason is the error of all running requests. */
  readonly #gone = new AbortController()
  readonly #running = new Set<Promise<unknown>>()
  /** The number of forwarded requests in flight. */
  #forwarding = 0
  #probing: Promise<boolean> | undefined
  #hasWarnedOfUsage = false
  #canTokenize = true

  constructor(options: OpenAiEngineOptions, address: ServerAddress) {
    const { apiKey, maxConcurrency } = options
    this.#options = options
    this.#address = address
    this.capacity = { admits: 'step', slots: maxConcurrency }
    const { paths = [] } = options
    this.proxy = { paths, forward: (call) => this.#forward(call) }
    const forwarded = paths.length === 0 ? 0 : maxConcurrency
    const connections = maxConcurrency + forwarded + spareConnections
    this.#link = new UpstreamLink({ origin: address.origin, apiKey, connections })
  }

  async start(): Promise<ModelFacts> {
    const { modelName, contextLength } = this.#options
    const path = `${this.#address.api}/models`
    const { status, body } = await this.#request((signal) => this.#link.get(path, signal))
    if (status !== 200) throw this.#refusal(status, body)
    const served = servedContextLength(parseJson(body), modelName)
    return { name: modelName, contextLength: served ?? contextLength, hasChatTemplate: true }
  }

  async generate(
    requests: readonly GenerationRequest[],
    listener: GenerationListener,
  ): Promise<void> {
    const runs = requests.map((request) => this.#run(request, listener))
    const all = Promise.allSettled(runs)
    this.#running.add(all)
    const outcomes = await all
    this.#running.delete(all)
    const lost = outcomes.find((outcome) => outcome.status === 'rejected')
    if (lost !== undefined) throw lost.reason
  }

  async tokenize(text: string): Promise<readonly number[]> {
    this.#gone.signal.throwIfAborted()
    // Sends the text twice: vLLM and others read `prompt`, llama-server reads `content`.
    const json = JSON.stringify({ model: this.#options.modelName, prompt: text, content: text })
    const { status, body } = await this.#request((signal) =>
      this.#link.post(`${this.#address.root}/tokenize`, json, signal),
    )
    if ([404, 405, 501].includes(status)) {
      throw inferenceError('unsupported', 'the server does not report its tokens')
    }
    if (status !== 200) throw this.#refusal(status, body)
    const tokens = pick(parseJson(body), 'tokens')
    if (!Array.isArray(tokens) || tokens.some((token) => countOr(token, null) === null)) {
      throw inferenceError('upstream_error', 'the server behind this one gave no list of tokens')
    }
    return tokens as readonly number[]
  }

  async #forward({ path, fields, signal }: ForwardedCall): Promise<ForwardedAnswer> {
    const { modelName, maxConcurrency, clock } = this.#options
    if (this.#forwarding === maxConcurrency) {
      throw inferenceError('queue_full', 'too many requests for this path are under way')
    }
    const isOver = AbortSignal.any([signal, this.#gone.signal])
    const free = this.#countForwarded()
    // If the caller stops reading the answer, it aborts the signal, which frees the slot.
    isOver.addEventListener('abort', free, { once: true })
    try {
      const json = JSON.stringify({ ...fields, model: modelName })
      const response = await this.#link.post(this.#pathOf(path), json, isOver)
      const { status, contentType, bytes, ignored } = response
      if (status < 200 || status >= 300) throw await forwardedError(response, clock)
      return { status, contentType, bytes: finallyDo(bytes, free), ignored }
    } catch (error) {
      free()
      isOver.throwIfAborted()
      if (inferenceCodeOf(error) !== undefined) throw error
      await this.#checkServer()
      throw broken(error)
    }
  }

  /** Counts a forwarded request until the returned function is called for the first time. */
  #countForwarded(): () => void {
    this.#forwarding++
    let isCounted = true
    return () => {
      if (isCounted) this.#forwarding--
      isCounted = false
    }
  }

  /** Paths under `/v1/` are relative to the API's path, other paths to the root. */
  #pathOf(path: string): string {
    const { api, root } = this.#address
    return path.startsWith('/v1/') ? `${api}${path.slice(3)}` : `${root}${path}`
  }

  lost(): Promise<string> {
    return this.#lost.promise
  }

  abandon(reason: string): void {
    if (this.#gone.signal.aborted) return
    this.#gone.abort(inferenceError('engine_lost', reason))
    this.#lost.resolve(reason)
  }

  readonly close = once(async (): Promise<void> => {
    this.#gone.abort(inferenceError('closing', 'the engine is closing'))
    await this.#link.close()
    await Promise.all(this.#running)
  })

  get #where(): string {
    return `${this.#address.origin}${this.#address.api}`
  }

  /** Sends a request that does not generate text, with a time limit. */
  async #request(
    send: (signal: AbortSignal) => Promise<UpstreamResponse>,
  ): Promise<{ readonly status: number; readonly body: string }> {
    const over = new AbortController()
    const { signal } = this.#gone
    const sent = send(AbortSignal.any([signal, over.signal])).then(async (response) => ({
      status: response.status,
      body: await response.text(),
    }))
    try {
      return await boundedWait(this.#options.clock, metadataMs, sent)
    } catch (cause) {
      signal.throwIfAborted()
      throw inferenceError('not_ready', `no server responds at ${this.#where}`, { cause })
    } finally {
      over.abort()
    }
  }

  #refusal(status: number, text: string): InferenceError {
    return toRefusal(status, text, null, this.#options.clock.now()).error
  }

  /** Rejects only if the engine is lost. */
  async #run(request: GenerationRequest, listener: GenerationListener): Promise<void> {
    let end: PassedEnd
    try {
      end = await this.#generate(request, listener)
    } catch (error) {
      end = request.signal.aborted ? { kind: 'canceled' } : { kind: 'failed', error }
    }
    if (end.kind === 'failed' && inferenceCodeOf(end.error) === 'engine_lost') throw end.error
    listener.end(request.id, end)
  }

  async #generate(request: GenerationRequest, listener: GenerationListener): Promise<PassedEnd> {
    const { modelName, clock } = this.#options
    const signal = AbortSignal.any([request.signal, this.#gone.signal])
    const { path, body } = toCall(modelName, request)
    let breaks = 0
    for (let attempt = 1; ; attempt++) {
      const isLastAttempt = attempt > maxRetries
      const outcome = await callUpstream({
        link: this.#link,
        path: `${this.#address.api}${path}`,
        body,
        signal,
        deliver: (delta) => listener.delta(request.id, delta),
        clock,
        isLast: isLastAttempt,
      })
      if (outcome.kind === 'done') {
        const usage = outcome.usage ?? (await this.#countUsage(request.input, outcome.text))
        const { finishReason, fields } = outcome
        return { kind: 'done', finishReason, usage, ...(fields === undefined ? {} : { fields }) }
      }
      if (outcome.kind === 'refused') {
        if (outcome.waitMs === null || isLastAttempt) {
          return { kind: 'failed', error: outcome.error }
        }
        await sleep(clock, outcome.waitMs, { signal })
        outcome.leave()
      } else {
        await unlessAborted(signal, this.#checkServer())
        breaks++
        if (outcome.hasDelta || breaks > maxBreaks)
          return { kind: 'failed', error: broken(outcome.cause) }
      }
    }
  }

  /** Estimates the usage if the server reports none, without the tokens of the chat template. */
  async #countUsage(input: GenerationInput, output: string): Promise<Usage> {
    if (!this.#hasWarnedOfUsage) {
      this.#hasWarnedOfUsage = true
      const text = 'the server reports no usage; token counts are estimates'
      this.#options.log.warn('UsageEstimated', text)
    }
    const promptTokens = await this.#countTokens(promptText(input))
    return { promptTokens, completionTokens: await this.#countTokens(output) }
  }

  async #countTokens(text: string): Promise<number> {
    if (text === '') return 0
    try {
      if (this.#canTokenize) return (await this.tokenize(text)).length
    } catch {
      this.#canTokenize = false
    }
    return estimateTokens(text)
  }

  /** Called when a connection broke. Requests that broke at the same time share one probe. */
  async #checkServer(): Promise<void> {
    const { clock } = this.#options
    const { signal } = this.#gone
    const path = `${this.#address.api}/models`
    this.#probing ??= isResponding({ link: this.#link, path, clock, signal }).finally(() => {
      this.#probing = undefined
    })
    if (await this.#probing) return
    this.abandon(`the server at ${this.#where} does not respond anymore`)
    signal.throwIfAborted()
  }
}

async function* finallyDo<T>(items: AsyncIterable<T>, act: () => void): AsyncGenerator<T> {
  try {
    yield* items
  } finally {
    act()
  }
}

/** The error for a forwarded request, with a hint if the server does not have the path. */
async function forwardedError(response: UpstreamResponse, clock: Clock): Promise<InferenceError> {
  const { status } = response
  const { error } = await readRefusal(response, { clock, isLast: true })
  if (status !== 404 && status !== 405) return error
  const message = 'The server behind this one has nothing at this address.'
  return inferenceError('unsupported', 'the server has no such path', {
    cause: error.cause,
    refusal: { status: 404, message, param: null, code: 'unknown_url' },
  })
}

function broken(cause: unknown): InferenceError {
  return inferenceError('engine_error', 'the connection broke before the response ended', {
    cause,
  })
}

const maxNames = 10

/**
 * The context length in the server's list of models, or `null`; throws if the list does not contain
 * the model.
 */
function servedContextLength(list: unknown, model: string): number | null {
  const entries = listOf(pick(list, 'data'))
  const entry = entries.find((one) => pick(one, 'id') === model)
  if (entry !== undefined) return countOr(pick(entry, 'max_model_len'), null)
  const names = entries.map((one) => textOr(pick(one, 'id'), '')).filter((name) => name !== '')
  const known = names.slice(0, maxNames).map((name) => `"${name}"`)
  const more = names.length > maxNames ? ` and ${names.length - maxNames} more` : ''
  const served = known.length === 0 ? 'it serves no model' : `it serves ${known.join(', ')}${more}`
  throw inferenceError(
    'engine_error',
    `the server does not serve "${model}": ${served}${didYouMean(model, names)}`,
    { hint: "set the model's name to one that the server lists" },
  )
}

/** The engine that uses a running OpenAI-compatible server. It does not start a process. */

import { type Clock, sleep } from '../../../foundation/clock.ts'
import type { InferenceError } from '../../../foundation/errors.ts'
import type { Log } from '../../../foundation/log.ts'
import {
  definedFields,
  didYouMean,
  expectSecret,
  expectString,
  invalid,
} from '../../../foundation/options.ts'
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
import { toInferenceCode, inferenceError } from '../../generation/inference-errors.ts'
import type {
  EngineProxy,
  ForwardedAnswer,
  ForwardedCall,
  PassThroughEnd,
} from '../../generation/pass-through.ts'
import { estimateTokens, extractPrompt } from '../../generation/fields/message-text.ts'
import { createTextSchema, orNull, section } from '../../schema/config-fields.ts'
import { z } from '../../schema/schema.ts'
import { Secret } from '../../schema/secret.ts'
import type { EngineDescriptor, EngineSettings } from '../engine-descriptor.ts'
import {
  sharedChecks,
  expectOptions,
  integerAtLeast,
  nullable,
  type OptionChecks,
} from '../engine-options.ts'
import { toApiRequest } from './request-body.ts'
import { addressSchema, concurrencySchema, pathsSchema } from './server-fields.ts'
import { callUpstream } from './upstream-call.ts'
import {
  countOr,
  isResponding,
  listOf,
  parseJson,
  getPath,
  type UpstreamAddress,
  textOr,
  toUpstreamAddress,
  UpstreamLink,
  type UpstreamResponse,
} from './upstream-link.ts'
import { readRefusal, toRefusal } from './upstream-refusal.ts'

/** The server to use, the API key, and the number of concurrent requests. */
export interface OpenAiEngineOptions {
  /** The address of the API. If it has no path, `/v1` is added. */
  readonly baseUrl: string
  readonly apiKey: string | null
  /** The name of the model in the server's list of models. */
  readonly modelName: string
  readonly maxConcurrency: number
  /** Paths whose requests may be forwarded, such as `/v1/embeddings`. Default: none. */
  readonly paths?: readonly string[]
  /** The context length to assume if the server does not report it. */
  readonly contextLength: number
  readonly clock: Clock
  readonly log: Log
}

/** An engine that its owner can end, because the owner may notice earlier that the server ended. */
export interface AttachedEngine extends InferenceEngine {
  /** Ends the engine: running requests reject with `engine_lost`, and `lost` resolves. */
  abandon(reason: string): void
  detokenize(tokens: readonly number[]): Promise<string>
}

/** The API key is sent only in the authorization header. */
export function createOpenAiEngine(options: OpenAiEngineOptions): AttachedEngine {
  expectOptions('createOpenAiEngine', options, checks)
  const { apiKey } = options
  if (apiKey !== null) registerSecret(apiKey, 'apiKey')
  if (apiKey !== null && !/^[\x21-\x7e]+$/.test(apiKey)) {
    throw invalid('apiKey', 'printable ASCII without spaces', undefined)
  }
  return new OpenAiEngine(options, toUpstreamAddress(options.baseUrl))
}

const checks: OptionChecks<OpenAiEngineOptions> = {
  baseUrl: expectString,
  apiKey: nullable(expectSecret),
  modelName: sharedChecks.modelName,
  maxConcurrency: sharedChecks.maxConcurrency,
  paths: sharedChecks.paths,
  contextLength: integerAtLeast(1),
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
  /** Forwarded paths. Default `/v1/embeddings`, `/v1/responses`, `/v1/rerank`. */
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
      max_concurrency: concurrencySchema(),
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

const metadataTimeoutMs = 30_000
/** The maximum number of retries of a request that a busy server refused. */
const maxRetries = 2
/**
 * The maximum number of repetitions of a request whose connection broke before any text was
 * delivered.
 */
const maxReconnects = 1
const spareConnections = 4

class OpenAiEngine implements AttachedEngine {
  readonly capacity: EngineCapacity
  readonly proxy: EngineProxy
  readonly #options: OpenAiEngineOptions
  readonly #address: UpstreamAddress
  readonly #link: UpstreamLink
  readonly #lost = Promise.withResolvers<string>()
  /** Aborted when the engine is lost or closed. The reason is the error of all running requests. */
  readonly #endController = new AbortController()
  readonly #running = new Set<Promise<unknown>>()
  #forwardedCount = 0
  #probe: Promise<boolean> | undefined
  #hasWarnedOfUsage = false
  #canTokenize = true

  constructor(options: OpenAiEngineOptions, address: UpstreamAddress) {
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
    const { status, body } = await this.#fetchText((signal) => this.#link.get(path, signal))
    if (status !== 200) throw this.#toRefusalError(status, body)
    const served = servedContextLength(parseJson(body), modelName)
    return { name: modelName, contextLength: served ?? contextLength, hasChatTemplate: true }
  }

  async generate(
    requests: readonly GenerationRequest[],
    listener: GenerationListener,
  ): Promise<void> {
    const runs = requests.map((request) => this.#runRequest(request, listener))
    const all = Promise.allSettled(runs)
    this.#running.add(all)
    const outcomes = await all
    this.#running.delete(all)
    const lost = outcomes.find((outcome) => outcome.status === 'rejected')
    if (lost !== undefined) throw lost.reason
  }

  async tokenize(text: string): Promise<readonly number[]> {
    // vLLM and others read `prompt`, and llama-server reads `content`.
    const answer = await this.#askTokens('/tokenize', { prompt: text, content: text })
    const tokens = getPath(answer, 'tokens')
    if (!Array.isArray(tokens) || tokens.some((token) => countOr(token, null) === null)) {
      throw inferenceError('upstream_error', 'the server behind this one gave no list of tokens')
    }
    return tokens as readonly number[]
  }

  async detokenize(tokens: readonly number[]): Promise<string> {
    const answer = await this.#askTokens('/detokenize', { tokens })
    const text = getPath(answer, 'prompt') ?? getPath(answer, 'content')
    if (typeof text === 'string') return text
    throw inferenceError('upstream_error', 'the server behind this one gave no text')
  }

  async #askTokens(path: string, fields: object): Promise<unknown> {
    this.#endController.signal.throwIfAborted()
    const json = JSON.stringify({ model: this.#options.modelName, ...fields })
    const { status, body } = await this.#fetchText((signal) =>
      this.#link.post(`${this.#address.root}${path}`, json, signal),
    )
    if ([404, 405, 501].includes(status)) {
      throw inferenceError('unsupported', 'the server does not report its tokens')
    }
    if (status !== 200) throw this.#toRefusalError(status, body)
    return parseJson(body)
  }

  async #forward({ path, fields, signal }: ForwardedCall): Promise<ForwardedAnswer> {
    const { modelName, maxConcurrency, clock } = this.#options
    if (this.#forwardedCount === maxConcurrency) {
      throw inferenceError('queue_full', 'too many requests for this path are under way')
    }
    const endSignal = AbortSignal.any([signal, this.#endController.signal])
    this.#forwardedCount++
    let isCounted = true
    const freeSlot = (): void => {
      if (isCounted) this.#forwardedCount--
      isCounted = false
    }
    // The signal is aborted when the caller stops reading the answer.
    endSignal.addEventListener('abort', freeSlot, { once: true })
    try {
      const json = JSON.stringify({ ...fields, model: modelName })
      const response = await this.#link.post(this.#toUpstreamPath(path), json, endSignal)
      const { status, contentType, bytes, ignored } = response
      if (status < 200 || status >= 300) throw await toForwardError(response, clock)
      return { status, contentType, bytes: withFinally(bytes, freeSlot), ignored }
    } catch (error) {
      freeSlot()
      endSignal.throwIfAborted()
      if (toInferenceCode(error) !== undefined) throw error
      await this.#checkServer()
      throw toConnectionError(error)
    }
  }

  #toUpstreamPath(path: string): string {
    const { api, root } = this.#address
    return path.startsWith('/v1/') ? `${api}${path.slice(3)}` : `${root}${path}`
  }

  lost(): Promise<string> {
    return this.#lost.promise
  }

  abandon(reason: string): void {
    if (this.#endController.signal.aborted) return
    this.#endController.abort(inferenceError('engine_lost', reason))
    this.#lost.resolve(reason)
  }

  readonly close = once(async (): Promise<void> => {
    this.#endController.abort(inferenceError('closing', 'the engine is closing'))
    await this.#link.close()
    await Promise.all(this.#running)
  })

  get #apiUrl(): string {
    return `${this.#address.origin}${this.#address.api}`
  }

  async #fetchText(
    send: (signal: AbortSignal) => Promise<UpstreamResponse>,
  ): Promise<{ readonly status: number; readonly body: string }> {
    const timeout = new AbortController()
    const { signal } = this.#endController
    const sending = send(AbortSignal.any([signal, timeout.signal])).then(async (response) => ({
      status: response.status,
      body: await response.text(),
    }))
    try {
      return await boundedWait(this.#options.clock, metadataTimeoutMs, sending)
    } catch (cause) {
      signal.throwIfAborted()
      throw inferenceError('not_ready', `no server responds at ${this.#apiUrl}`, { cause })
    } finally {
      timeout.abort()
    }
  }

  #toRefusalError(status: number, text: string): InferenceError {
    return toRefusal(status, text, null, this.#options.clock.now()).error
  }

  /** Rejects only if the engine is lost. */
  async #runRequest(request: GenerationRequest, listener: GenerationListener): Promise<void> {
    let end: PassThroughEnd
    try {
      end = await this.#generate(request, listener)
    } catch (error) {
      end = request.signal.aborted ? { kind: 'canceled' } : { kind: 'failed', error }
    }
    if (end.kind === 'failed' && toInferenceCode(end.error) === 'engine_lost') throw end.error
    listener.end(request.id, end)
  }

  async #generate(
    request: GenerationRequest,
    listener: GenerationListener,
  ): Promise<PassThroughEnd> {
    const { modelName, clock } = this.#options
    const signal = AbortSignal.any([request.signal, this.#endController.signal])
    const { path, body } = toApiRequest(modelName, request)
    let brokenConnections = 0
    for (let attempt = 1; ; attempt++) {
      const isLastAttempt = attempt > maxRetries
      const outcome = await callUpstream({
        link: this.#link,
        path: `${this.#address.api}${path}`,
        body,
        signal,
        deliver: (delta) => listener.delta(request.id, delta),
        clock,
        isLastAttempt: isLastAttempt,
      })
      if (outcome.kind === 'done') {
        const usage = outcome.usage ?? (await this.#countUsage(request.input, outcome.text))
        const { finishReason, fields } = outcome
        return { kind: 'done', finishReason, usage, ...definedFields({ fields }) }
      }
      if (outcome.kind === 'refused') {
        if (outcome.waitMs === null || isLastAttempt) {
          return { kind: 'failed', error: outcome.error }
        }
        await sleep(clock, outcome.waitMs, { signal })
        outcome.discard()
      } else {
        await unlessAborted(signal, this.#checkServer())
        brokenConnections++
        if (outcome.hasDelta || brokenConnections > maxReconnects)
          return { kind: 'failed', error: toConnectionError(outcome.cause) }
      }
    }
  }

  /** Estimates the usage, without the tokens of the chat template. */
  async #countUsage(input: GenerationInput, output: string): Promise<Usage> {
    if (!this.#hasWarnedOfUsage) {
      this.#hasWarnedOfUsage = true
      const text = 'the server reports no usage; token counts are estimates'
      this.#options.log.warn('UsageEstimated', text)
    }
    const promptTokens = await this.#countTokens(extractPrompt(input))
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

  /** Requests whose connections broke at the same time share one health check. */
  async #checkServer(): Promise<void> {
    const { clock } = this.#options
    const { signal } = this.#endController
    const path = `${this.#address.api}/models`
    this.#probe ??= isResponding({ link: this.#link, path, clock, signal }).finally(() => {
      this.#probe = undefined
    })
    if (await this.#probe) return
    this.abandon(`the server at ${this.#apiUrl} does not respond anymore`)
    signal.throwIfAborted()
  }
}

async function* withFinally<T>(items: AsyncIterable<T>, act: () => void): AsyncGenerator<T> {
  try {
    yield* items
  } finally {
    act()
  }
}

async function toForwardError(response: UpstreamResponse, clock: Clock): Promise<InferenceError> {
  const { status } = response
  const { error } = await readRefusal(response, { clock, isLastAttempt: true, isForwarded: true })
  if ((status !== 404 && status !== 405) || error.refusal !== undefined) return error
  const message = 'The server behind this one has nothing at this address.'
  return inferenceError('unsupported', 'the server has no such path', {
    cause: error.cause,
    refusal: { status: 404, message, param: null, code: 'unknown_url' },
  })
}

function toConnectionError(cause: unknown): InferenceError {
  return inferenceError('engine_error', 'the connection broke before the response ended', {
    cause,
  })
}

const maxListedNames = 10

/** Returns `null` if the server reports no context length. Throws for an unlisted model. */
function servedContextLength(list: unknown, model: string): number | null {
  const entries = listOf(getPath(list, 'data'))
  const entry = entries.find((one) => getPath(one, 'id') === model)
  if (entry !== undefined) return countOr(getPath(entry, 'max_model_len'), null)
  const names = entries.map((one) => textOr(getPath(one, 'id'), '')).filter((name) => name !== '')
  const known = names.slice(0, maxListedNames).map((name) => `"${name}"`)
  const more = names.length > maxListedNames ? ` and ${names.length - maxListedNames} more` : ''
  const served = known.length === 0 ? 'it serves no model' : `it serves ${known.join(', ')}${more}`
  throw inferenceError(
    'engine_error',
    `the server does not serve "${model}": ${served}${didYouMean(model, names)}`,
    { hint: "set the model's name to one that the server lists" },
  )
}

/** The engine that attaches to a running OpenAI-compatible server; it starts no process itself. */

import { boundedWait, unlessAborted } from '../../foundation/promises.ts'
import { type Clock, sleep } from '../../foundation/clock.ts'
import type { InferenceError } from '../../foundation/errors.ts'
import type { Log } from '../../foundation/log.ts'
import { invalid } from '../../foundation/options.ts'
import { registerSecret } from '../../foundation/secrets.ts'
import type {
  EngineCapacity,
  GenerationEnd,
  GenerationListener,
  GenerationRequest,
  InferenceEngine,
  ModelFacts,
} from '../generation/inference-engine.ts'
import { inferenceCodeOf, inferenceError } from '../generation/inference-errors.ts'
import { toCall } from './openai/call-body.ts'
import { exchange } from './openai/exchange.ts'
import { countOr, parseJson, pick } from './openai/foreign-json.ts'
import { isAnswering } from './openai/probe.ts'
import { servedContextLength } from './openai/served-models.ts'
import { type ServerAddress, toServerAddress } from './openai/server-address.ts'
import { type UpstreamAnswer, UpstreamLink } from './openai/upstream-link.ts'
import { toRefusal } from './openai/upstream-refusal.ts'
import { UsageCounter } from './openai/usage-counter.ts'

/** Which server to attach to, as whom, and how much to ask of it at a time. */
export interface OpenAiEngineOptions {
  /** Such as `http://127.0.0.1:8000/v1`. Without a path, `/v1` is meant. */
  readonly baseUrl: string
  readonly apiKey: string | null
  /** The name that the server lists. */
  readonly modelName: string
  readonly maxConcurrency: number
  /** Counts where the server does not tell its own. */
  readonly contextLength: number
  readonly clock: Clock
  readonly log: Log
}

/** An engine whose server somebody else may see die before it does. */
export interface AttachedEngine extends InferenceEngine {
  /** The server is gone: everything under way rejects with `engine_lost`, and `lost` resolves. */
  abandon(reason: string): void
}

/** Attaches to a server. Its key goes into one header and nowhere else. */
export function createOpenAiEngine(options: OpenAiEngineOptions): AttachedEngine {
  const { apiKey } = options
  if (apiKey !== null && !/^[\x21-\x7e]+$/.test(apiKey)) {
    throw invalid('apiKey', 'printable ASCII without spaces', undefined)
  }
  if (apiKey !== null) registerSecret(apiKey)
  return new OpenAiEngine(options, toServerAddress(options.baseUrl))
}

const askMs = 30_000
/** Of one request, while its reader has seen nothing of it. */
const mostRetries = 2
/** For questions beside the answers. */
const spareConnections = 4

class OpenAiEngine implements AttachedEngine {
  readonly capacity: EngineCapacity
  readonly #options: OpenAiEngineOptions
  readonly #address: ServerAddress
  readonly #link: UpstreamLink
  readonly #usage: UsageCounter
  readonly #lost = Promise.withResolvers<string>()
  /** Aborted with the error of all that is under way, when it is lost or closed. */
  readonly #gone = new AbortController()
  readonly #running = new Set<Promise<unknown>>()
  #looking: Promise<boolean> | undefined
  #closing: Promise<void> | undefined

  constructor(options: OpenAiEngineOptions, address: ServerAddress) {
    const { apiKey, maxConcurrency } = options
    this.#options = options
    this.#address = address
    this.capacity = { admits: 'step', slots: maxConcurrency }
    const connections = maxConcurrency + spareConnections
    this.#link = new UpstreamLink({ origin: address.origin, apiKey, connections })
    this.#usage = new UsageCounter((text) => this.tokenize(text), options.log)
  }

  async start(): Promise<ModelFacts> {
    const { modelName, contextLength } = this.#options
    const path = `${this.#address.api}/models`
    const { status, told } = await this.#ask((signal) => this.#link.get(path, signal))
    if (status !== 200) throw this.#refusal(status, told)
    const served = servedContextLength(parseJson(told), modelName)
    return { name: modelName, contextLength: served ?? contextLength, hasChatTemplate: true }
  }

  async generate(
    requests: readonly GenerationRequest[],
    listener: GenerationListener,
  ): Promise<void> {
    const answers = requests.map((request) => this.#answer(request, listener))
    const all = Promise.allSettled(answers)
    this.#running.add(all)
    const outcomes = await all
    this.#running.delete(all)
    const lost = outcomes.find((outcome) => outcome.status === 'rejected')
    if (lost !== undefined) throw lost.reason
  }

  async tokenize(text: string): Promise<readonly number[]> {
    this.#gone.signal.throwIfAborted()
    // vLLM and others call it `prompt`, llama.cpp's server `content`.
    const body = { model: this.#options.modelName, prompt: text, content: text }
    const json = JSON.stringify(body)
    const { status, told } = await this.#ask((signal) =>
      this.#link.post(`${this.#address.root}/tokenize`, json, signal),
    )
    if ([404, 405, 501].includes(status)) {
      throw inferenceError('unsupported', 'the server does not tell its tokens')
    }
    if (status !== 200) throw this.#refusal(status, told)
    const tokens = pick(parseJson(told), 'tokens')
    if (!Array.isArray(tokens) || tokens.some((token) => countOr(token, null) === null)) {
      throw inferenceError('EngineContractError', 'the server told no list of tokens')
    }
    return tokens as readonly number[]
  }

  lost(): Promise<string> {
    return this.#lost.promise
  }

  abandon(reason: string): void {
    if (this.#gone.signal.aborted) return
    this.#gone.abort(inferenceError('engine_lost', reason))
    this.#lost.resolve(reason)
  }

  close(): Promise<void> {
    this.#closing ??= this.#closeOnce()
    return this.#closing
  }

  async #closeOnce(): Promise<void> {
    this.#gone.abort(inferenceError('closing', 'the engine is closing'))
    await this.#link.close()
    await Promise.all(this.#running)
  }

  get #where(): string {
    return `${this.#address.origin}${this.#address.api}`
  }

  /** A question beside the answers, with an answer in good time. */
  async #ask(
    send: (signal: AbortSignal) => Promise<UpstreamAnswer>,
  ): Promise<{ readonly status: number; readonly told: string }> {
    const over = new AbortController()
    const { signal } = this.#gone
    const asking = send(AbortSignal.any([signal, over.signal])).then(async (answer) => ({
      status: answer.status,
      told: await answer.text(),
    }))
    try {
      return await boundedWait(this.#options.clock, askMs, asking)
    } catch (cause) {
      signal.throwIfAborted()
      throw inferenceError('not_ready', `no server answers at ${this.#where}`, { cause })
    } finally {
      over.abort()
    }
  }

  #refusal(status: number, text: string): InferenceError {
    return toRefusal(status, text, null, this.#options.clock.now()).error
  }

  /** Rejects only when the engine is lost. */
  async #answer(request: GenerationRequest, listener: GenerationListener): Promise<void> {
    let end: GenerationEnd
    try {
      end = await this.#converse(request, listener)
    } catch (error) {
      end = request.signal.aborted ? { kind: 'canceled' } : { kind: 'failed', error }
    }
    if (end.kind === 'failed' && inferenceCodeOf(end.error) === 'engine_lost') throw end.error
    listener.end(request.id, end)
  }

  async #converse(
    request: GenerationRequest,
    listener: GenerationListener,
  ): Promise<GenerationEnd> {
    const { modelName, clock } = this.#options
    const signal = AbortSignal.any([request.signal, this.#gone.signal])
    const { path, body } = toCall(modelName, request)
    for (let attempt = 1; ; attempt++) {
      const outcome = await exchange({
        link: this.#link,
        path: `${this.#address.api}${path}`,
        body,
        signal,
        deliver: (delta) => listener.delta(request.id, delta),
        clock,
      })
      if (outcome.kind === 'done') {
        const usage = outcome.usage ?? (await this.#usage.count(request.input, outcome.text))
        return { kind: 'done', finishReason: outcome.finishReason, usage }
      }
      const isLast = attempt > mostRetries
      if (outcome.kind === 'refused') {
        if (outcome.waitMs === null || isLast) return { kind: 'failed', error: outcome.error }
        await sleep(clock, outcome.waitMs, { signal })
      } else {
        await unlessAborted(signal, this.#checkServer())
        if (outcome.hasDelta || isLast) return { kind: 'failed', error: broken(outcome.cause) }
      }
    }
  }

  /** After a broken connection; all that broke at once ask together. */
  async #checkServer(): Promise<void> {
    const { clock } = this.#options
    const { signal } = this.#gone
    const path = `${this.#address.api}/models`
    this.#looking ??= isAnswering({ link: this.#link, path, clock, signal }).finally(() => {
      this.#looking = undefined
    })
    if (await this.#looking) return
    this.abandon(`the server at ${this.#where} does not answer any more`)
    signal.throwIfAborted()
  }
}

function broken(cause: unknown): InferenceError {
  return inferenceError('engine_error', 'the connection broke off before the answer ended', {
    cause,
  })
}

/** The inference backend: the entry point to engines, batching, guardrails and the server. */

import type {
  Backend,
  BackendListener,
  ConnectedSession,
  Connection,
  Notice,
  Refusal,
} from '../backends/backend.ts'
import type { MetricValues } from '../events/measurement.ts'
import { type GenerateResult, StateError } from '../foundation/errors.ts'
import { registerSecret } from '../foundation/secrets.ts'
import { once } from '../foundation/service.ts'
import type { TaskSpec } from '../tasks/spec.ts'
import { AiJobs, refuseFormat } from './ai-jobs.ts'
import { loadInferenceConfig } from './config/config.ts'
import type { InferenceConfig } from './config/inference-config.ts'
import { generateTexts } from './generate.ts'
import {
  type ConfigOption,
  type FromConfigOptions,
  type InferenceBackendOptions,
  loadConfigOption,
  type ResolvedInferenceOptions,
  resolveInferenceOptions,
} from './inference-options.ts'
import { InferenceService } from './inference-service.ts'

export type {
  ConfigOption,
  FromConfigOptions,
  InferenceBackendOptions,
} from './inference-options.ts'

/**
 * Serves one model to sessions and over HTTP. With `useService: false`, there is no HTTP server;
 * call `generate` instead. Nothing runs before `initialize()` or after `close()`.
 *
 * @example
 * const llm = await InferenceBackend.create({
 *   name: 'llm',
 *   configFile: 'model.yaml',
 *   modelName: './stories15M.gguf',
 *   port: 8000,
 * })
 * await using session = new Session([llm])
 * console.log(llm.endpoint) // for any OpenAI client
 */
export class InferenceBackend implements Backend {
  readonly name: string
  readonly model: string
  readonly #options: ResolvedInferenceOptions
  readonly #connections = new Map<BackendListener, AiJobs>()
  readonly #sessions = new Map<BackendListener, ConnectedSession>()
  /** The configuration that `fromConfig` has loaded, so that the file is not read again. */
  #config: InferenceConfig | null = null
  #openingService: InferenceService | null = null
  #service: InferenceService | null = null
  #initializing: Promise<void> | null = null
  readonly #close = once(() => this.#closeOnce())
  #unavailableReason: string | null = null

  /** Resolves when an engine serves and the HTTP server, if there is one, listens. */
  static async create(options: InferenceBackendOptions): Promise<InferenceBackend> {
    const backend = new InferenceBackend(options)
    await backend.initialize()
    return backend
  }

  /**
   * Like `create`, but everything comes from a configuration, including the name of the model.
   * Options take precedence over the configuration.
   *
   * @example
   * const llm = await InferenceBackend.fromConfig('model.yaml', { useService: false })
   */
  static async fromConfig(
    config: ConfigOption,
    options: FromConfigOptions = {},
  ): Promise<InferenceBackend> {
    const loaded = await loadConfigOption(config, options)
    const configFile = typeof config === 'string' ? config : 'config'
    const backend = new InferenceBackend({ ...options, configFile, modelName: loaded.modelName })
    backend.#config = loaded
    await backend.initialize()
    return backend
  }

  constructor(options: InferenceBackendOptions) {
    this.#options = resolveInferenceOptions(options)
    this.name = this.#options.name
    this.model = this.#options.modelName
    if (this.#options.apiKey !== null) registerSecret(this.#options.apiKey)
  }

  /** The URL of the HTTP server; `null` if there is no server. */
  get endpoint(): string | null {
    return this.#service?.endpoint ?? null
  }

  /** The number of engines that serve now. */
  get workers(): number {
    return this.#service?.generator.status().workers ?? 0
  }

  /** The number of prompts that run in an engine, and the number of queued prompts. */
  get load(): { readonly running: number; readonly queued: number } {
    const { running, queued } = this.#service?.generator.status() ?? { running: 0, queued: 0 }
    return { running, queued }
  }

  /**
   * Starts the engines and the HTTP server. Further calls return the same promise. After a failure,
   * the next call tries again.
   */
  initialize(): Promise<void> {
    if (this.#close.isCalled) return Promise.reject(this.#closedError())
    this.#initializing ??= this.#initializeOnce().catch((error: unknown) => {
      this.#initializing = null
      throw error
    })
    return this.#initializing
  }

  /**
   * Returns one result per prompt, in order, within `timeout` seconds. The result of a prompt that
   * fails or is blocked is `{ error: { code, message } }`. Throws if the backend has an HTTP
   * server; use its endpoint instead.
   */
  async generate(prompts: readonly string[], timeout: number): Promise<GenerateResult[]> {
    if (this.#close.isCalled) throw this.#closedError()
    if (this.#service === null) {
      const ways = '`await backend.initialize()` first, or `await InferenceBackend.create(options)`'
      throw new StateError(`the backend "${this.name}" is not initialized`, {
        hint: `Call ${ways}.`,
      })
    }
    if (this.endpoint !== null) {
      throw new StateError(`"${this.name}" serves over HTTP: use ${this.endpoint}/generate`, {
        hint: 'Set `useService: false` to call generate() directly.',
      })
    }
    return generateTexts(this.#service.generator, prompts, timeout, this.#options.clock)
  }

  refuse(spec: TaskSpec): Refusal | null {
    if (this.#close.isCalled) return { field: 'backend', message: `"${this.name}" is closed` }
    if (this.#unavailableReason !== null)
      return { field: 'backend', message: this.#unavailableReason }
    if (spec.kind !== 'prompt') {
      const field = spec.kind === 'program' ? 'executable' : 'function'
      return { field, message: `"${this.name}" runs prompts only` }
    }
    if (this.#service === null) {
      const message = `"${this.name}" is not initialized: call \`await backend.initialize()\` first`
      return { field: 'backend', message, code: 'StateError' }
    }
    if (spec.model !== null && !this.#service.serves(spec.model)) {
      return { field: 'model', message: `"${this.name}" serves "${this.model}"` }
    }
    return refuseFormat(spec)
  }

  connect(listener: BackendListener, session?: ConnectedSession): Connection {
    const connection = new AiJobs({
      generator: () => this.#service?.generator ?? null,
      clock: this.#options.clock,
      log: this.#options.log,
      closedReason: () => this.#closedReason(),
      listener,
      onReleased: () => {
        this.#connections.delete(listener)
        this.#sessions.delete(listener)
      },
    })
    this.#connections.set(listener, connection)
    if (session !== undefined) this.#sessions.set(listener, session)
    return connection
  }

  /**
   * Rejects new work, cancels tasks, waits up to `drainSeconds` for running HTTP requests, cancels
   * the rest, and stops the engines. Further calls return the same promise.
   */
  close(): Promise<void> {
    return this.#close()
  }

  /** For `await using`: calls `close()`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  async #initializeOnce(): Promise<void> {
    const { signal } = this.#options
    const stop = (): void => void this.close()
    signal?.addEventListener('abort', stop, { once: true })
    try {
      signal?.throwIfAborted()
      await this.#openService()
    } catch (error) {
      signal?.throwIfAborted()
      throw error
    } finally {
      signal?.removeEventListener('abort', stop)
    }
  }

  async #openService(): Promise<void> {
    const { configFile, overrides, log } = this.#options
    const config = this.#config ?? (await loadInferenceConfig(configFile, overrides, log))
    if (this.#close.isCalled) throw this.#closedError()
    const service = new InferenceService({
      options: this.#options,
      config,
      notify: (taskId, notice) => this.#notify(taskId, notice),
      getSessionId: (taskId) => this.#getSessionId(taskId),
      collectSessionMetrics: () => this.#collectSessionMetrics(),
      hasSessions: () => this.#connections.size > 0,
      onUnavailable: (reason) => this.#giveUp(reason),
    })
    this.#openingService = service
    await service.open()
    this.#service = service
    if (this.#close.isCalled) {
      await service.close(0)
      throw this.#closedError()
    }
  }

  async #closeOnce(): Promise<void> {
    const jobs = [...this.#connections.values()]
    await Promise.all(jobs.map((one) => one.cancelAll('backend closed')))
    // Stops a model that is still loading, because loading may take minutes.
    if (this.#service === null) await this.#openingService?.stopLoading()
    await this.#initializing?.catch(() => {})
    await this.#service?.close(this.#options.drainMs)
    this.#connections.clear()
    this.#sessions.clear()
  }

  /**
   * Called when the reserved nodes are lost. Tasks end CANCELED with the reason, like other tasks
   * on these nodes.
   */
  #giveUp(reason: string): void {
    this.#unavailableReason = reason
    for (const jobs of this.#connections.values()) void jobs.cancelAll(reason)
  }

  #notify(taskId: string | null, notice: Notice): void {
    for (const [listener, jobs] of this.#connections) {
      if (taskId === null || jobs.has(taskId)) listener.notice(notice)
    }
  }

  #getSessionId(taskId: string | null): string {
    if (taskId === null) return ''
    for (const jobs of this.#connections.values()) {
      const session = jobs.getSessionId(taskId)
      if (session !== undefined) return session
    }
    return ''
  }

  async #collectSessionMetrics(): Promise<readonly MetricValues[]> {
    const sessions = [...this.#sessions.values()].flatMap((session) => session.metrics?.() ?? [])
    return (await Promise.all(sessions)).filter((metrics) => metrics !== null)
  }

  #closedReason(): string | null {
    return this.#close.isCalled ? 'backend closed' : this.#unavailableReason
  }

  #closedError(): StateError {
    return new StateError(`the backend "${this.name}" is closed`)
  }
}

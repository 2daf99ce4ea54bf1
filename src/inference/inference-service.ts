/** The running parts of an initialized inference backend: creates, starts and stops them. */

import type { MetricValues } from '../events/measurement.ts'
import { ValueError } from '../foundation/errors.ts'
import { StepScheduler } from '../runtime/turn-budget.ts'
import type { InferenceConfig } from './config/inference-config.ts'
import { findDescriptor } from './engines/engines.ts'
import type { TextGenerator } from './generation/text-generator.ts'
import { createGuard } from './guardrails/guard.ts'
import type { ResolvedInferenceOptions } from './inference-options.ts'
import { firstServedName, ModelInstance, type SharedParts } from './model-instance.ts'
import { estimateModelBytes, findMemoryBudget } from './pool/model-memory.ts'
import { type ModelLease, ModelPool, type PoolModel } from './pool/model-pool.ts'
import { toMegabytes } from './pool/model-schedule.ts'
import { chatPageFile } from './server/chat-page.ts'
import type { ModelDirectory } from './server/model-directory.ts'
import type { ServedModel } from './server/served-model.ts'
import { InferenceServer, type ModelParts, type RoutedModel } from './server/server.ts'
import { type ModelState, ServerMetrics } from './server/server-metrics.ts'

export interface ServiceParts extends Pick<
  SharedParts,
  'notify' | 'getSessionId' | 'hasSessions' | 'onUnavailable'
> {
  readonly options: ResolvedInferenceOptions
  readonly config: InferenceConfig
  /** The metrics of tasks and nodes of all connected sessions that have telemetry. */
  readonly collectSessionMetrics: () => Promise<readonly MetricValues[]>
}

export class InferenceService {
  readonly #parts: ServiceParts
  readonly #shared: SharedParts
  readonly #metrics: ServerMetrics
  /** The only model, or several models; `null` before the sizes of several models are known. */
  #serving: ModelInstance | ModelPool<ModelInstance> | null = null
  #server: InferenceServer | null = null

  constructor(parts: ServiceParts) {
    const { options, config } = parts
    this.#parts = parts
    this.#metrics = new ServerMetrics(options.name)
    this.#shared = {
      ...parts,
      metrics: this.#metrics,
      guard: createGuard(config.guardrails),
      checkScheduler: new StepScheduler(options.clock, checkBudgetMs),
    }
    if (config.models.length === 0) {
      this.#serving = new ModelInstance(this.#shared, config, 'inference')
    } else if (options.nodes !== null) {
      const details = { field: 'nodes', hint: 'Create a backend for each model.' }
      throw new ValueError('nodes: a backend with several models runs on this node only', details)
    }
  }

  get endpoint(): string | null {
    return this.#server?.endpoint ?? null
  }

  get generator(): TextGenerator {
    if (this.#serving === null) throw new TypeError('the service is not open')
    return this.#serving.generator
  }

  /** Whether prompts may name this model. */
  serves(model: string): boolean {
    const { config } = this.#parts
    if (model === config.modelName) return true
    return this.#serving instanceof ModelPool && this.#serving.find(model) !== undefined
  }

  /** The server listens before the models are loaded, so that a port in use is reported early. */
  async open(): Promise<void> {
    const { options, config } = this.#parts
    try {
      for (const one of [config, ...config.models.map((model) => model.config)]) {
        if (options.createEngine === null) await findDescriptor(one.engine).checkModel?.(one)
      }
      const serving = this.#serving ?? (await this.#createPool())
      this.#serving = serving
      if (serving instanceof ModelInstance) serving.reserve()
      if (options.isService) this.#server = this.#createServer(serving.generator)
      await this.#server?.start()
      if (serving instanceof ModelInstance) {
        await serving.start()
        this.#server?.modelLoaded({ ...serving.pool.model, proxy: serving.createProxy() })
      } else {
        await serving.preload(serving.models.filter(({ isPreloaded }) => isPreloaded))
        this.#server?.modelsReady(this.#createDirectory(serving))
      }
    } catch (error) {
      await Promise.all([this.stopLoading(), this.#server?.stop()])
      throw error
    }
  }

  /** Stops models that are still loading, because loading may take minutes. */
  async stopLoading(): Promise<void> {
    await this.#serving?.stop()
  }

  /**
   * Rejects new requests, cancels the requests that are still running after `graceMs`, and stops
   * the engines.
   */
  async close(graceMs: number): Promise<void> {
    const { clock } = this.#parts.options
    const deadline = new AbortController()
    const stopTimer = clock.after(graceMs, () => deadline.abort())
    await Promise.all([this.#serving?.drain(deadline.signal), this.#server?.stop()])
    stopTimer()
    await this.#serving?.stop()
  }

  /**
   * The model of the section `required` comes first. It is unloaded only to make room for others.
   */
  async #createPool(): Promise<ModelPool<ModelInstance>> {
    const { options, config } = this.#parts
    const { clock, log } = options
    const budgetBytes = findMemoryBudget(config)
    const first = { config, isPreloaded: true, keepAliveMs: Infinity, isPinned: false }
    const further = config.models.map(({ keepAliveSeconds, ...model }) => ({
      ...model,
      keepAliveMs: keepAliveSeconds === -1 ? Infinity : keepAliveSeconds * 1000,
      isPinned: keepAliveSeconds === -1,
    }))
    const models: PoolModel<ModelInstance>[] = []
    for (const [at, { config: own, isPreloaded, ...rest }] of [first, ...further].entries()) {
      const name = firstServedName(own)
      const scheduled = { name, bytes: await estimateModelBytes(own), ...rest }
      const prefix = at === 0 ? 'inference' : `inference-${name}`
      const create = (): ModelInstance => new ModelInstance(this.#shared, own, prefix)
      models.push({ config: own, isPreloaded, scheduled, create })
    }
    expectPreloadable(models, budgetBytes)
    const { queueLimit } = config.hardware
    return new ModelPool({ models, budgetBytes, queueLimit, clock, log })
  }

  #createDirectory(pool: ModelPool<ModelInstance>): ModelDirectory<RoutedModel, ModelParts> {
    const expected = new Map(pool.models.map((model) => [model, this.#toExpected(model, pool)]))
    return {
      paths: pool.models.flatMap(({ config: { engine } }) =>
        'paths' in engine ? engine.paths : [],
      ),
      list: () => pool.models.map((model) => toServedModel(model, pool)),
      acquire: (name, options) => {
        const model = pool.find(name)
        if (model === undefined) throw new RangeError(`no model ${name}`)
        const acquired = pool.acquire(model, { ...options, isBounded: true })
        return acquired instanceof Promise ? acquired.then(toRoutedModel) : toRoutedModel(acquired)
      },
      expect(name) {
        const model = pool.find(name)
        return model === undefined ? null : (expected.get(model) ?? null)
      },
    }
  }

  /** What a model may support at most, whatever its file contains. */
  #toExpected(model: PoolModel<ModelInstance>, generator: TextGenerator): ModelParts | null {
    const { config } = model
    const { engine, llm, purpose, servedNames, modelName } = config
    const descriptor = findDescriptor(engine)
    const { hasServer } = descriptor
    const fields = hasServer ? [] : descriptor.findPossibleFields?.(config)
    // Nothing is known about the engines of a factory, nor about engines whose descriptor does not
    // say which fields they support.
    if (fields === undefined || this.#parts.options.createEngine !== null) return null
    const paths = 'paths' in engine ? engine.paths : []
    const forward = (): Promise<never> => Promise.reject(new TypeError('the model is not loaded'))
    const proxy = hasServer ? { paths, forward } : null
    return {
      id: model,
      loaded: { contextLength: llm.maxModelLen, purpose: purpose ?? 'chat', fields, proxy },
      generator,
      models: servedNames,
      hiddenModels: [modelName],
      defaults: { maxTokens: llm.maxTokens },
    }
  }

  #findMain(): ModelInstance | null {
    if (!(this.#serving instanceof ModelPool)) return this.#serving
    const [first] = this.#serving.models
    return first === undefined ? null : this.#serving.getInstance(first.scheduled.name)
  }

  #facts(): object {
    const { config } = this.#parts
    const { pool = null } = this.#findMain() ?? {}
    const { maxTokens, temperature, topP, topK, repetitionPenalty, seed, stop } = config.llm
    return {
      engine: config.engine.kind,
      total_slots: pool?.slots ?? 0,
      chat_template: pool?.model.chatTemplate ?? null,
      tuning: pool?.model.tuning ?? null,
      default_generation_settings: {
        max_tokens: maxTokens,
        temperature,
        top_p: topP,
        top_k: topK,
        repetition_penalty: repetitionPenalty,
        seed,
        stop,
      },
    }
  }

  async #metricsText(): Promise<string> {
    return this.#metrics.toText({
      models: this.#listStates(),
      keys: this.#server?.listKeys() ?? [],
      sessions: await this.#parts.collectSessionMetrics(),
    })
  }

  #listStates(): readonly ModelState[] {
    const serving = this.#serving
    if (serving === null) return []
    if (serving instanceof ModelInstance) return [serving.state]
    return serving.models.map(({ config, scheduled }) => {
      const instance = serving.getInstance(scheduled.name)
      return instance?.state ?? { ...unloadedState, model: firstServedName(config) }
    })
  }

  #createServer(generator: TextGenerator): InferenceServer {
    const { options, config } = this.#parts
    const { host, port, apiKey, apiKeysFile, basePath, tls, onRequest } = options
    const { limits, drainMs, clock, log } = options
    return new InferenceServer({
      generator,
      models: config.servedNames,
      hiddenModels: [config.modelName],
      host,
      port,
      apiKey,
      apiKeysFile,
      basePath,
      tls,
      onRequest,
      pageFile: options.hasPage ? chatPageFile : null,
      batchConfig: config.batching,
      queueLimit: config.hardware.queueLimit,
      limits: { drainSeconds: drainMs / 1000, isStrict: config.server.isStrict, ...limits },
      metrics: () => this.#metricsText(),
      facts: () => this.#facts(),
      defaults: { maxTokens: config.llm.maxTokens },
      clock,
      log,
    })
  }
}

const unloadedState = {
  isLoaded: false,
  status: { queued: 0, running: 0, workers: 0, unreadyReason: null },
  slots: 0,
  queueLimit: 0,
  breaches: 0,
}

function toServedModel(
  { config, scheduled }: PoolModel<ModelInstance>,
  pool: ModelPool<ModelInstance>,
): ServedModel {
  const instance = pool.getInstance(scheduled.name)
  return {
    names: config.servedNames,
    hiddenNames: [config.modelName],
    contextLength: instance?.pool.model.contextLength ?? config.llm.maxModelLen,
    isLoaded: instance !== null,
    leftSeconds: pool.leftMs(scheduled.name) / 1000,
    memoryBytes: scheduled.bytes,
    facts: instance?.pool.model ?? (config.purpose === null ? null : { purpose: config.purpose }),
  }
}

function toRoutedModel(lease: ModelLease<ModelInstance>): RoutedModel {
  const { instance } = lease
  return {
    id: instance,
    loaded: { ...instance.pool.model, proxy: instance.createProxy() },
    generator: instance.generator,
    models: instance.config.servedNames,
    hiddenModels: [instance.config.modelName],
    defaults: { maxTokens: instance.config.llm.maxTokens },
    release: () => lease.release(),
  }
}

/** The models that are loaded at the start must fit together, so that none unloads another. */
function expectPreloadable(models: readonly PoolModel<ModelInstance>[], budgetBytes: number): void {
  const preloaded = models.filter(({ isPreloaded }) => isPreloaded)
  const bytes = preloaded.reduce((sum, { scheduled }) => sum + scheduled.bytes, 0)
  if (bytes <= budgetBytes) return
  const sizes = preloaded.map(
    ({ scheduled }) => `${scheduled.name} ${toMegabytes(scheduled.bytes)}`,
  )
  const field = 'hardware.model_memory_mb'
  const text = `${field}: the models that are loaded at the start need ${toMegabytes(bytes)}`
  throw new ValueError(`${text} (${sizes.join(', ')}), but may have ${toMegabytes(budgetBytes)}`, {
    field,
    expected: `at least ${Math.ceil(bytes / 2 ** 20)}`,
    got: Math.floor(budgetBytes / 2 ** 20),
  })
}

/** Milliseconds per event-loop turn for new guardrail checks, and as many for running ones. */
const checkBudgetMs = 8

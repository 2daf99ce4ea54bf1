/** The running parts of an initialized inference backend: creates, starts and stops them. */

import { type Notice, toEventNotice } from '../backends/backend.ts'
import { Batch, EngineLost } from '../events/library-events.ts'
import type { MetricValues } from '../events/measurement.ts'
import { ValueError } from '../foundation/errors.ts'
import { newSpanId } from '../foundation/ids.ts'
import type { ServerReservation } from '../runtime/server/node-servers.ts'
import type { InferenceConfig } from './config/inference-config.ts'
import { findDescriptor } from './engines/engines.ts'
import { Autoscaler } from './generation/autoscaler.ts'
import type { BatchReport } from './generation/batch-run.ts'
import { Batcher } from './generation/batcher.ts'
import { EnginePool } from './generation/engine-pool.ts'
import { toBatchSpan } from './generation/gen-ai.ts'
import type { EngineWorker, InferenceEngine, Sampling } from './generation/inference-engine.ts'
import { inferenceError } from './generation/inference-errors.ts'
import type { EngineProxy } from './generation/pass-through.ts'
import { RequestHandler, type RequestReport } from './generation/request-handler.ts'
import type { TextGenerator } from './generation/text-generator.ts'
import { createGuardedProxy } from './generation/path-proxy.ts'
import { StepScheduler } from '../runtime/turn-budget.ts'
import { createGuard, type Guard } from './guardrails/guard.ts'
import type { ResolvedInferenceOptions } from './inference-options.ts'
import { chatPageFile } from './server/chat-page.ts'
import { InferenceServer } from './server/server.ts'
import { ServerMetrics } from './server/server-metrics.ts'

export interface ServiceParts {
  readonly options: ResolvedInferenceOptions
  readonly config: InferenceConfig
  /** Sends a notice to the session of a task, or to all sessions if `taskId` is `null`. */
  readonly notify: (taskId: string | null, notice: Notice) => void
  /** The id of the task's session; `""` for a request that belongs to no session. */
  readonly getSessionId: (taskId: string | null) => string
  /** The metrics of tasks and nodes of all connected sessions that have telemetry. */
  readonly collectSessionMetrics: () => Promise<readonly MetricValues[]>
  /** Whether any session is connected. Without a session, no spans are created. */
  readonly hasSessions: () => boolean
  /** Called at most once, when no engine can start any more, and before the requests end. */
  readonly onUnavailable: (reason: string) => void
}

export class InferenceService {
  readonly generator: TextGenerator
  readonly pool: EnginePool
  readonly #parts: ServiceParts
  readonly #metrics: ServerMetrics
  readonly #batcher: Batcher
  readonly #scaler: Autoscaler
  readonly #guard: Guard
  readonly #checkScheduler: StepScheduler
  #server: InferenceServer | null = null
  #reservation: ServerReservation | null = null
  #unavailableReason: string | null = null

  constructor(parts: ServiceParts) {
    const { options, config } = parts
    const { clock, log } = options
    const { dynamicWorkers } = config
    expectNodes(config, options)
    this.#parts = parts
    this.#metrics = new ServerMetrics(config.modelName, options.name)
    this.#batcher = new Batcher({
      clock,
      policy: config.batching,
      queueLimit: config.hardware.queueLimit,
      engineTimeoutMs: options.engineTimeoutMs,
      onBatchEnded: (report) => this.#onBatch(report),
    })
    const batcher = this.#batcher
    this.pool = new EnginePool({
      createEngine: options.createEngine ?? ((worker) => this.#createEngine(worker)),
      workers: dynamicWorkers.isOn ? dynamicWorkers.minWorkers : config.hardware.numInfWorkers,
      batcher,
      clock,
      log,
      onLost: ({ workerId, reason }) =>
        parts.notify(null, toEventNotice(EngineLost, { worker_id: workerId, reason })),
    })
    const { pool } = this
    this.#scaler = new Autoscaler({ clock, batcher, pool, config: dynamicWorkers })
    this.#guard = createGuard(config.guardrails)
    this.#checkScheduler = new StepScheduler(clock, checkBudgetMs)
    this.generator = new RequestHandler({
      batcher,
      pool,
      guard: this.#guard,
      checkScheduler: this.#checkScheduler,
      clock,
      model: config.modelName,
      sampling: defaultSampling(config),
      systemPrompt: config.llm.systemPrompt,
      isContentCaptured: options.isContentCaptured,
      onArrived: () => this.#scaler.recordArrival(),
      onEnded: (taskId, report) => this.#onEnded(taskId, report),
    })
  }

  get endpoint(): string | null {
    return this.#server?.endpoint ?? null
  }

  /** The server listens before the model is loaded, so that a port in use is reported early. */
  async open(): Promise<void> {
    const { options, config } = this.#parts
    try {
      if (options.createEngine === null) await findDescriptor(config.engine).checkModel?.(config)
      this.#reserve()
      if (options.isService) this.#server = this.#createServer()
      await this.#server?.start()
      await this.pool.start()
      this.#server?.modelLoaded({ ...this.pool.model, proxy: this.#createProxy() })
    } catch (error) {
      await Promise.all([this.pool.stop(), this.#server?.stop()])
      await this.#reservation?.close()
      throw this.#unavailableReason === null
        ? error
        : inferenceError('engine_lost', this.#unavailableReason)
    }
    if (config.dynamicWorkers.isOn) this.#scaler.start()
  }

  /** Rejects new requests, and cancels the requests that are still running after `graceMs`. */
  async close(graceMs: number): Promise<void> {
    const { clock } = this.#parts.options
    this.#scaler.stop()
    const deadline = new AbortController()
    const stopTimer = clock.after(graceMs, () => deadline.abort())
    await Promise.all([this.#batcher.drain(deadline.signal), this.#server?.stop()])
    stopTimer()
    await this.pool.stop()
    await this.#reservation?.close()
  }

  #createEngine(worker: EngineWorker): InferenceEngine {
    const { options, config } = this.#parts
    const { clock, log, onProgress } = options
    const servers = this.#reservation
    const context = { config, worker, clock, log, onProgress, servers }
    return findDescriptor(config.engine).create(config.engine, context)
  }

  /** Reserves nodes before anything starts, so that missing nodes or GPUs are reported early. */
  #reserve(): void {
    const { options, config } = this.#parts
    const descriptor = findDescriptor(config.engine)
    const request = descriptor.reserve?.(config.engine, config, options.name)
    if (options.nodes === null || request === undefined) return
    this.#reservation = options.nodes.reserveServers(request)
    void this.#reservation.over.then((reason) => this.#giveUp(reason))
  }

  /** Called when the reserved nodes are lost. All prompts end instead of waiting. */
  #giveUp(reason: string): void {
    this.#unavailableReason = reason
    this.#scaler.stop()
    this.#parts.onUnavailable(reason)
    this.#batcher.giveUp(reason)
    void this.pool.giveUp(reason)
  }

  #onBatch(report: BatchReport): void {
    const { notify, hasSessions, config } = this.#parts
    this.#metrics.batchEnded(report)
    if (!hasSessions()) return
    const { workerId, size, waitMs, durationMs, error } = report
    const batch = {
      worker_id: workerId,
      size,
      wait_seconds: waitMs / 1000,
      duration_seconds: durationMs / 1000,
      error_message: error,
    }
    notify(null, toEventNotice(Batch, batch))
    notify(null, { kind: 'span', span: toBatchSpan(newSpanId(), config.modelName, report) })
  }

  #onEnded(taskId: string | null, report: RequestReport): void {
    const { notify, hasSessions, getSessionId } = this.#parts
    this.#metrics.requestEnded(report, getSessionId(taskId))
    if (!hasSessions()) return
    const { span, measurements } = report
    notify(taskId, { kind: 'span', span: span() })
    for (const measurement of measurements) notify(taskId, { kind: 'measurement', measurement })
  }

  #createProxy(): EngineProxy | null {
    const { proxy } = this.pool
    const { clock, engineTimeoutMs } = this.#parts.options
    const [guard, checkScheduler] = [this.#guard, this.#checkScheduler]
    return proxy && createGuardedProxy(proxy, { guard, checkScheduler, clock, engineTimeoutMs })
  }

  #facts(): object {
    const { config } = this.#parts
    const { maxTokens, temperature, topP, topK, repetitionPenalty, seed, stop } = config.llm
    return {
      engine: config.engine.kind,
      total_slots: this.pool.slots,
      chat_template: this.pool.model.chatTemplate ?? null,
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
      status: this.generator.status(),
      slots: this.pool.slots,
      queueLimit: this.#parts.config.hardware.queueLimit,
      breaches: this.#batcher.breaches,
      keys: this.#server?.listKeys() ?? [],
      sessions: await this.#parts.collectSessionMetrics(),
    })
  }

  #createServer(): InferenceServer {
    const { options, config } = this.#parts
    const { host, port, apiKey, apiKeysFile, basePath, tls, onRequest } = options
    const { limits, drainMs, clock, log } = options
    return new InferenceServer({
      generator: this.generator,
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

/** Validates `nodes` and `numNodes`. An engine factory of the user may use any number of nodes. */
function expectNodes(
  { engine, hardware: { numNodes } }: InferenceConfig,
  { nodes, createEngine: customEngine }: ResolvedInferenceOptions,
): void {
  const nodePolicy = customEngine === null ? findDescriptor(engine).nodes : 'own'
  if (nodes !== null && (nodePolicy === 'this' || nodePolicy === 'own')) {
    const which = customEngine === null ? `the ${engine.kind} engine` : 'an engine of your own'
    throw new ValueError(`nodes: ${which} starts no servers on nodes`, {
      field: 'nodes',
      hint: 'Use the process engine.',
    })
  }
  if (numNodes === 1 || nodePolicy === 'own' || nodePolicy === 'any' || nodes !== null) return
  throw new ValueError(
    `num_nodes is ${numNodes}, but the ${engine.kind} engine runs workers on this node only`,
    {
      field: 'numNodes',
      expected: '1',
      got: numNodes,
      hint:
        nodePolicy === 'reserved'
          ? 'Give `nodes: hpc`, an HPC backend, or set it to 1 and start a backend on each node.'
          : 'Set it to 1 and start a backend on each node.',
    },
  )
}

/** Milliseconds per event-loop turn for new guardrail checks, and again for running ones. */
const checkBudgetMs = 8

function defaultSampling({ llm }: InferenceConfig): Sampling {
  const { maxTokens, temperature, topP, topK, repetitionPenalty, seed, stop, ignoreEos } = llm
  const chosen = { maxTokens, temperature, topP, topK, repetitionPenalty, seed, stop, ignoreEos }
  return {
    ...chosen,
    minP: 0,
    presencePenalty: 0,
    frequencyPenalty: 0,
    logitBias: {},
    logprobs: null,
    echo: false,
    format: { kind: 'text' },
  }
}

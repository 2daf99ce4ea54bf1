/** The queue, engines and text generator of one model, from its load to its unload. */

import { type Notice, toEventNotice } from '../backends/backend.ts'
import { Batch, EngineLost } from '../events/library-events.ts'
import { ValueError } from '../foundation/errors.ts'
import { newSpanId } from '../foundation/ids.ts'
import type { ServerReservation } from '../runtime/server/node-servers.ts'
import type { StepScheduler } from '../runtime/turn-budget.ts'
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
import { createGuardedProxy } from './generation/path-proxy.ts'
import { RequestHandler, type RequestReport } from './generation/request-handler.ts'
import type { Guard } from './guardrails/guard.ts'
import type { ResolvedInferenceOptions } from './inference-options.ts'
import type { ModelState, ServerMetrics } from './server/server-metrics.ts'

/** What the models of a backend share. */
export interface SharedParts {
  readonly options: ResolvedInferenceOptions
  readonly metrics: ServerMetrics
  readonly guard: Guard
  readonly checkScheduler: StepScheduler
  /** Sends a notice to the session of a task, or to all sessions if `taskId` is `null`. */
  readonly notify: (taskId: string | null, notice: Notice) => void
  /** The id of the task's session; `""` for a request that belongs to no session. */
  readonly getSessionId: (taskId: string | null) => string
  /** Whether any session is connected. Without a session, no spans are created. */
  readonly hasSessions: () => boolean
  /** Called at most once, when no engine can start any more, and before the requests end. */
  readonly onUnavailable: (reason: string) => void
}

export const firstServedName = ({ servedNames, modelName }: InferenceConfig): string =>
  servedNames[0] ?? modelName

export class ModelInstance {
  readonly config: InferenceConfig
  /** The model's name in metrics and spans: the first of the names that clients use. */
  readonly name: string
  readonly generator: RequestHandler
  readonly pool: EnginePool
  readonly #parts: SharedParts
  readonly #batcher: Batcher
  readonly #scaler: Autoscaler
  #reservation: ServerReservation | null = null
  #unavailableReason: string | null = null

  /** `workerPrefix` is the first part of the ids of its workers. */
  constructor(parts: SharedParts, config: InferenceConfig, workerPrefix: string) {
    const { options, guard, checkScheduler } = parts
    const { clock, log } = options
    const { dynamicWorkers } = config
    expectNodes(config, options)
    this.#parts = parts
    this.config = config
    this.name = firstServedName(config)
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
      workerPrefix,
      batcher,
      clock,
      log,
      onLost: ({ workerId, reason }) =>
        parts.notify(null, toEventNotice(EngineLost, { worker_id: workerId, reason })),
    })
    const { pool } = this
    this.#scaler = new Autoscaler({ clock, batcher, pool, config: dynamicWorkers })
    this.generator = new RequestHandler({
      batcher,
      pool,
      guard,
      checkScheduler,
      clock,
      model: this.name,
      sampling: defaultSampling(config),
      systemPrompt: config.llm.systemPrompt,
      isContentCaptured: options.isContentCaptured,
      onArrived: () => this.#scaler.recordArrival(),
      onEnded: (taskId, report) => this.#onEnded(taskId, report),
    })
  }

  /** Reserves nodes before anything starts, so that missing nodes or GPUs are reported early. */
  reserve(): void {
    const { options } = this.#parts
    const descriptor = findDescriptor(this.config.engine)
    const request = descriptor.reserve?.(this.config.engine, this.config, options.name)
    if (options.nodes === null || request === undefined) return
    this.#reservation = options.nodes.reserveServers(request)
    void this.#reservation.over.then((reason) => this.#giveUp(reason))
  }

  /** Resolves when an engine serves. */
  async start(): Promise<void> {
    try {
      await this.pool.start()
    } catch (error) {
      throw this.#unavailableReason === null
        ? error
        : inferenceError('engine_lost', this.#unavailableReason)
    }
    if (this.config.dynamicWorkers.isOn) this.#scaler.start()
  }

  /** Rejects new requests; resolves when all have ended. Aborting `signal` cancels them. */
  drain(signal: AbortSignal): Promise<void> {
    this.#scaler.stop()
    return this.#batcher.drain(signal)
  }

  /** Stops the engines, even while they start. */
  async stop(): Promise<void> {
    this.#scaler.stop()
    await this.pool.stop()
    await this.#reservation?.close()
  }

  /**
   * The server behind the engines, to which requests for other paths are forwarded; `null` if there
   * is none.
   */
  createProxy(): EngineProxy | null {
    const { proxy } = this.pool
    const { options, guard, checkScheduler } = this.#parts
    const { clock, engineTimeoutMs } = options
    return proxy && createGuardedProxy(proxy, { guard, checkScheduler, clock, engineTimeoutMs })
  }

  get state(): ModelState {
    return {
      model: this.name,
      isLoaded: true,
      status: this.generator.status(),
      slots: this.pool.slots,
      queueLimit: this.config.hardware.queueLimit,
      breaches: this.#batcher.breaches,
    }
  }

  #createEngine(worker: EngineWorker): InferenceEngine {
    const { config } = this
    const { clock, log, onProgress } = this.#parts.options
    const servers = this.#reservation
    const context = { config, worker, clock, log, onProgress, servers }
    return findDescriptor(config.engine).create(config.engine, context)
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
    const { notify, hasSessions, metrics } = this.#parts
    metrics.batchEnded(report)
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
    const span = toBatchSpan(newSpanId(), this.name, report)
    notify(null, { kind: 'span', span })
  }

  #onEnded(taskId: string | null, report: RequestReport): void {
    const { notify, hasSessions, getSessionId, metrics } = this.#parts
    metrics.requestEnded(this.name, report, getSessionId(taskId))
    if (!hasSessions()) return
    const { span, measurements } = report
    notify(taskId, { kind: 'span', span: span() })
    for (const measurement of measurements) notify(taskId, { kind: 'measurement', measurement })
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

/** Starts a server program for each worker, and talks to it like the `openai` engine. */

import { type Clock, sleep } from '../../foundation/clock.ts'
import type { Log } from '../../foundation/log.ts'
import { registerSecret } from '../../foundation/secrets.ts'
import type {
  EngineCapacity,
  EngineWorker,
  GenerationListener,
  GenerationRequest,
  InferenceEngine,
  ModelFacts,
} from '../generation/inference-engine.ts'
import { inferenceError, type InferenceErrorCode } from '../generation/inference-errors.ts'
import { type AttachedEngine, createOpenAiEngine } from './openai.ts'
import { unlessAborted } from '../../foundation/promises.ts'
import { probeOnce, UpstreamLink } from './openai/upstream-link.ts'
import { GuardedServer, LaunchError } from '../../runtime/server/guarded-server.ts'
import {
  checkTemplate,
  childEnvironment,
  type Environment,
  fillTemplate,
  findFreePort,
  inheritedEnvironment,
  sliceOf,
  toOrigin,
  type WorkerSlice,
} from './process/server-command.ts'

/** How each worker's server is started and watched, and which GPUs it gets. */
export interface ProcessEngineOptions {
  /**
   * Program and arguments, with `{model} {port} {host} {tp_size} {worker} {node} {dtype}
   * {max_model_len} {gpu_memory_utilization}` in them.
   */
  readonly command: readonly string[]
  /** Added to what a server inherits, which is little. */
  readonly env: Environment
  readonly modelName: string
  /** GPUs of one worker. */
  readonly tpSize: number
  /** GPUs of one node. */
  readonly numGpus: number
  readonly nodeOffset: number
  readonly host: string
  /** Answers 200 when the server is ready. */
  readonly healthPath: string
  readonly startTimeoutSeconds: number
  readonly maxConcurrency: number
  readonly contextLength: number
  readonly dtype: string
  readonly gpuMemoryUtilization: number
  /** Becomes `HF_TOKEN` of the server. */
  readonly hubToken: string | null
  readonly clock: Clock
  readonly log: Log
  /** Called with each line of the server's output until it is ready. */
  readonly onProgress?: (text: string) => void
}

/** Creates the engine of one worker. Checks the command template and the GPUs at once. */
export function createProcessEngine(
  options: ProcessEngineOptions,
  worker: EngineWorker,
): InferenceEngine {
  checkTemplate(options.command)
  if (options.hubToken !== null) registerSecret(options.hubToken)
  const visible = options.env['CUDA_VISIBLE_DEVICES'] ?? process.env['CUDA_VISIBLE_DEVICES']
  return new ProcessEngine(options, worker, sliceOf({ ...options, index: worker.index, visible }))
}

const graceMs = 10_000
const pollMs = 250
const watchMs = 10_000
const mostMisses = 3

/** A server that runs, and the engine that talks to it. */
interface Attached {
  readonly server: GuardedServer
  readonly engine: AttachedEngine
  readonly link: UpstreamLink
}

class ProcessEngine implements InferenceEngine {
  readonly capacity: EngineCapacity
  readonly #options: ProcessEngineOptions
  readonly #worker: EngineWorker
  readonly #slice: WorkerSlice
  /** Aborted with the reason when the engine is closed or lost. */
  readonly #over = new AbortController()
  #starting: Promise<ModelFacts> | undefined
  #server: GuardedServer | undefined
  /** Set once it has started. */
  #attached: Attached | undefined
  #closing: Promise<void> | undefined

  constructor(options: ProcessEngineOptions, worker: EngineWorker, slice: WorkerSlice) {
    this.#options = options
    this.#worker = worker
    this.#slice = slice
    this.capacity = { admits: 'step', slots: options.maxConcurrency }
  }

  start(): Promise<ModelFacts> {
    this.#starting ??= this.#startOnce()
    return this.#starting
  }

  async generate(
    requests: readonly GenerationRequest[],
    listener: GenerationListener,
  ): Promise<void> {
    return this.#engine.generate(requests, listener)
  }

  async tokenize(text: string): Promise<readonly number[]> {
    return this.#engine.tokenize(text)
  }

  async lost(): Promise<string> {
    return this.#engine.lost()
  }

  close(): Promise<void> {
    this.#closing ??= this.#closeOnce()
    return this.#closing
  }

  get #engine(): AttachedEngine {
    if (this.#attached !== undefined) return this.#attached.engine
    throw inferenceError('not_ready', 'the server was not started')
  }

  async #startOnce(): Promise<ModelFacts> {
    const { nodeOffset, clock, startTimeoutSeconds, host } = this.#options
    const { signal } = this.#over
    if (this.#slice.node !== nodeOffset) {
      throw inferenceError(
        'unsupported',
        `worker ${this.#worker.index} belongs on node ${this.#slice.node}, not on this one`,
        { hint: 'a server on another node needs the HPC backend; lower num_nodes to 1 without it' },
      )
    }
    signal.throwIfAborted()
    const attached = this.#launch(await findFreePort(host))
    const cancel = clock.after(startTimeoutSeconds * 1000, () =>
      this.#giveUp('engine_timeout', `was not ready within ${startTimeoutSeconds} s`),
    )
    try {
      await unlessAborted(signal, attached.server.launched).catch(throwLaunchError)
      await this.#waitForHealth(attached.link)
      const facts = await unlessAborted(signal, attached.engine.start())
      this.#attend(attached)
      return facts
    } catch (error) {
      this.#over.abort(error)
      await release(attached)
      throw error
    } finally {
      cancel()
    }
  }

  #launch(port: number): Attached {
    const { modelName, host, tpSize, maxConcurrency, clock, log } = this.#options
    const { contextLength, hubToken, env, onProgress, dtype } = this.#options
    this.#over.signal.throwIfAborted()
    const { node, gpus } = this.#slice
    const values = {
      model: modelName,
      port,
      host,
      tp_size: tpSize,
      node,
      worker: this.#worker.index,
      dtype,
      max_model_len: contextLength,
      gpu_memory_utilization: this.#options.gpuMemoryUtilization,
    }
    const server = new GuardedServer({
      command: fillTemplate(this.#options.command, values),
      env: childEnvironment(process.env, { env, hubToken, node, gpus }),
      guardEnv: inheritedEnvironment(process.env),
      graceMs,
      clock,
      onLine: (line) => {
        if (this.#attached === undefined) onProgress?.(line)
      },
    })
    this.#server = server
    void server.ended.then((reason) => this.#giveUp('engine_error', `ended with ${reason}`))
    const origin = toOrigin(host, port)
    const link = new UpstreamLink({ origin, apiKey: null, connections: 1 })
    const common = { modelName, maxConcurrency, contextLength, clock, log }
    const engine = createOpenAiEngine({ ...common, baseUrl: `${origin}/v1`, apiKey: null })
    return { server, engine, link }
  }

  async #waitForHealth(link: UpstreamLink): Promise<void> {
    const { clock, healthPath: path } = this.#options
    const { signal } = this.#over
    for (;;) {
      const status = await probeOnce({ link, path, clock, signal })
      signal.throwIfAborted()
      if (status === 200) return
      await sleep(clock, pollMs, { signal })
    }
  }

  #attend(attached: Attached): void {
    this.#attached = attached
    attached.server.unref()
    this.#watch(attached.link).catch(() => {})
  }

  async #watch(link: UpstreamLink): Promise<void> {
    const { clock, healthPath: path } = this.#options
    const { signal } = this.#over
    for (let misses = 0; misses < mostMisses;) {
      await sleep(clock, watchMs, { signal, background: true })
      const status = await probeOnce({ link, path, clock, signal })
      misses = status === 200 ? 0 : misses + 1
    }
    this.#giveUp('engine_lost', `failed ${mostMisses} health checks in a row`)
  }

  /** The output of the server goes into the log and the cause, never into the message. */
  #giveUp(code: InferenceErrorCode, what: string): void {
    if (this.#over.signal.aborted) return
    const output = this.#server?.output ?? ''
    const reason = `the server of worker ${this.#worker.index} ${what}`
    if (output !== '')
      this.#options.log.warn('ServerOutput', `${reason}; the end of its output:\n${output}`)
    this.#over.abort(
      inferenceError(code, reason, output === '' ? {} : { cause: new Error(output) }),
    )
    this.#attached?.engine.abandon(reason)
  }

  async #closeOnce(): Promise<void> {
    this.#over.abort(inferenceError('closing', 'the engine is closing'))
    await this.#starting?.catch(() => {})
    if (this.#attached !== undefined) await release(this.#attached)
  }
}

async function release({ engine, link, server }: Attached): Promise<void> {
  await Promise.all([engine.close(), link.close(), server.stop()])
}

function throwLaunchError(error: unknown): never {
  if (!(error instanceof LaunchError)) throw error
  const hint = 'install it, or name its whole path in engine.command'
  throw inferenceError('engine_error', error.message, {
    cause: error.cause,
    ...(error.errno === 'ENOENT' ? { hint } : {}),
  })
}

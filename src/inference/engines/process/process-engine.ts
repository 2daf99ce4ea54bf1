/** Starts a server program for each worker, and uses it through the `openai` engine. */

import { randomBytes } from 'node:crypto'
import { type Clock, sleep } from '../../../foundation/clock.ts'
import type { Log } from '../../../foundation/log.ts'
import {
  expectInteger,
  expectMethods,
  expectNumber,
  expectObject,
  expectSecret,
  expectString,
} from '../../../foundation/options.ts'
import { maskSecrets, registerSecret } from '../../../foundation/secrets.ts'
import type {
  EngineCapacity,
  EngineWorker,
  GenerationListener,
  GenerationRequest,
  InferenceEngine,
  ModelFacts,
} from '../../generation/inference-engine.ts'
import { inferenceError, type InferenceErrorCode } from '../../generation/inference-errors.ts'
import { type EngineProxy, getProxy } from '../../generation/pass-through.ts'
import {
  sharedChecks,
  environmentVariables,
  expectOptions,
  integerAtLeast,
  listOf,
  nullable,
  optional,
  type OptionChecks,
  urlPathSchema,
  plainText,
  positiveSeconds,
} from '../engine-options.ts'
import type { EngineDescriptor, EngineSettings } from '../engine-descriptor.ts'
import { type AttachedEngine, createOpenAiEngine } from '../openai/openai-engine.ts'
import { unlessAborted } from '../../../foundation/promises.ts'
import { probeOnce, UpstreamLink } from '../openai/upstream-link.ts'
import { type Environment, inheritedEnvironment } from '../../../runtime/server/guarded-server.ts'
import { LaunchError, startLocalServer } from '../../../runtime/server/guarded-server.ts'
import { once } from '../../../foundation/service.ts'
import type {
  ServerAddress,
  ServerProcess,
  ServerReservation,
} from '../../../runtime/server/node-servers.ts'
import {
  checkTemplate,
  childEnvironment,
  fillTemplate,
  processSection,
  remoteEnvironment,
  placeWorker,
  toOrigin,
  toServerRequest,
  type WorkerPlacement,
} from './server-command.ts'

/** How each worker's server is started and checked, and which GPUs it gets. */
export interface ProcessEngineOptions extends Omit<
  ProcessEngineConfig,
  'kind' | 'env' | 'cores' | 'paths'
> {
  /** Environment variables of the server, in addition to the few that it inherits. */
  readonly env: Environment
  readonly modelName: string
  /** The number of GPUs per worker. */
  readonly tpSize: number
  /** The number of GPUs per node. */
  readonly numGpus: number
  readonly nodeOffset: number
  /** The nodes on which servers are started. Default: this machine. */
  readonly servers?: ServerReservation
  /** The number of cores per worker in a reservation. Default 1. */
  readonly cores?: number
  /** The host on which a server on this machine listens. */
  readonly host: string
  /** Paths whose requests may be forwarded, such as `/v1/embeddings`. Default: none. */
  readonly paths?: readonly string[]
  readonly contextLength: number
  readonly dtype: string
  readonly gpuMemoryUtilization: number
  /** The token for the hub. The server gets it as `HF_TOKEN`. */
  readonly hubToken: string | null
  readonly clock: Clock
  readonly log: Log
  /** Called with each line of output until the server is ready, or with the reason for waiting. */
  readonly onProgress?: (text: string) => void
}

/** Creates the engine of one worker. Throws for an invalid command template or GPU number. */
export function createProcessEngine(
  options: ProcessEngineOptions,
  worker: EngineWorker,
): InferenceEngine {
  expectOptions('createProcessEngine', options, checks)
  checkTemplate(options.command)
  const { index, workerId } = expectObject('worker', worker)
  expectInteger('worker.index', index, { min: 0 })
  expectString('worker.workerId', workerId)
  if (options.hubToken !== null) registerSecret(options.hubToken, 'hubToken')
  const visibleGpus = options.env['CUDA_VISIBLE_DEVICES'] ?? process.env['CUDA_VISIBLE_DEVICES']
  const visible = options.servers === undefined ? visibleGpus : undefined
  return new ProcessEngine(
    options,
    worker,
    placeWorker({ ...options, index: worker.index, visible }),
  )
}

const checks: OptionChecks<ProcessEngineOptions> = {
  command: listOf(plainText),
  env: environmentVariables,
  modelName: sharedChecks.modelName,
  tpSize: integerAtLeast(1),
  numGpus: integerAtLeast(0),
  nodeOffset: integerAtLeast(0),
  servers: optional((field, value) => expectMethods(field, value as ServerReservation, ['start'])),
  cores: optional(integerAtLeast(1)),
  host: expectString,
  healthPath: urlPathSchema,
  startTimeoutSeconds: positiveSeconds,
  maxConcurrency: sharedChecks.maxConcurrency,
  paths: sharedChecks.paths,
  contextLength: integerAtLeast(1),
  dtype: expectString,
  gpuMemoryUtilization: (field, value) => expectNumber(field, value, { above: 0, max: 1 }),
  hubToken: nullable(expectSecret),
  clock: sharedChecks.clock,
  log: sharedChecks.log,
  onProgress: sharedChecks.onProgress,
}

/** The settings of the engine that starts a server program for each worker. */
export interface ProcessEngineConfig extends EngineSettings {
  readonly kind: 'process'
  /** The program and its arguments, run without a shell. Placeholders are replaced. */
  readonly command: readonly string[]
  /** Variables for the server. Their values are masked when the settings are printed. */
  readonly env: Readonly<Record<string, string>>
  readonly startTimeoutSeconds: number
  /** The path that returns status 200 when the server is ready. */
  readonly healthPath: string
  /** The maximum number of concurrent requests. Default 64. */
  readonly maxConcurrency: number
  /** The number of cores of each server on a node of an allocation. Default 1. */
  readonly cores: number
  /** Forwarded paths. Default `/v1/embeddings`, `/v1/responses`, `/v1/rerank`. */
  readonly paths: readonly string[]
}

export const processEngine: EngineDescriptor<ProcessEngineConfig> = {
  kind: 'process',
  model: 'file',
  nodes: 'reserved',
  hasServer: true,
  section: processSection,
  slots: ({ maxConcurrency }, maxBatchSize) => Math.min(maxConcurrency, maxBatchSize),
  resolvePaths(settings, resolve) {
    const [program = '', ...rest] = settings.command
    const isPath = /^(?:\.{1,2}|~)\//.test(program)
    return isPath ? { ...settings, command: [resolve(program), ...rest] } : settings
  },
  /** Rejects secrets, because every user of a machine can read the arguments of a process. */
  findProblem: ({ command }) =>
    command.every((word) => maskSecrets(word) === word)
      ? undefined
      : { key: 'command', text: 'holds a secret; put it into env' },
  reserve: ({ cores }, config, service) => toServerRequest(service, config, cores),
  create: (settings, { config, worker, clock, log, onProgress, servers }) =>
    createProcessEngine(
      {
        ...settings,
        modelName: config.modelPath,
        contextLength: config.llm.maxModelLen,
        tpSize: config.tpSize,
        dtype: config.llm.dtype,
        gpuMemoryUtilization: config.llm.gpuMemoryUtilization,
        numGpus: config.hardware.numGpus,
        nodeOffset: config.hardware.nodeOffset,
        host: '127.0.0.1',
        hubToken: config.hubToken?.reveal() ?? null,
        clock,
        log,
        onProgress,
        ...(servers === null ? {} : { servers }),
      },
      worker,
    ),
}

const pollIntervalMs = 250
const watchIntervalMs = 10_000
const maxFailedChecks = 3

interface AttachedServer {
  readonly server: ServerProcess
  readonly engine: ReturnType<typeof createOpenAiEngine>
  readonly link: UpstreamLink
}

class ProcessEngine implements InferenceEngine {
  readonly capacity: EngineCapacity
  readonly #options: ProcessEngineOptions
  readonly #worker: EngineWorker
  readonly #placement: WorkerPlacement
  readonly #endController = new AbortController()
  #server: ServerProcess | undefined
  /** The server's API key; `null` if only this machine can reach the server. */
  #apiKey: string | null = null
  #lastStatus: number | null = null
  /**
   * Why a remote server is being stopped. Reported when the server has ended and its output is
   * known.
   */
  #loss: ServerLoss | undefined
  #attached: AttachedServer | undefined

  constructor(options: ProcessEngineOptions, worker: EngineWorker, placement: WorkerPlacement) {
    this.#options = options
    this.#worker = worker
    this.#placement = placement
    this.capacity = { admits: 'step', slots: options.maxConcurrency }
  }

  readonly start = once(() => this.#startOnce())

  async generate(
    requests: readonly GenerationRequest[],
    listener: GenerationListener,
  ): Promise<void> {
    return this.#engine.generate(requests, listener)
  }

  async tokenize(text: string): Promise<readonly number[]> {
    return this.#engine.tokenize(text)
  }

  async detokenize(tokens: readonly number[]): Promise<string> {
    return this.#engine.detokenize(tokens)
  }

  get proxy(): EngineProxy | null {
    return this.#attached ? getProxy(this.#attached.engine) : null
  }

  get nodeId(): string | undefined {
    return this.#server?.nodeId
  }

  async lost(): Promise<string> {
    return this.#engine.lost()
  }

  readonly close = once(() => this.#closeOnce())

  get #engine(): AttachedEngine {
    if (this.#attached !== undefined) return this.#attached.engine
    throw inferenceError('not_ready', 'the server was not started')
  }

  async #startOnce(): Promise<ModelFacts> {
    const { clock, startTimeoutSeconds } = this.#options
    const { signal } = this.#endController
    this.#expectLocalNode()
    signal.throwIfAborted()
    const server = this.#startServer()
    this.#server = server
    void server.ended.then((reason) =>
      this.#failEngine(this.#loss ?? { code: 'engine_error', description: `ended with ${reason}` }),
    )
    let attached: AttachedServer | null = null
    let cancel = (): void => {}
    try {
      const address = await unlessAborted(signal, server.launched).catch(throwLaunchError)
      cancel = clock.after(startTimeoutSeconds * 1000, () =>
        this.#reportLoss({
          code: 'engine_timeout',
          description: `was not ready within ${startTimeoutSeconds} s: ${this.#lastProbe(address)}`,
        }),
      )
      attached = this.#attach(server, address)
      await this.#waitForHealth(attached.link)
      const facts = await unlessAborted(signal, attached.engine.start())
      this.#attached = attached
      server.unref()
      this.#watchHealth(attached.link).catch(() => {})
      return facts
    } catch (error) {
      this.#endController.abort(error)
      await (attached === null ? server.stop() : release(attached))
      throw error
    } finally {
      cancel()
    }
  }

  #expectLocalNode(): void {
    const { nodeOffset, servers } = this.#options
    if (servers !== undefined || this.#placement.node === nodeOffset) return
    throw inferenceError(
      'unsupported',
      `worker ${this.#worker.index} belongs on node ${this.#placement.node}, not on this one`,
      { hint: 'Give `nodes`, such as an HPC backend; without it lower num_nodes to 1.' },
    )
  }

  #startServer(): ServerProcess {
    const { servers, hubToken, env, onProgress, nodeOffset, host, clock } = this.#options
    const { node, gpus } = this.#placement
    const toCommand = (address: ServerAddress): readonly string[] => this.#toCommand(address)
    if (servers === undefined) {
      return startLocalServer({
        host,
        toCommand,
        env: childEnvironment(process.env, { env, hubToken, node, gpus }),
        guardEnv: inheritedEnvironment(process.env),
        clock,
        onLine: (line) => {
          if (this.#attached === undefined) onProgress?.(line)
        },
      })
    }
    const newKey = randomBytes(24).toString('hex')
    const remote = remoteEnvironment({ env, hubToken, node }, newKey)
    if (remote.apiKey !== '') registerSecret(remote.apiKey)
    this.#apiKey = remote.apiKey
    return servers.start({
      node: node - nodeOffset,
      cores: this.#options.cores ?? 1,
      gpus: gpus === null ? 0 : this.#options.tpSize,
      toCommand,
      env: remote.env,
      onWait: (text) => onProgress?.(`the server of worker ${this.#worker.index} ${text}`),
    })
  }

  #toCommand({ host, port }: ServerAddress): readonly string[] {
    const { modelName, tpSize, contextLength, dtype, gpuMemoryUtilization } = this.#options
    return fillTemplate(this.#options.command, {
      model: modelName,
      port,
      host,
      tp_size: tpSize,
      node: this.#placement.node,
      worker: this.#worker.index,
      dtype,
      max_model_len: contextLength,
      gpu_memory_utilization: gpuMemoryUtilization,
    })
  }

  #attach(server: ServerProcess, { host, port }: ServerAddress): AttachedServer {
    const { modelName, maxConcurrency, contextLength, clock, log, paths = [] } = this.#options
    const origin = toOrigin(host, port)
    const apiKey = this.#apiKey
    const link = new UpstreamLink({ origin, apiKey, connections: 1 })
    const common = { modelName, maxConcurrency, contextLength, clock, log, paths }
    const engine = createOpenAiEngine({ ...common, baseUrl: `${origin}/v1`, apiKey })
    return { server, engine, link }
  }

  #lastProbe({ host, port }: ServerAddress): string {
    const url = `${toOrigin(host, port)}${this.#options.healthPath}`
    const status = this.#lastStatus
    return status === null ? `no answer from ${url}` : `${url} answered ${status}`
  }

  async #waitForHealth(link: UpstreamLink): Promise<void> {
    const { clock, healthPath: path } = this.#options
    const { signal } = this.#endController
    for (; ; await sleep(clock, pollIntervalMs, { signal })) {
      const status = await probeOnce({ link, path, clock, signal })
      signal.throwIfAborted()
      this.#lastStatus = status
      if (status === 200) return
    }
  }

  async #watchHealth(link: UpstreamLink): Promise<void> {
    const { clock, healthPath: path } = this.#options
    const { signal } = this.#endController
    for (let misses = 0; misses < maxFailedChecks;) {
      await sleep(clock, watchIntervalMs, { signal, background: true })
      const status = await probeOnce({ link, path, clock, signal })
      misses = status === 200 ? 0 : misses + 1
    }
    this.#reportLoss({
      code: 'engine_lost',
      description: `failed ${maxFailedChecks} health checks in a row`,
    })
  }

  /**
   * Fails the engine. Stops a server on another node first, because its output arrives only at its
   * end.
   */
  #reportLoss(loss: ServerLoss): void {
    if (this.#options.servers === undefined) return this.#failEngine(loss)
    this.#loss ??= loss
    void this.#server?.stop()
  }

  /** The output appears in the log and in the error's cause, never in the message. */
  #failEngine({ code, description }: ServerLoss): void {
    if (this.#endController.signal.aborted) return
    const output = this.#server?.output ?? ''
    const reason = `the server of worker ${this.#worker.index} ${description}`
    if (output !== '')
      this.#options.log.warn('ServerOutput', `${reason}; the end of its output:\n${output}`)
    this.#endController.abort(
      inferenceError(code, reason, output === '' ? {} : { cause: new Error(output) }),
    )
    this.#attached?.engine.abandon(reason)
  }

  async #closeOnce(): Promise<void> {
    this.#endController.abort(inferenceError('closing', 'the engine is closing'))
    await this.start.promise?.catch(() => {})
    if (this.#attached !== undefined) await release(this.#attached)
  }
}

interface ServerLoss {
  readonly code: InferenceErrorCode
  readonly description: string
}

async function release({ engine, link, server }: AttachedServer): Promise<void> {
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

/** The local backend: chooses the executor of each task and limits the resources that tasks use. */

import { hostname } from 'node:os'
import { type Clock, systemClock } from '../../foundation/clock.ts'
import { StateError } from '../../foundation/errors.ts'
import { type Log, resolveLog } from '../../foundation/log.ts'
import { once } from '../../foundation/service.ts'
import { version } from '../../foundation/version.ts'
import {
  expectId,
  expectInteger,
  expectKnownKeys,
  expectNumber,
  expectObject,
  expectOneOf,
  expectString,
} from '../../foundation/options.ts'
import { isEntryModule } from '../../tasks/define-task.ts'
import { expectWorkDir } from '../../tasks/program-options.ts'
import type { TaskSpec } from '../../tasks/spec.ts'
import type {
  Backend,
  BackendListener,
  ConnectedSession,
  Connection,
  Job,
  Refusal,
  SampledNode,
} from '../backend.ts'
import { createLocalSampler } from '../sampling/node-sampler.ts'
import { InProcessExecutor } from './in-process-executor.ts'
import {
  expectCores,
  expectGpus,
  expectMemoryMb,
  usableCores,
  usableMemoryMb,
  visibleGpus,
} from './node-capacity.ts'
import { LauncherPool } from './programs/launcher-pool.ts'
import type { Client, ExecutorKind } from './scheduled-jobs.ts'
import { Scheduler } from './scheduler.ts'
import { type Capacity, resourceRefusal } from './slots.ts'
import { WorkerPool } from './functions/worker-pool.ts'

/** How much of this node a `ConcurrentBackend` uses, and how its workers are isolated. */
export interface ConcurrentBackendOptions {
  /** The name of the backend. Default `concurrent`. */
  readonly name?: string
  /** The number of threads or processes for functions, at most 1024. Default: `cores`. */
  readonly workers?: number
  /** The maximum number of concurrent programs. Default: `cores`. */
  readonly maxProcesses?: number
  /**
   * How functions are isolated. With `process`, a crash of native code ends only one worker.
   * `thread` is faster, but such a crash ends this process. Default `thread`, or `process` if
   * `workerMemoryMb` is set.
   */
  readonly isolation?: 'thread' | 'process'
  /**
   * The heap size in megabytes above which a function worker is ended. If set, functions run in
   * processes unless `isolation` is given, because a thread that exceeds its limit can abort this
   * process. Default: Node's limit.
   */
  readonly workerMemoryMb?: number
  /**
   * How long a worker may take to import a function's module. The import counts neither towards the
   * task's duration nor towards its `timeoutSeconds`. Default 60.
   */
  readonly importTimeoutSeconds?: number
  /**
   * The `node_id` of events and samples. Worker ids begin with the node id and the backend's name.
   * Default: the host name.
   */
  readonly nodeId?: string
  /**
   * The number of cores for tasks. Default: the cores that this process may use by its CPU affinity
   * and control group, but at least `workers` and at least `maxProcesses`.
   */
  readonly cores?: number
  /**
   * The GPUs for tasks: a number of visible GPUs, or a list of indexes and UUIDs (`GPU-…`, `MIG-…`)
   * as in `CUDA_VISIBLE_DEVICES`. Listed GPUs need not be visible. Default: all visible GPUs.
   */
  readonly gpus?: number | readonly (number | string)[]
  /**
   * The memory for tasks in megabytes. Default: the limit of the control group, or else the node's
   * memory.
   */
  readonly memoryMb?: number
  /**
   * The working directory of programs if their session names none. A relative path is resolved when
   * the backend is created. Default: the current directory of this process when the program starts.
   */
  readonly workDir?: string
  readonly clock?: Clock
  readonly log?: Log
}

type ResolvedOptions = ReturnType<typeof resolveConcurrentBackendOptions>

/** A key for the constructor. It prevents calls from JavaScript, where `private` has no effect. */
const createKey = Symbol('create')

export type LocalConnection = ReturnType<ConcurrentBackend['connect']>

/**
 * Runs functions on threads or processes, programs through launcher processes, and closures in
 * this process.
 *
 * @example
 * const local = await ConcurrentBackend.create({ workers: 4, maxProcesses: 8, memoryMb: 16_000 })
 * await using session = new Session([local])
 */
export class ConcurrentBackend implements Backend {
  readonly name: string
  readonly nodes: readonly SampledNode[]
  readonly #capacity: Capacity
  readonly #scheduler: Scheduler
  readonly #executors: Readonly<{
    functions: WorkerPool
    programs: LauncherPool
    closures: InProcessExecutor
  }>
  readonly #listeners = new Set<BackendListener>()
  readonly #close = once(() => this.#closeExecutors())

  /**
   * Creates a backend. No thread or process is started yet: the first tasks start the workers that
   * they need.
   */
  static async create(options: ConcurrentBackendOptions = {}): Promise<ConcurrentBackend> {
    return new ConcurrentBackend(resolveConcurrentBackendOptions(options), createKey)
  }

  private constructor(options: ResolvedOptions, key: typeof createKey) {
    if (key !== createKey) {
      throw new StateError('a ConcurrentBackend is made by `create`', {
        hint: 'Write `await ConcurrentBackend.create(options)`.',
      })
    }
    const { name, workers, maxProcesses, isolation, nodeId, workDir, clock, log } = options
    this.name = name
    this.#capacity = options.capacity
    this.#scheduler = new Scheduler(this.#capacity, (notice) => {
      for (const listener of this.#listeners) listener.notice(notice)
    })
    const listener = this.#scheduler
    // The backend's name keeps worker ids unique if a session has several backends on one node.
    const ids = { nodeId, idPrefix: `${nodeId}/${name}` }
    this.#executors = {
      functions: new WorkerPool({
        size: workers,
        isolation,
        maxHeapMb: options.workerMemoryMb,
        importTimeoutSeconds: options.importTimeoutSeconds,
        ...ids,
        clock,
        log,
        listener,
      }),
      programs: new LauncherPool({ maxProcesses, ...ids, workDir, clock, log, listener }),
      closures: new InProcessExecutor({
        ...ids,
        clock,
        log,
        listener,
        closureOf: (job) => listener.closureOf(job),
      }),
    }
    this.#scheduler.setExecutors(this.#executors)
    const { cores, gpuIds, memoryMb } = this.#capacity
    const amounts = { cores, gpus: gpuIds.length, memoryMb: Math.floor(memoryMb) }
    this.nodes = [
      {
        nodeId,
        capacity: { ...amounts, labels: {}, version, workers, maxProcesses },
        samplingPriority: 1,
        createSampler: (pollSeconds) => createLocalSampler({ clock, log, pollSeconds }),
      },
    ]
  }

  refuse(spec: TaskSpec): Refusal | null {
    if (this.#close.isCalled) return { field: 'backend', message: `"${this.name}" is closed` }
    if (spec.kind === 'prompt')
      return { field: 'prompt', message: `"${this.name}" runs no prompts` }
    if (spec.kind === 'function' && isEntryModule(spec.definition)) {
      return {
        field: 'function',
        message:
          `"${spec.executable}" is defined in the program's entry module, which workers cannot ` +
          'import; move it to a file of its own (with a bundler, leave that file external)',
      }
    }
    const refusal = resourceRefusal(spec.resources, this.#capacity)
    if (refusal !== null || spec.kind === 'closure') return refusal
    const { functions, programs } = this.#executors
    return (spec.kind === 'function' ? functions : programs).refusal()
  }

  connect(
    listener: BackendListener,
    session: ConnectedSession,
  ): Connection & {
    /**
     * Removes and returns the jobs that no executor has yet. They get no report. Used by agents.
     */
    withdraw(): Job[]
  } {
    this.#listeners.add(listener)
    const client: Client = { listener, session }
    return {
      submit: (jobs) => this.#submit(jobs, client),
      cancel: (job, reason) => this.#scheduler.cancel(job, reason),
      output: async (job) => {
        const assigned = this.#scheduler.findAssigned(job)
        return assigned === null ? null : this.#executors.programs.output(assigned)
      },
      withdraw: () => this.#scheduler.withdraw(listener),
      release: (reason) => this.#release(client, reason),
    }
  }

  close(): Promise<void> {
    return this.#close()
  }

  /** For `await using`: calls `close()`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  #submit(jobs: readonly Job[], client: Client): void {
    const { listener } = client
    if (!this.#close.isCalled) this.#scheduler.submit(jobs, executorKindOf, client)
    else for (const job of jobs) listener.report(job, { kind: 'cancel', reason: 'backend closed' })
  }

  async #release({ listener, session }: Client, reason: string): Promise<void> {
    this.#scheduler.cancelAll(listener, reason)
    await this.#scheduler.waitUntilDrained(listener)
    await this.#executors.programs.endBackground(session.id)
    this.#listeners.delete(listener)
  }

  async #closeExecutors(): Promise<void> {
    const reason = 'backend closed'
    this.#scheduler.close(reason)
    await Promise.all(Object.values(this.#executors).map((executor) => executor.close(reason)))
    this.#listeners.clear()
  }
}

function executorKindOf({ spec }: Job): ExecutorKind {
  if (spec.kind === 'program') return 'programs'
  return spec.kind === 'function' ? 'functions' : 'closures'
}

const workerLimit = 1024
const processLimit = 65_536

/**
 * Returns the number of cores. The default is the number of usable cores, but at least `workers`
 * and at least `maxProcesses`.
 */
function resolveCores({ cores, workers = 1, maxProcesses = 1 }: ConcurrentBackendOptions): number {
  if (cores !== undefined) return expectCores(cores)
  return Math.max(
    usableCores(),
    expectInteger('workers', workers, { min: 1, max: workerLimit }),
    expectInteger('maxProcesses', maxProcesses, { min: 1, max: processLimit }),
  )
}

function resolveConcurrentBackendOptions(options: ConcurrentBackendOptions) {
  expectKnownKeys('ConcurrentBackend', expectObject('options', options), knownOptions)
  const cores = resolveCores(options)
  const { name = 'concurrent', workers = Math.min(cores, workerLimit) } = options
  const { maxProcesses = cores, nodeId, gpus, memoryMb, workDir, workerMemoryMb } = options
  const { isolation = workerMemoryMb === undefined ? 'thread' : 'process' } = options
  const resolved = {
    name: expectString('name', name),
    workers: expectInteger('workers', workers, { min: 1, max: workerLimit }),
    maxProcesses: expectInteger('maxProcesses', maxProcesses, { min: 1, max: processLimit }),
    isolation: expectOneOf('isolation', isolation, ['thread', 'process']),
    workerMemoryMb:
      workerMemoryMb === undefined
        ? null
        : expectInteger('workerMemoryMb', workerMemoryMb, { min: 16, max: 1_048_576 }),
    importTimeoutSeconds: expectNumber('importTimeoutSeconds', options.importTimeoutSeconds ?? 60, {
      above: 0,
      max: 86_400,
    }),
    nodeId: nodeId === undefined ? hostname() : expectId('nodeId', nodeId),
    workDir: workDir === undefined ? null : expectWorkDir(workDir),
    clock: options.clock ?? systemClock,
    log: resolveLog(options.log),
  }
  const capacity: Capacity = {
    cores,
    memoryMb: memoryMb === undefined ? usableMemoryMb() : expectMemoryMb(memoryMb),
    gpuIds: gpus === undefined ? visibleGpus() : expectGpus(gpus),
  }
  if (workerMemoryMb !== undefined && isolation === 'thread') warnAboutThreadLimit(resolved)
  return { ...resolved, capacity }
}

/**
 * Warns that a thread beyond its memory limit can abort this process. See
 * https://github.com/nodejs/node/issues/47224.
 */
function warnAboutThreadLimit({ name, log }: { readonly name: string; readonly log: Log }): void {
  const text = `backend "${name}": a thread beyond \`workerMemoryMb\` can abort this process`
  log.warn('ThreadMemoryLimit', `${text}; use \`isolation: 'process'\``)
}

const knownOptions = (
  'name workers maxProcesses isolation workerMemoryMb importTimeoutSeconds nodeId cores gpus ' +
  'memoryMb workDir clock log'
).split(' ')

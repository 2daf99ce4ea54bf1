/** Runs tasks on the nodes of an allocation of a supercomputer. */

import {
  type Backend,
  type BackendListener,
  type ConnectedSession,
  type Connection,
  type Refusal,
  type SampledNode,
  toEventNotice,
} from '../backends/backend.ts'
import { AllocationEnding } from '../events/library-events.ts'
import { type Clock, clockMethods, systemClock } from '../foundation/clock.ts'
import { StateError, ValueError } from '../foundation/errors.ts'
import type { JsonObject } from '../foundation/json-value.ts'
import { type Log, processLog } from '../foundation/log.ts'
import {
  expectKnownKeys,
  expectMethods,
  expectNumber,
  expectObject,
  expectString,
  invalid,
} from '../foundation/options.ts'
import type {
  NodeServers,
  ServerRequest,
  ServerReservation,
} from '../runtime/server/node-servers.ts'
import type { TaskSpec } from '../tasks/spec.ts'
import { type AgentCluster, startAgentCluster } from './agents/agent-cluster.ts'
import type { Allocation } from './allocation.ts'
import { AllocationWatch } from './allocation-watch.ts'
import { HostListAllocation, isHostName, sshCommand } from './host-list-allocation.ts'
import { LossReports } from './loss-reports.ts'
import { refuseRanks } from './ranks/rank-refusal.ts'
import { hasRanks, RankTasks } from './ranks/rank-tasks.ts'
import { RankTurns } from './ranks/rank-turns.ts'
import { ServiceNodes } from './services/service-nodes.ts'
import { SlurmAllocation } from './slurm/slurm-allocation.ts'
import { SlurmCommands } from './slurm/slurm-commands.ts'
import { tellEnd, useStartMethod } from './start-method.ts'

/** The options of `HpcBackend.create`. */
export interface HpcBackendOptions {
  /** Default `hpc`. */
  readonly name?: string
  /** With the start method `hosts`: their names. Default: those of `tutti launch --hosts`. */
  readonly hosts?: readonly string[]
  /** What tasks have for their end before the allocation's own. Default 60. */
  readonly graceSeconds?: number
  readonly clock?: Clock
  readonly log?: Log
}

interface ResolvedOptions {
  readonly name: string
  readonly hosts: readonly string[] | null
  readonly graceSeconds: number
  readonly clock: Clock
  readonly log: Log
}

/**
 * Tasks on the nodes of an allocation. The script is started by `tutti launch`, and chooses a start
 * method first. When Slurm ends the job of a script that runs on its nodes, the script gets
 * SIGTERM: until the backend is closed it handles this signal, and ends the tasks as CANCELED with
 * the reason `AllocationLostError`. The script then has Slurm's `KillWait` for its own end, 30 s by
 * default.
 *
 * @example
 * setStartMethod('slurm')
 * const hpc = await HpcBackend.create({ name: 'hpc' })
 * await using session = new Session([hpc])
 */
export class HpcBackend implements Backend, NodeServers {
  readonly name: string
  readonly #allocation: Allocation
  readonly #clock: Clock
  readonly #cluster: AgentCluster
  readonly #watch: AllocationWatch
  readonly #rankTurns = new RankTurns()
  readonly #services: ServiceNodes
  readonly #connections = new Map<BackendListener, Pick<Connection, 'release'>>()
  /** Why nothing may begin any more; `null` while it may. */
  #ending: string | null = null
  #closing: Promise<void> | null = null

  /** Resolves when an agent runs on every node. */
  static async create(options: HpcBackendOptions = {}): Promise<HpcBackend> {
    const resolved = resolveHpcOptions(options)
    const { name, clock, log } = resolved
    const allocation = await openAllocation(resolved)
    expectEnoughTime(allocation, resolved.graceSeconds)
    const cluster = await startAgentCluster({ name, allocation, clock, log })
    return new HpcBackend(resolved, cluster, allocation)
  }

  /** Use `HpcBackend.create`. */
  private constructor(
    { name, graceSeconds, clock, log }: ResolvedOptions,
    cluster: AgentCluster,
    allocation: Allocation,
  ) {
    this.name = name
    this.#allocation = allocation
    this.#clock = clock
    this.#cluster = cluster
    const nodes = () => allocation.nodes
    this.#services = new ServiceNodes({ nodes, backend: cluster.backend, clock })
    this.#watch = new AllocationWatch({
      allocation,
      graceSeconds,
      clock,
      log,
      onEnding: (seconds_left) => {
        const notice = toEventNotice(AllocationEnding, { seconds_left })
        for (const listener of this.#connections.keys()) listener.notice(notice)
      },
      onEnd: (reason) => this.#end(reason),
    })
    void cluster.lost.then(({ code, message }) => this.#end(`${code}: ${message}`))
  }

  get nodes(): readonly SampledNode[] {
    return this.#cluster.backend.nodes
  }

  /** The job, its partition, nodes, time limit and wait, as far as there is a scheduler. */
  get runFacts(): JsonObject {
    return this.#allocation.facts
  }

  refuse(spec: TaskSpec): Refusal | null {
    if (this.#ending !== null) return { field: 'backend', message: this.#ending }
    const { backend } = this.#cluster
    if (spec.resources.ranks === 1 || this.#closing !== null) {
      return backend.refuse(spec, { mayGrow: false })
    }
    const free = backend.nodes.flatMap(({ nodeId, capacity }) =>
      capacity === undefined ? [] : [backend.held.without(nodeId, capacity)],
    )
    return refuseRanks(spec, free, backend.held.describe())
  }

  /** For `nodes` of an inference backend: its servers run beside tasks, on nodes of their own. */
  reserveServers(request: ServerRequest): ServerReservation {
    return this.#services.reserveServers(request)
  }

  connect(listener: BackendListener, session: ConnectedSession): Connection {
    const allocation = this.#allocation
    const clock = this.#clock
    const reports = new LossReports(listener, allocation, clock)
    const turns = this.#rankTurns
    const ranks = new RankTasks({ listener: reports, allocation, clock, turns })
    const secondsLeft = (): number => this.#watch.secondsLeft
    const { backend, modules } = this.#cluster
    const connection = backend.connect(ranks, session, { secondsLeft, modules })
    const release = async (reason: string): Promise<void> => {
      await ranks.release(reason)
      await connection.release(reason)
    }
    this.#connections.set(listener, { release })
    return {
      submit: (jobs) => {
        const reason = this.#ending
        if (reason !== null) {
          for (const job of jobs) listener.report(job, { kind: 'cancel', reason })
          return
        }
        if (!jobs.some(hasRanks)) return connection.submit(jobs)
        connection.submit(jobs.filter((job) => !hasRanks(job)))
        for (const job of jobs.filter(hasRanks)) ranks.submit(job, connection)
      },
      cancel: (job, reason) => {
        if (hasRanks(job)) ranks.cancel(job, reason)
        else connection.cancel(job, reason)
      },
      recorded: (jobs) => {
        const others = jobs.some(hasRanks) ? jobs.filter((job) => !hasRanks(job)) : jobs
        connection.recorded?.(others)
      },
      release: async (reason) => {
        await this.#watch.judged()
        await release(this.#ending ?? reason)
        await reports.settled()
        this.#connections.delete(listener)
      },
    }
  }

  /** Ends servers and agents. The allocation stays: it ends with the script. */
  close(): Promise<void> {
    this.#watch.close()
    this.#closing ??= this.#closeOnce()
    return this.#closing
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  async #closeOnce(): Promise<void> {
    await this.#services.end(`"${this.name}" is closed`)
    await this.#cluster.close()
  }

  /** What runs is canceled while its nodes are still there, and sessions stay open. */
  #end(reason: string): void {
    if (this.#ending !== null || this.#closing !== null) return
    this.#ending = reason
    tellEnd()
    this.#cluster.stopRestarts()
    void this.#services.end(reason)
    for (const connection of this.#connections.values()) void connection.release(reason)
  }
}

function resolveHpcOptions(options: HpcBackendOptions): ResolvedOptions {
  const keys = ['name', 'hosts', 'graceSeconds', 'clock', 'log']
  expectKnownKeys('HpcBackend', expectObject('options', options), keys)
  const { name = 'hpc', hosts, graceSeconds = 60 } = options
  return {
    name: expectString('name', name),
    hosts: hosts === undefined ? null : expectHosts(hosts),
    graceSeconds: expectNumber('graceSeconds', graceSeconds, { min: 0, max: 86_400 }),
    clock: expectMethods('clock', options.clock ?? systemClock, clockMethods),
    log: expectMethods('log', options.log ?? processLog, ['warn']),
  }
}

function expectHosts(hosts: unknown): readonly string[] {
  if (!Array.isArray(hosts) || hosts.length === 0) {
    throw invalid('hosts', 'a list of host names', hosts)
  }
  return hosts.map((one: unknown, at) => {
    const field = `hosts[${at}]`
    const host = expectString(field, one)
    if (isHostName(host) && hosts.indexOf(one) === at) return host
    throw invalid(field, 'the name of a host, given once', host)
  })
}

async function openAllocation({ hosts, clock }: ResolvedOptions): Promise<Allocation> {
  const { method, facts } = useStartMethod()
  if (method === 'slurm') {
    if (hosts !== null) {
      const text = 'hosts: Slurm names the nodes; they cannot be given'
      throw new ValueError(text, { field: 'hosts', hint: "Use setStartMethod('hosts')." })
    }
    const jobId = facts.jobId ?? process.env['SLURM_JOB_ID'] ?? ''
    if (jobId === '') throw new StateError('the launcher has named no job of Slurm')
    return SlurmAllocation.open(jobId, new SlurmCommands(), clock)
  }
  const names = hosts ?? expectHosts(facts.hosts)
  const shell = process.env['TUTTI_REMOTE_SHELL']?.trim() ?? ''
  const remoteShell = shell === '' ? sshCommand : shell.split(/\s+/)
  return new HostListAllocation({ hosts: names, remoteShell, clock })
}

/** The warnings before its end must have their time. */
function expectEnoughTime({ label, limitSeconds }: Allocation, graceSeconds: number): void {
  const least = 2 * graceSeconds
  if (limitSeconds === null || limitSeconds >= least) return
  const text = `${label} has ${limitSeconds} s, which is less than twice graceSeconds`
  throw new ValueError(`graceSeconds: ${text} (${graceSeconds})`, {
    field: 'graceSeconds',
    hint: `Ask for at least ${least} s, or give a shorter graceSeconds.`,
  })
}

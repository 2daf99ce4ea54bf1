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
import type { ClusterBackend } from '../cluster/cluster-backend.ts'
import type { NodeFacts } from '../cluster/wire/messages.ts'
import { couldRun, describeLack, describeRequest } from '../tasks/resource-fit.ts'
import { AllocationEnding } from '../events/library-events.ts'
import type { Clock } from '../foundation/clock.ts'
import { BackendError } from '../foundation/errors.ts'
import type { JsonObject, JsonValue } from '../foundation/json-value.ts'
import type { Log } from '../foundation/log.ts'
import { once } from '../foundation/service.ts'
import type {
  NodeServers,
  ServerRequest,
  ServerReservation,
} from '../runtime/server/node-servers.ts'
import { defaultResources, isDefaultRequest } from '../tasks/resources.ts'
import type { TaskSpec } from '../tasks/spec.ts'
import { AgentCluster } from './agents/agent-cluster.ts'
import type { NodeAgents } from './agents/node-agents.ts'
import type { Allocation, RankCommand } from './allocation.ts'
import { AllocationWatch } from './allocation-watch.ts'
import { findNodes, type GivenNodes } from './given-nodes.ts'
import {
  type HpcBackendOptions,
  type ResolvedHpcOptions,
  resolveHpcOptions,
} from './hpc-options.ts'
import { newAllocationFolder } from './launch/launch-folder.ts'
import { LossReports } from './loss-reports.ts'
import { toAllocationFacts } from './pilots/pilot-options.ts'
import { Pilots } from './pilots/pilots.ts'
import { refuseRanks } from './ranks/rank-refusal.ts'
import { hasRanks, RankTasks } from './ranks/rank-tasks.ts'
import { RankTurns } from './ranks/rank-turns.ts'
import { RemoteProcess } from './remote-process.ts'
import { ServiceNodes } from './services/service-nodes.ts'
import { SlurmCommands } from './slurm/slurm-commands.ts'
import { markEnded } from './start-method.ts'

/**
 * Runs tasks on the nodes of an allocation. `tutti launch` starts the script, which first chooses a
 * start method. If the script runs on the nodes of the job, Slurm ends it by SIGTERM: until the
 * backend is closed, the backend handles this signal and ends the tasks as CANCELED with the reason
 * `AllocationLostError`. The script then has Slurm's `KillWait` (30 s by default) to exit. A
 * backend that is never closed keeps the script and its allocation running.
 *
 * @example
 * setStartMethod('slurm')
 * const hpc = await HpcBackend.create({ name: 'hpc' })
 * await using session = new Session([hpc])
 */
export class HpcBackend implements Backend, NodeServers {
  readonly name: string
  readonly #given: GivenNodes
  readonly #clock: Clock
  readonly #cluster: AgentCluster
  readonly #backend: ClusterBackend
  /** `null` if the launch has no allocation. */
  readonly #watch: AllocationWatch | null
  /** `null` if the backend requests no allocations itself. */
  readonly #pilots: Pilots | null
  readonly #modules: 'shared' | 'bundle'
  readonly #rankTurns = new RankTurns()
  readonly #services: ServiceNodes
  readonly #connections = new Map<BackendListener, Pick<Connection, 'release'>>()
  /** Why no task may begin any more; `null` while tasks may begin. */
  #ending: string | null = null
  /** Whether a task or a service was lost for that reason. */
  #hasLostWork = false
  readonly #close = once(() => this.#closeOnce())

  /** Resolves when an agent runs on every node of the launch. */
  static async create(options: HpcBackendOptions = {}): Promise<HpcBackend> {
    const resolved = resolveHpcOptions(options)
    const given = await findNodes(resolved)
    const { name, clock, log } = resolved
    const { allocation, sources } = given
    const near = [...(allocation?.nodes ?? []), ...sources.map((source) => source.near)]
    let onGivenUp = (_node: string, _why: string): void => {}
    const cluster = new AgentCluster({
      name,
      near,
      clock,
      log,
      onGivenUp: (node, why) => onGivenUp(node, why),
    })
    try {
      const agents = allocation === null ? null : await cluster.add(allocation)
      const backend = await cluster.backend()
      const hpc = new HpcBackend(resolved, { ...given, cluster, backend, agents })
      onGivenUp = (node, why) => hpc.#services.loseNode(node, why)
      return hpc
    } catch (error) {
      await cluster.close()
      await given.held?.close()
      throw error
    }
  }

  /** Use `HpcBackend.create`. */
  private constructor(resolved: ResolvedHpcOptions, parts: HpcParts) {
    const { name, clock, log } = resolved
    const { cluster, backend, agents, sources } = parts
    this.name = name
    this.#given = parts
    this.#clock = clock
    this.#cluster = cluster
    this.#backend = backend
    const nodes = () => parts.allocation?.nodes ?? []
    this.#services = new ServiceNodes({ nodes, backend, clock })
    this.#modules = chooseModules(agents?.unseeing ?? [], log)
    this.#pilots = sources.length === 0 ? null : this.#askFor(resolved, parts)
    this.#watch = this.#watchEnd(resolved, parts)
    void cluster.lost().then(({ code, message }) => this.#end(`${code}: ${message}`))
  }

  get nodes(): readonly SampledNode[] {
    return this.#backend.nodes
  }

  /** The job with its partition, nodes, time limit and queue time, if there is a scheduler. */
  get runFacts(): JsonObject {
    const { allocation, sources } = this.#given
    const asked = sources.map(({ options }) => toAllocationFacts(options))
    return {
      ...allocation?.facts,
      ...(asked.length === 0 ? {} : { allocations: asked }),
    }
  }

  refuse(spec: TaskSpec): Refusal | null {
    if (this.#ending !== null) {
      this.#noteLostWork()
      return { field: 'backend', message: this.#ending }
    }
    const { resources } = spec
    const pilots = this.#pilots
    const isPlain = resources.ranks === 1 || this.#close.isCalled
    if (isPlain && (pilots === null || isDefaultRequest(resources))) {
      return this.#backend.refuse(spec, { mayGrow: false })
    }
    const mayCome = pilots?.mayRun(resources) ?? false
    // Checks everything but the resources, which nodes that join later may offer as well.
    const refusal = isPlain
      ? this.#backend.refuse({ ...spec, resources: defaultResources })
      : refuseRanks(spec, [], { mayCome: true })
    if (refusal !== null || mayCome) return refusal
    const free = this.#freeNodes(pilots === null ? undefined : resources.seconds)
    const words = [...this.#backend.held.describe(), ...(pilots?.describeComing(resources) ?? [])]
    if (!isPlain) return refuseRanks(spec, free, { words })
    if (free.some((one) => couldRun(one, resources))) return null
    const { seconds } = resources
    const agents = free.map((facts) => ({ name: facts.name, facts }))
    const lack =
      seconds === undefined
        ? describeLack(resources, agents, 'none')
        : `no node has ${describeRequest(resources)} for ${seconds} s`
    const field = seconds === undefined ? 'resources' : 'resources.seconds'
    return { field, message: [lack, ...words].join('; ') }
  }

  /** The capacity that services leave on the nodes that remain for at least `seconds`. */
  #freeNodes(seconds = 0): readonly (NodeFacts & { readonly name: string })[] {
    const { nodes, held } = this.#backend
    return nodes.flatMap(({ nodeId: name, capacity }) => {
      if (capacity === undefined || seconds > this.#secondsLeft(name)) return []
      return [{ labels: {}, ...held.without(name, capacity), name }]
    })
  }

  /** Reserves parts of nodes for the servers of an inference backend (its option `nodes`). */
  reserveServers(request: ServerRequest): ServerReservation {
    return this.#services.reserveServers(request)
  }

  connect(given: BackendListener, session: ConnectedSession): Connection {
    const listener = this.#noteLosses(given)
    const { allocation } = this.#given
    const clock = this.#clock
    const pilots = this.#pilots
    // If more allocations may come, a lost one only means lost nodes.
    const isOnly = allocation !== null && pilots === null
    const onLost = (reason: string): void => this.#end(reason)
    const reports = isOnly ? new LossReports(listener, allocation, clock, onLost) : null
    const turns = this.#rankTurns
    const placed = { startRanks: (command: RankCommand) => this.#startRanks(command) }
    const ranks = new RankTasks({ listener: reports ?? listener, allocation: placed, clock, turns })
    const connection = this.#backend.connect(ranks, session, {
      secondsLeft: (node) => this.#secondsLeft(node),
      horizons: pilots?.horizons ?? [],
      modules: this.#modules,
      whyNone: pilots === null ? null : (resources) => pilots.whyNone(resources),
    })
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
        ranks.submit(jobs, connection)
      },
      cancel: (job, reason) => {
        if (hasRanks(job)) ranks.cancel(job, reason)
        else connection.cancel(job, reason)
      },
      recorded: (jobs) => {
        const others = jobs.some(hasRanks) ? jobs.filter((job) => !hasRanks(job)) : jobs
        connection.recorded?.(others)
      },
      // The output of an MPI program is put together only when all its ranks have ended.
      output: async (job) => (hasRanks(job) ? null : ((await connection.output?.(job)) ?? null)),
      release: async (reason) => {
        await this.#watch?.judged()
        await release(this.#ending ?? reason)
        await reports?.settled()
        this.#connections.delete(listener)
      },
    }
  }

  /** Ends servers and agents. The allocation of the launch ends only with the script. */
  close(): Promise<void> {
    this.#watch?.close()
    return this.#close()
  }

  async #closeOnce(): Promise<void> {
    await this.#services.end(`"${this.name}" is closed`)
    await Promise.all([this.#cluster.close(), this.#pilots?.close()])
    await this.#given.held?.close()
  }

  /** For `await using`: calls `close()`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  #askFor(resolved: ResolvedHpcOptions, { sources, cluster, backend }: HpcParts): Pilots {
    const { clock, log, graceSeconds } = resolved
    return new Pilots({
      sources,
      folders: newAllocationFolder,
      commands: new SlurmCommands(),
      clock,
      log,
      graceSeconds,
      addAgents: (allocation, labels) => addSeeing(cluster, allocation, labels),
      removeAgents: (agents) => cluster.remove(agents),
      load: () => backend.load,
      onEnding: (secondsLeft, jobId) => this.#tellEnding(secondsLeft, jobId),
    })
  }

  #watchEnd(
    resolved: ResolvedHpcOptions,
    { allocation, agents, cluster }: HpcParts,
  ): AllocationWatch | null {
    if (allocation === null) return null
    const { graceSeconds, clock, log } = resolved
    return new AllocationWatch({
      allocation,
      graceSeconds,
      clock,
      log,
      onEnding: (secondsLeft) => this.#tellEnding(secondsLeft, allocation.facts['job_id']),
      onSignal: () => cluster.expectEnd(),
      onEnd: (reason) => {
        if (this.#pilots === null) return this.#end(reason)
        agents?.drain()
        void this.#services.end(reason)
      },
    })
  }

  /** The `allocation` attribute tells several allocations apart; their nodes have it as a label. */
  #tellEnding(seconds_left: number, jobId: JsonValue | undefined): void {
    const attributes = jobId === undefined ? {} : { allocation: String(jobId) }
    const notice = toEventNotice(AllocationEnding, { seconds_left }, { attributes })
    for (const listener of this.#connections.keys()) listener.notice(notice)
  }

  /** The seconds for which tasks can still run on this node or, if none is given, on any node. */
  #secondsLeft(node?: string): number {
    const own = this.#watch?.secondsLeft ?? 0
    if (node !== undefined) return this.#pilots?.secondsLeftAt(node) ?? own
    // More nodes may come; whether they suit a task is checked for each task.
    return this.#pilots === null ? own : Infinity
  }

  #startRanks(command: RankCommand): RemoteProcess {
    const [node = ''] = command.nodes
    const allocation = this.#pilots?.allocationOf(node) ?? this.#given.allocation
    if (allocation !== null) return allocation.startRanks(command)
    // The allocation was lost after the ranks were placed: this process fails like a refused step.
    const failing = ['sh', '-c', 'echo "node $0 is not there any more" >&2; exit 1', node]
    return new RemoteProcess({ command: failing, env: process.env, input: '', clock: this.#clock })
  }

  /** Records that a task ended because no task may run any more. */
  #noteLosses(listener: BackendListener): BackendListener {
    return {
      report: (job, report) => {
        const hasFailed = report.kind === 'cancel' || report.kind === 'fail'
        if (this.#ending !== null && hasFailed) this.#noteLostWork()
        listener.report(job, report)
      },
      notice: (notice) => listener.notice(notice),
    }
  }

  /** Tells the launcher, once, that the allocation's end has ended a task or a service. */
  #noteLostWork(): void {
    if (!this.#hasLostWork) markEnded()
    this.#hasLostWork = true
  }

  /** Cancels running tasks while their nodes still exist. Sessions stay open. */
  #end(reason: string): void {
    if (this.#ending !== null || this.#close.isCalled) return
    this.#ending = reason
    if (this.#services.hasServices) this.#noteLostWork()
    this.#cluster.stopRestarts()
    void this.#services.end(reason)
    for (const connection of this.#connections.values()) void connection.release(reason)
  }
}

interface HpcParts extends GivenNodes {
  readonly cluster: AgentCluster
  readonly backend: ClusterBackend
  readonly agents: NodeAgents | null
}

/** All nodes get modules in the same way: if one cannot read the folder, all get bundles. */
function chooseModules(unseeing: readonly string[], log: Log): 'shared' | 'bundle' {
  if (unseeing.length === 0) return 'shared'
  log.warn('FolderNotShared', `${describeUnseeing(unseeing)}: functions are sent as bundles`)
  return 'bundle'
}

const describeUnseeing = (nodes: readonly string[]): string =>
  `${nodes.join(', ')} cannot read the folder of the launch`

/** Rejects if nodes that join later cannot read the folder of the launch, as the others can. */
async function addSeeing(
  cluster: AgentCluster,
  allocation: Allocation,
  labels: Readonly<Record<string, string>>,
): Promise<NodeAgents> {
  const agents = await cluster.add(allocation, labels)
  if (agents.unseeing.length === 0) return agents
  await cluster.remove(agents)
  throw new BackendError(describeUnseeing(agents.unseeing))
}

/** The HPC backend, which runs tasks on the nodes of a supercomputer. */

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
import { canRun, describeShortage, describeRequest } from '../tasks/resource-fit.ts'
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
import { AllocationWatch, LossReports } from './allocation-watch.ts'
import { findNodes, type LaunchNodes } from './given-nodes.ts'
import {
  type HpcBackendOptions,
  type ResolvedHpcOptions,
  resolveHpcOptions,
} from './hpc-options.ts'
import { newAllocationFolder } from './launch/launch-folder.ts'
import { toAllocationFacts } from './pilots/pilot-options.ts'
import { Pilots } from './pilots/pilots.ts'
import { hasRanks, RankTasks, refuseRanks } from './ranks/rank-tasks.ts'
import { RankTurns } from './ranks/rank-turns.ts'
import { RemoteProcess } from './remote-process.ts'
import { ServiceNodes } from './services/service-nodes.ts'
import { SlurmCommands } from './slurm/slurm-commands.ts'
import { leaveMark } from './start-method.ts'

/**
 * Runs tasks on the nodes of an allocation. `tutti launch` starts the script, which first chooses a
 * start method. If the script runs on the nodes of the job, Slurm ends it by SIGTERM. The backend
 * handles this signal until it is closed: it ends the tasks as CANCELED with the reason
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
  readonly keepsResults = true
  readonly #launchNodes: LaunchNodes
  readonly #clock: Clock
  readonly #cluster: AgentCluster
  readonly #backend: ClusterBackend
  readonly #watch: AllocationWatch | null
  readonly #pilots: Pilots | null
  readonly #modules: 'shared' | 'bundle'
  readonly #rankTurns = new RankTurns()
  readonly #services: ServiceNodes
  readonly #connections = new Map<BackendListener, Pick<Connection, 'release'>>()
  /** Why no further task may start; `null` while tasks may start. */
  #endReason: string | null = null
  #hasLostWork = false
  readonly #close = once(() => this.#closeOnce())

  /** Resolves when an agent runs on every node of the launch. */
  static async create(options: HpcBackendOptions = {}): Promise<HpcBackend> {
    const resolved = resolveHpcOptions(options)
    const launchNodes = await findNodes(resolved)
    const { name, clock, log } = resolved
    const { allocation, sources } = launchNodes
    const peers = [...(allocation?.nodes ?? []), ...sources.map((source) => source.exampleNode)]
    let onNodeAbandoned = (_node: string, _why: string): void => {}
    const cluster = new AgentCluster({
      name,
      peers,
      clock,
      log,
      onNodeAbandoned: (node, why) => onNodeAbandoned(node, why),
    })
    try {
      const agents = allocation === null ? null : await cluster.add(allocation)
      const backend = await cluster.backend()
      const hpc = new HpcBackend(resolved, { ...launchNodes, cluster, backend, agents })
      onNodeAbandoned = (node, why) => hpc.#services.loseNode(node, why)
      return hpc
    } catch (error) {
      await cluster.close()
      await launchNodes.placeholder?.close()
      throw error
    }
  }

  private constructor(resolved: ResolvedHpcOptions, parts: BackendParts) {
    const { name, clock, log } = resolved
    const { cluster, backend, agents, sources } = parts
    this.name = name
    this.#launchNodes = parts
    this.#clock = clock
    this.#cluster = cluster
    this.#backend = backend
    const nodes = () => parts.allocation?.nodes ?? []
    this.#services = new ServiceNodes({ nodes, backend, clock })
    this.#modules = chooseModules(agents?.nodesWithoutFolder ?? [], log)
    this.#pilots = sources.length === 0 ? null : this.#startPilots(resolved, parts)
    this.#watch = this.#watchEnd(resolved, parts)
    void cluster.lost().then(({ code, message }) => this.#stopTasks(`${code}: ${message}`))
  }

  get nodes(): readonly SampledNode[] {
    return this.#backend.nodes
  }

  /** The job's partition, nodes, time limit and queue time; without a scheduler, only the nodes. */
  get runFacts(): JsonObject {
    const { allocation, sources } = this.#launchNodes
    const requested = sources.map(({ options }) => toAllocationFacts(options))
    return {
      ...allocation?.facts,
      ...(requested.length === 0 ? {} : { allocations: requested }),
    }
  }

  refuse(spec: TaskSpec): Refusal | null {
    if (this.#endReason !== null) {
      this.#noteLostWork()
      return { field: 'backend', message: this.#endReason }
    }
    const { resources } = spec
    const pilots = this.#pilots
    const hasOneRank = resources.ranks === 1 || this.#close.isCalled
    if (hasOneRank && (pilots === null || isDefaultRequest(resources))) {
      return this.#backend.refuse(spec, { mayGrow: false })
    }
    const mayStartLater = pilots?.mayRun(resources) ?? false
    // Checks everything except the resources, because nodes that join later may offer more.
    const refusal = hasOneRank
      ? this.#backend.refuse({ ...spec, resources: defaultResources })
      : refuseRanks(spec, [], { mayStartLater: true })
    if (refusal !== null || mayStartLater) return refusal
    const free = this.#freeNodes(pilots === null ? undefined : resources.seconds)
    const notes = [
      ...this.#backend.held.describe(),
      ...(pilots?.describeFutureNodes(resources) ?? []),
    ]
    if (!hasOneRank) return refuseRanks(spec, free, { notes })
    if (free.some((one) => canRun(one, resources))) return null
    const { seconds } = resources
    const agents = free.map((facts) => ({ name: facts.name, facts }))
    const lack =
      seconds === undefined
        ? describeShortage(resources, agents, 'none')
        : `no node has ${describeRequest(resources)} for ${seconds} s`
    const field = seconds === undefined ? 'resources' : 'resources.seconds'
    return { field, message: [lack, ...notes].join('; ') }
  }

  /** The capacity that services leave for tasks, on nodes that remain for at least `seconds`. */
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

  connect(sessionListener: BackendListener, session: ConnectedSession): Connection {
    const listener = this.#withLossNotes(sessionListener)
    const { allocation } = this.#launchNodes
    const clock = this.#clock
    const pilots = this.#pilots
    // If further allocations may start, a lost allocation only means lost nodes.
    const isOnlyAllocation = allocation !== null && pilots === null
    const onLost = (reason: string): void => this.#stopTasks(reason)
    const reports = isOnlyAllocation ? new LossReports(listener, allocation, clock, onLost) : null
    const ranks = new RankTasks({
      listener: reports ?? listener,
      startRanks: (command) => this.#startRanks(command),
      clock,
      turns: this.#rankTurns,
    })
    const connection = this.#backend.connect(ranks, session, {
      secondsLeft: (node) => this.#secondsLeft(node),
      horizons: pilots?.horizons ?? [],
      modules: this.#modules,
      explainNoAgent: pilots === null ? null : (resources) => pilots.findRefusal(resources),
    })
    const release = async (reason: string): Promise<void> => {
      await ranks.release(reason)
      await connection.release(reason)
    }
    this.#connections.set(listener, { release })
    return {
      submit: (jobs) => {
        const reason = this.#endReason
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
      // Returns no output of an MPI program, because it is complete only when all ranks have ended.
      output: async (job) => (hasRanks(job) ? null : ((await connection.output?.(job)) ?? null)),
      release: async (reason) => {
        await this.#watch?.signalChecked()
        await release(this.#endReason ?? reason)
        await reports?.settled()
        this.#connections.delete(listener)
      },
    }
  }

  /**
   * Ends the servers, the agents and the allocations that this backend requested. An allocation of
   * `tutti launch` remains until the script ends.
   */
  close(): Promise<void> {
    this.#watch?.close()
    return this.#close()
  }

  async #closeOnce(): Promise<void> {
    await this.#services.end(`"${this.name}" is closed`)
    await Promise.all([this.#cluster.close(), this.#pilots?.close()])
    await this.#launchNodes.placeholder?.close()
  }

  /** For `await using`: calls `close()`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  #startPilots(resolved: ResolvedHpcOptions, { sources, cluster, backend }: BackendParts): Pilots {
    const { clock, log, graceSeconds } = resolved
    return new Pilots({
      sources,
      createFolder: newAllocationFolder,
      commands: new SlurmCommands(),
      clock,
      log,
      graceSeconds,
      addAgents: (allocation, labels) => addAgentsWithFolder(cluster, allocation, labels),
      removeAgents: (agents) => cluster.remove(agents),
      load: () => backend.load,
      onEnding: (secondsLeft, jobId) => this.#announceEnd(secondsLeft, jobId),
    })
  }

  #watchEnd(
    resolved: ResolvedHpcOptions,
    { allocation, agents, cluster }: BackendParts,
  ): AllocationWatch | null {
    if (allocation === null) return null
    const { graceSeconds, clock, log } = resolved
    return new AllocationWatch({
      allocation,
      graceSeconds,
      clock,
      log,
      onEnding: (secondsLeft) => this.#announceEnd(secondsLeft, allocation.facts['job_id']),
      onSignal: () => cluster.expectShutdown(),
      onEnd: (reason) => {
        if (this.#pilots === null) return this.#stopTasks(reason)
        agents?.drain()
        void this.#services.end(reason)
      },
    })
  }

  /**
   * Emits `AllocationEnding`. Its attribute `allocation` is the id of the job, which is also a
   * label of the nodes.
   */
  #announceEnd(seconds_left: number, jobId: JsonValue | undefined): void {
    const attributes = jobId === undefined ? {} : { allocation: String(jobId) }
    const notice = toEventNotice(AllocationEnding, { seconds_left }, { attributes })
    for (const listener of this.#connections.keys()) listener.notice(notice)
  }

  /** Returns how many seconds tasks can still run, on `node` or, if it is omitted, on any node. */
  #secondsLeft(node?: string): number {
    const launchSeconds = this.#watch?.secondsLeft ?? 0
    if (node !== undefined) return this.#pilots?.secondsLeftAt(node) ?? launchSeconds
    // If more allocations may start, the remaining time is checked per node for each task.
    return this.#pilots === null ? launchSeconds : Infinity
  }

  #startRanks(command: RankCommand): RemoteProcess {
    const [node = ''] = command.nodes
    const allocation = this.#pilots?.allocationOf(node) ?? this.#launchNodes.allocation
    if (allocation !== null) return allocation.startRanks(command)
    // The allocation was lost after the ranks were placed. The command fails like a refused step.
    const failing = ['sh', '-c', 'echo "node $0 is not there any more" >&2; exit 1', node]
    return new RemoteProcess({ command: failing, env: process.env, input: '', clock: this.#clock })
  }

  #withLossNotes(listener: BackendListener): BackendListener {
    return {
      report: (job, report) => {
        const hasFailed = report.kind === 'cancel' || report.kind === 'fail'
        if (this.#endReason !== null && hasFailed) this.#noteLostWork()
        listener.report(job, report)
      },
      notice: (notice) => listener.notice(notice),
    }
  }

  #noteLostWork(): void {
    if (!this.#hasLostWork) leaveMark('ended')
    this.#hasLostWork = true
  }

  /** Cancels running tasks while their nodes still exist. Does not close the sessions. */
  #stopTasks(reason: string): void {
    if (this.#endReason !== null || this.#close.isCalled) return
    this.#endReason = reason
    if (this.#services.hasServices) this.#noteLostWork()
    this.#cluster.stopRestarts()
    void this.#services.end(reason)
    for (const connection of this.#connections.values()) void connection.release(reason)
  }
}

interface BackendParts extends LaunchNodes {
  readonly cluster: AgentCluster
  readonly backend: ClusterBackend
  readonly agents: NodeAgents | null
}

function chooseModules(nodesWithoutFolder: readonly string[], log: Log): 'shared' | 'bundle' {
  if (nodesWithoutFolder.length === 0) return 'shared'
  log.warn(
    'FolderNotShared',
    `${describeMissingFolder(nodesWithoutFolder)}: functions are sent as bundles`,
  )
  return 'bundle'
}

const describeMissingFolder = (nodes: readonly string[]): string =>
  `${nodes.join(', ')} cannot read the folder of the launch`

/**
 * Adds agents on the nodes of an allocation. Rejects if one of the nodes cannot read the folder of
 * the launch.
 */
async function addAgentsWithFolder(
  cluster: AgentCluster,
  allocation: Allocation,
  labels: Readonly<Record<string, string>>,
): Promise<NodeAgents> {
  const agents = await cluster.add(allocation, labels)
  if (agents.nodesWithoutFolder.length === 0) return agents
  await cluster.remove(agents)
  throw new BackendError(describeMissingFolder(agents.nodesWithoutFolder))
}

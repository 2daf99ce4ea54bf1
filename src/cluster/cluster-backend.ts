/** The driver's side of a cluster of agents, which runs tasks on many machines. */

import { randomUUID } from 'node:crypto'
import {
  type Backend,
  type BackendListener,
  type ConnectedSession,
  type Connection,
  type Refusal,
  type SampledNode,
  toEventNotice,
} from '../backends/backend.ts'
import type { SampleStep } from '../backends/sampling/named-samplers.ts'
import {
  type ResourceSample,
  type ResourceSampler,
  unknownReadings,
} from '../backends/sampling/sampler.ts'
import { BackendThrottled } from '../events/library-events.ts'
import { sleep } from '../foundation/clock.ts'
import { BackendError, messageOf } from '../foundation/errors.ts'
import { once } from '../foundation/service.ts'
import { isEntryModule } from '../tasks/define-task.ts'
import { isDefaultRequest } from '../tasks/resources.ts'
import type { TaskSpec } from '../tasks/spec.ts'
import { type Broker, NoResponderError } from './broker/broker.ts'
import { BrokerWatch } from './broker/broker-watch.ts'
import { connectToNats } from './broker/nats.ts'
import {
  type ClusterBackendOptions,
  type ResolvedClusterOptions,
  resolveClusterOptions,
} from './cluster-options.ts'
import { AgentDirectory, type KnownAgent } from './io/driver/agent-directory.ts'
import type { ClusterConnection, ClusterSettings } from './io/driver/cluster-connection.ts'
import { DriverSession } from './io/driver/driver-session.ts'
import { HeldNodes, noHeldNodes } from './protocol/placement/held-nodes.ts'
import { type ClusterLoad, mergeLoads } from './protocol/placement/placement-state.ts'
import { removeExpiredSessions } from './io/driver/session-owner.ts'
import { type LocalCluster, type LocalClusterOptions, startLocalCluster } from './local-cluster.ts'
import { canRun, describeShortage } from '../tasks/resource-fit.ts'
import { deriveKeys } from './wire/envelope.ts'

const discoveryWaitMs = 250
/**
 * Shorter than the time limit for a reading, so that no request is pending when the sampler closes.
 */
const sampleTimeoutMs = 1500
/** An agent counts as silent after this time. Connected agents send a message every half second. */
const maxSilenceMs = 1000

/**
 * Runs tasks on the agents of a NATS server (`tutti agent`). Whoever has the token can run code on
 * every agent.
 *
 * @example
 * const cluster = await ClusterBackend.create({
 *   servers: 'nats://127.0.0.1:4222',
 *   tokenFile: './cluster.token',
 * })
 * await using session = new Session([cluster])
 */
export class ClusterBackend implements Backend {
  readonly name: string
  readonly keepsResults = true
  /** The resources that services hold on nodes. Tasks cannot use them. @internal */
  readonly held = new HeldNodes()
  readonly #options: ResolvedClusterOptions
  readonly #broker: Broker
  readonly #directory: AgentDirectory
  readonly #sessions = new Set<DriverSession>()
  readonly #listeners = new Set<BackendListener>()
  readonly #local: LocalCluster | null
  /** Whether broker and agents end with this process. */
  readonly #isPrivate: boolean
  readonly #samplingPriority: number
  readonly #brokerWatch: BrokerWatch
  readonly #close = once(() => this.#closeOnce())

  /** Rejects within 5 s if the server cannot be used. Agents may join later. */
  static async create(options: ClusterBackendOptions): Promise<ClusterBackend> {
    const resolved = resolveClusterOptions(options)
    const backend = await ClusterBackend.#connect(resolved, null)
    await sleep(resolved.clock, discoveryWaitMs)
    return backend
  }

  /** For a caller that starts the agents itself. Does not wait for them. @internal */
  static connectTo(options: ClusterBackendOptions, owner: ClusterOwner): Promise<ClusterBackend> {
    return ClusterBackend.#connect(resolveClusterOptions(options), null, owner)
  }

  /** Starts a private nats-server and agents on this machine, which stop with the backend. */
  static async local(options: LocalClusterOptions = {}): Promise<ClusterBackend> {
    const local = await startLocalCluster(options)
    const { name = 'cluster', clock, log } = options
    try {
      const backend = await ClusterBackend.#connect(
        resolveClusterOptions({
          name,
          servers: local.url,
          token: local.token,
          ...(clock === undefined ? {} : { clock }),
          ...(log === undefined ? {} : { log }),
        }),
        local,
      )
      await local.ready
      await backend.#waitForAgents(local.names)
      return backend
    } catch (error) {
      await local.close()
      throw error
    }
  }

  private constructor(
    options: ResolvedClusterOptions,
    broker: Broker,
    directory: AgentDirectory,
    local: LocalCluster | null,
    owner: ClusterOwner,
  ) {
    this.name = options.name
    this.#options = options
    this.#broker = broker
    this.#directory = directory
    this.#local = local
    this.#isPrivate = local !== null || owner !== defaultOwner
    this.#samplingPriority = owner.samplingPriority
    this.#brokerWatch = new BrokerWatch({
      ...options,
      broker,
      owner: `backend "${this.name}"`,
      onOutage: (reason) => {
        const notice = toEventNotice(BackendThrottled, { reason, limit: 0 })
        for (const listener of this.#listeners) listener.notice(notice)
      },
    })
    directory.listen({
      agentJoined: (agent) => {
        owner.onJoined(agent.announcement.name)
        for (const listener of this.#listeners) {
          listener.notice({ kind: 'node-joined', node: this.#toNode(agent) })
        }
      },
      agentDraining: () => {},
      agentLost: () => {},
    })
  }

  static async #connect(
    options: ResolvedClusterOptions,
    local: LocalCluster | null,
    owner = defaultOwner,
  ): Promise<ClusterBackend> {
    const broker = await connectToNats(options.broker)
    const keys = deriveKeys(options.token, null)
    const { clock, log } = options
    const directory = new AgentDirectory({ ...options, broker, keys })
    const backend = new ClusterBackend(options, broker, directory, local, owner)
    // This process is the parent of local agents and sees them exit, so they need no watchers.
    local?.onExit((agent) => directory.handleExit(agent))
    directory.discover()
    removeExpiredSessions(broker, keys, clock.now()).catch((error: unknown) => {
      const text = `streams of ended sessions at ${broker.url} could not be removed`
      log.warn('StreamNotRemoved', `${text}: ${messageOf(error)}`)
    })
    return backend
  }

  get nodes(): readonly SampledNode[] {
    return this.#directory.agents.map((agent) => this.#toNode(agent))
  }

  /** The load of all sessions. @internal */
  get load(): ClusterLoad {
    return mergeLoads(Array.from(this.#sessions, ({ load }) => load))
  }

  /** Returns the reason why a node has left, or `null` if it is present or has never joined. */
  whyGone(nodeId: string): string | null {
    const gone = this.#directory.gone.find(({ announcement }) => announcement.name === nodeId)
    return gone?.reason ?? null
  }

  /** Call this when an agent's process has exited. `isExpected`: whether the exit was requested. */
  noteExit(nodeId: string, isExpected = false): void {
    this.#directory.handleExit(nodeId, isExpected)
  }

  /** Returns why the cluster cannot run a task. `mayGrow`: whether further nodes may join. */
  refuse(spec: TaskSpec, { mayGrow = true }: { mayGrow?: boolean } = {}): Refusal | null {
    if (this.#close.isCalled) return { field: 'backend', message: `"${this.name}" is closed` }
    if (spec.kind === 'prompt') {
      return { field: 'prompt', message: `"${this.name}" runs no prompts` }
    }
    if (spec.kind === 'closure') {
      const message = 'a closure cannot leave this process; name it with `defineTask`'
      return { field: 'function', message }
    }
    if (spec.kind === 'function' && isEntryModule(spec.definition)) {
      const message =
        `"${spec.executable}" is defined in the program's entry module, which agents cannot ` +
        'import; move it to a module of its own, which a bundler leaves external'
      return { field: 'function', message }
    }
    return this.#refuseResources(spec, mayGrow)
  }

  connect(listener: BackendListener, session: ConnectedSession): Connection
  /** `settings` is merged into the options of this backend. @internal */
  connect(
    listener: BackendListener,
    session: ConnectedSession,
    settings: Partial<ClusterSettings>,
  ): ClusterConnection
  connect(
    listener: BackendListener,
    session: ConnectedSession,
    settings: Partial<ClusterSettings> = {},
  ): ClusterConnection {
    const held = settings.isForServices === true ? noHeldNodes : this.held.open()
    const driver: DriverSession = new DriverSession({
      secondsLeft: () => Infinity,
      explainNoAgent: null,
      ...this.#options,
      ...settings,
      use: { sessionId: session.id, backend: this.name },
      session,
      listener,
      broker: this.#broker,
      directory: this.#directory,
      toNode: (agent) => this.#toNode(agent),
      held,
      onReleased: () => {
        held.close()
        this.#listeners.delete(listener)
        this.#sessions.delete(driver)
      },
    })
    this.#listeners.add(listener)
    this.#sessions.add(driver)
    return driver
  }

  close(): Promise<void> {
    return this.#close()
  }

  /** For `await using`: calls `close()`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  async #waitForAgents(names: readonly string[]): Promise<void> {
    const found = await Promise.all(names.map((name) => this.#directory.locate(name)))
    const missing = names.filter((_, at) => found[at] === null)
    if (missing.length === 0) return
    throw new BackendError(`agents were started and do not answer: ${missing.join(', ')}`)
  }

  async #closeOnce(): Promise<void> {
    await Promise.all([...this.#sessions].map((session) => session.release('backend closed')))
    this.#directory.close()
    this.#brokerWatch.close()
    await this.#broker.close()
    await this.#local?.close()
  }

  #refuseResources({ resources }: TaskSpec, mayGrow: boolean): Refusal | null {
    // Skips the comparison for most tasks: they request only one core, which every node has.
    if (isDefaultRequest(resources)) return null
    if (resources.ranks > 1) {
      return { field: 'resources.ranks', message: 'this backend runs no MPI ranks' }
    }
    const { largestNode } = this.#options
    const nodes = this.#directory.agents.map(({ announcement: { name, facts } }) => ({
      name,
      facts: this.held.without(name, facts),
    }))
    const known = nodes.map(({ facts }) => facts)
    if (largestNode !== null) known.push(largestNode)
    // Refuses nothing while no node is known, because agents may join later.
    if (known.length === 0 || known.some((facts) => canRun(facts, resources))) return null
    const lack = describeShortage(resources, nodes, mayGrow ? largestNode : 'none')
    return { field: 'resources', message: [lack, ...this.held.describe()].join('; ') }
  }

  #toNode(agent: KnownAgent): SampledNode {
    const { name, facts, version, start } = agent.announcement
    return {
      nodeId: name,
      capacity: { ...facts, version },
      ...(this.#isPrivate ? {} : { agentStart: start }),
      samplingPriority: this.#samplingPriority,
      createSampler: () => this.#createSampler(agent),
    }
  }

  /** Creates a sampler that requests each reading from the agent. */
  #createSampler(agent: KnownAgent): ResourceSampler {
    const { sampling } = this.#options
    const sampler = randomUUID()
    const request = (step: SampleStep): Promise<ResourceSample | null> =>
      this.#requestSample(agent, sampler, step)
    return {
      async prime() {
        await request('first')
      },
      async sample() {
        const sample = (await request('next')) ?? { node: unknownReadings, gpus: [] }
        return sampling === 'all' ? sample : toClusterReadings(sample)
      },
      async close() {
        await request('last').catch(() => {})
      },
    }
  }

  /**
   * Resolves with `null` if the broker is disconnected, or the node is silent, leaving or gone:
   * other events report this.
   */
  async #requestSample(
    agent: KnownAgent,
    sampler: string,
    step: SampleStep,
  ): Promise<ResourceSample | null> {
    const { name } = agent.announcement
    const isPresent = (): boolean => this.#directory.find(name) === agent
    if (!isPresent() || !this.#broker.isConnected) return null
    const askedMs = this.#options.clock.monotonicMs()
    try {
      const answer = await this.#directory.request(
        name,
        { kind: 'sample', sampler, step },
        sampleTimeoutMs,
      )
      return answer as ResourceSample | null
    } catch (error) {
      if (error instanceof NoResponderError || !isPresent()) return null
      const { lastHeardMs, announcement } = agent
      const isHeard = this.#options.clock.monotonicMs() - lastHeardMs < maxSilenceMs
      const isReceiving = this.#directory.receivingSinceMs < askedMs
      if (isHeard && isReceiving && announcement.state === 'ready') throw error
      return null
    }
  }
}

/** Keeps only the default readings of a cluster: CPU, memory and disk. */
function toClusterReadings(sample: ResourceSample): ResourceSample {
  return {
    ...sample,
    node: { ...sample.node, net_sent_bytes: null, net_recv_bytes: null },
    gpus: [],
  }
}

/** A backend that starts the agents of its cluster itself, such as the Slurm backend. */
export interface ClusterOwner {
  readonly onJoined: (nodeId: string) => void
  readonly samplingPriority: number
}

/** The priority is below that of a local backend on the same node, which provides more readings. */
const defaultOwner: ClusterOwner = { onJoined() {}, samplingPriority: -1 }

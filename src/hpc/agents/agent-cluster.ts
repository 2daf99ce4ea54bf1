/** Runs a private NATS server, and an agent on each node of the allocations. */

import { randomBytes } from 'node:crypto'
import { isIPv6 } from 'node:net'
import { fileURLToPath } from 'node:url'
import { preloadClient } from '../../cluster/broker/nats.ts'
import { type NatsServer, startNatsServer } from '../../cluster/broker/nats-server.ts'
import { ClusterBackend } from '../../cluster/cluster-backend.ts'
import type { BackendError } from '../../foundation/errors.ts'
import { once } from '../../foundation/service.ts'
import { siblingProgram } from '../../runtime/supervised-child.ts'
import type { AllocatedNode, Allocation } from '../allocation.ts'
import { createRunCertificate } from '../certificate.ts'
import { toAgentCommand } from './agent-lines.ts'
import type { AgentInput } from './node-agent.ts'
import { NodeAgents, type NodeAgentsOptions } from './node-agents.ts'
import { findSharedAddress } from '../shared-address.ts'
import { removeSharedFile, writeSharedFile } from '../shared-file.ts'
import { launchedCache, readLaunchFacts } from '../start-method.ts'

export interface AgentClusterOptions extends Pick<
  NodeAgentsOptions,
  'clock' | 'log' | 'onNodeAbandoned'
> {
  readonly name: string
  /** Nodes that must be able to reach the server. */
  readonly peers: readonly AllocatedNode[]
}

/** A private NATS server and the agents that connect to it. The constructor starts the server. */
export class AgentCluster {
  readonly #options: AgentClusterOptions
  readonly #starting: Promise<StartedServer>
  readonly #connecting: Promise<ClusterBackend>
  readonly #agents = new Set<NodeAgents>()
  #backend: ClusterBackend | null = null
  #isShutdownExpected = false

  constructor(options: AgentClusterOptions) {
    this.#options = options
    this.#starting = startServer(options, () => this.#isShutdownExpected)
    this.#connecting = this.#connect()
    this.#connecting.catch(() => {})
  }

  backend(): Promise<ClusterBackend> {
    return this.#connecting
  }

  /** Resolves when the server has ended and cannot be restarted. */
  async lost(): Promise<BackendError> {
    return (await this.#starting).server.lost
  }

  /**
   * Starts agents on all nodes of the allocation, even while the server is still starting, because
   * agents read its address from their input. Resolves when all of them have joined. If one fails,
   * ends all and rejects.
   */
  async add(
    allocation: Allocation,
    labels: Readonly<Record<string, string>> = {},
  ): Promise<NodeAgents> {
    const { clock, log, onNodeAbandoned } = this.#options
    const moduleCache = allocation.nodes.length > maxCacheWriters ? null : launchedCache()
    const command = toAgentCommand([process.execPath, nodeAgentPath()], moduleCache)
    const sharedFile = writeSharedFile()
    const { workDir } = readLaunchFacts()
    const start = { ...toMemoryLimits(allocation), sharedFile, labels, moduleCache, workDir }
    const agents = new NodeAgents({
      allocation,
      command: { command, input: toAgentInput(this.#starting, start) },
      connectedNodes: () => new Set(this.#backend?.nodes.map(({ nodeId }) => nodeId)),
      exitReasonOf: (node) => this.#backend?.whyGone(node) ?? null,
      onAgentEnded: (node, isExpected) => this.#backend?.noteExit(node, isExpected),
      onNodeAbandoned,
      clock,
      log,
    })
    this.#agents.add(agents)
    preloadClient()
    try {
      await this.#connecting
      const lost = await Promise.race([agents.ready(), this.lost()])
      if (lost !== undefined) throw lost
      return agents
    } catch (error) {
      await this.remove(agents)
      throw error
    } finally {
      removeSharedFile(sharedFile)
    }
  }

  async remove(agents: NodeAgents): Promise<void> {
    await agents.close()
    this.#agents.delete(agents)
  }

  stopRestarts(): void {
    for (const agents of this.#agents) agents.stopWatching()
  }

  /** Call this when the scheduler ends all processes of the job, including the server. */
  expectShutdown(): void {
    this.#isShutdownExpected = true
  }

  readonly close = once(() => this.#closeOnce())

  async #connect(): Promise<ClusterBackend> {
    const { name, clock, log } = this.#options
    const { connection } = await this.#starting
    const settings = { name, ...connection, sampling: 'all', clock, log } as const
    this.#backend = await ClusterBackend.connectTo(settings, {
      onJoined: (node) => {
        for (const agents of this.#agents) agents.noteJoined(node)
      },
      // Exceeds a local backend's priority, because this node's samples belong to the allocation.
      samplingPriority: 2,
    })
    return this.#backend
  }

  async #closeOnce(): Promise<void> {
    this.stopRestarts()
    const backend = await this.#connecting.catch(() => null)
    await backend?.close()
    await Promise.all(Array.from(this.#agents, (agents) => agents.close()))
    const started = await this.#starting.catch(() => null)
    await started?.server.close()
  }
}

interface StartedServer {
  readonly server: NatsServer
  readonly connection: {
    readonly servers: string
    readonly token: string
    readonly tls: { readonly ca: string }
  }
}

async function startServer(
  options: AgentClusterOptions,
  isShutdownExpected: () => boolean,
): Promise<StartedServer> {
  const { peers, clock, log } = options
  const address = await findSharedAddress(peers)
  const token = randomBytes(24).toString('hex')
  const tls = createRunCertificate([address], clock.now())
  const host = isIPv6(address) ? `[${address}]` : address
  const server = await startNatsServer({
    token,
    clock,
    log,
    host,
    tls,
    isExitExpected: isShutdownExpected,
  })
  const connection = { servers: server.url, token, tls: { ca: tls.certificate } }
  return { server, connection }
}

/** How long an agent and its tasks continue without the server or the driver. */
const serverTimeoutSeconds = 60

/**
 * If there are more agents than this, none uses Node's compile cache, because each would write to
 * it at exit.
 */
const maxCacheWriters = 64

async function toAgentInput(
  starting: Promise<StartedServer>,
  start: Pick<AgentInput, 'sharedFile' | 'memoryMb' | 'labels' | 'moduleCache' | 'workDir'>,
): Promise<string> {
  const { servers, token, tls } = (await starting).connection
  const line: AgentInput = { servers, token, certificate: tls.ca, serverTimeoutSeconds, ...start }
  return `${JSON.stringify(line)}\n`
}

function toMemoryLimits({ nodes }: Allocation): Pick<AgentInput, 'memoryMb'> {
  const limits = nodes.flatMap(({ name, memoryMb }) =>
    memoryMb === null ? [] : [[name, memoryMb]],
  )
  return { memoryMb: Object.fromEntries(limits) as Record<string, number> }
}

const nodeAgentPath = (): string => fileURLToPath(siblingProgram(import.meta.url, 'node-agent'))

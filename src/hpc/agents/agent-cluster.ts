/** The nodes of allocations as a cluster: a private NATS server, and an agent on each node. */

import { randomBytes } from 'node:crypto'
import { isIPv6 } from 'node:net'
import { fileURLToPath } from 'node:url'
import { preloadClient } from '../../cluster/broker/nats.ts'
import { type NatsServer, startNatsServer } from '../../cluster/broker/nats-server.ts'
import { ClusterBackend } from '../../cluster/cluster-backend.ts'
import type { Clock } from '../../foundation/clock.ts'
import type { BackendError } from '../../foundation/errors.ts'
import type { Log } from '../../foundation/log.ts'
import { once } from '../../foundation/service.ts'
import { siblingProgram } from '../../runtime/supervised-child.ts'
import type { AllocatedNode, Allocation } from '../allocation.ts'
import { createRunCertificate } from '../certificate.ts'
import { toAgentCommand } from './agent-lines.ts'
import type { AgentStart } from './node-agent.ts'
import { NodeAgents } from './node-agents.ts'
import { addressSharedWith } from '../shared-address.ts'
import { removeSharedFile, writeSharedFile } from '../shared-file.ts'
import { launchedCache, launchedWorkDir } from '../start-method.ts'

export interface AgentClusterOptions {
  readonly name: string
  /** Nodes from which the server must be reachable. */
  readonly near: readonly AllocatedNode[]
  readonly clock: Clock
  readonly log: Log
  /** A node is not used any more. */
  readonly onGivenUp: (node: string, why: string) => void
}

/** The constructor starts the server. */
export class AgentCluster {
  readonly #options: AgentClusterOptions
  readonly #starting: Promise<StartedServer>
  readonly #connecting: Promise<ClusterBackend>
  readonly #agents = new Set<NodeAgents>()
  #backend: ClusterBackend | null = null
  #isEndExpected = false

  constructor(options: AgentClusterOptions) {
    this.#options = options
    this.#starting = startServer(options, () => this.#isEndExpected)
    this.#connecting = this.#connect()
    // Callers of `backend()` handle the failure.
    this.#connecting.catch(() => {})
  }

  /** Rejects if the server cannot be used. */
  backend(): Promise<ClusterBackend> {
    return this.#connecting
  }

  /** Resolves when the server has ended for good, so that the agents cannot be reached any more. */
  async lost(): Promise<BackendError> {
    return (await this.#starting).server.lost
  }

  /**
   * Resolves when the agents of all nodes have joined; otherwise rejects and ends those that did.
   * The agents start at the same time as the server, whose address they read from their input.
   */
  async add(
    allocation: Allocation,
    labels: Readonly<Record<string, string>> = {},
  ): Promise<NodeAgents> {
    const { clock, log, onGivenUp } = this.#options
    const moduleCache = allocation.nodes.length > maxWriters ? null : launchedCache()
    const command = toAgentCommand([process.execPath, nodeAgent()], moduleCache)
    const sharedFile = writeSharedFile()
    const workDir = launchedWorkDir()
    const start = { ...toLimits(allocation), sharedFile, labels, moduleCache, workDir }
    const agents = new NodeAgents({
      allocation,
      command: { command, input: toInput(this.#starting, start) },
      present: () => new Set(this.#backend?.nodes.map(({ nodeId }) => nodeId)),
      whyGone: (node) => this.#backend?.whyGone(node) ?? null,
      onEnded: (node, isExpected) => this.#backend?.noteExit(node, isExpected),
      onGivenUp,
      clock,
      log,
    })
    this.#agents.add(agents)
    // Loads the client library while the agents and the server start.
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

  /** Ends the agents of an allocation. */
  async remove(agents: NodeAgents): Promise<void> {
    await agents.close()
    this.#agents.delete(agents)
  }

  /** Agents that end are not restarted from now on: their nodes are lost. */
  stopRestarts(): void {
    for (const agents of this.#agents) agents.stopWatching()
  }

  /** The scheduler is ending all processes of the job, including the server. */
  expectEnd(): void {
    this.#isEndExpected = true
  }

  /** Ends the agents and the server. Idempotent: returns the same promise each time. */
  readonly close = once(() => this.#closeOnce())

  async #connect(): Promise<ClusterBackend> {
    const { name, clock, log } = this.#options
    const { connection } = await this.#starting
    const settings = { name, ...connection, sampling: 'all', clock, log } as const
    this.#backend = await ClusterBackend.connectTo(settings, {
      onJoined: (node) => {
        for (const agents of this.#agents) agents.noteJoined(node)
      },
      // Above that of a local backend, so that a node's samples are recorded for its allocation.
      samplingPriority: 2,
    })
    return this.#backend
  }

  async #closeOnce(): Promise<void> {
    // Done first, because agents that leave from now on do so on request.
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

/** Listens on an address that the nodes can reach, with a token and a certificate. */
async function startServer(
  options: AgentClusterOptions,
  isEndExpected: () => boolean,
): Promise<StartedServer> {
  const { near, clock, log } = options
  const address = await addressSharedWith(near)
  const token = randomBytes(24).toString('hex')
  const tls = createRunCertificate([address], clock.now())
  const host = isIPv6(address) ? `[${address}]` : address
  const server = await startNatsServer({ token, clock, log, host, tls, isEndExpected })
  const connection = { servers: server.url, token, tls: { ca: tls.certificate } }
  return { server, connection }
}

/** How long agents run without their server, and how long they keep the tasks of a lost driver. */
const serverSeconds = 60

/** More agents get no compile cache, because each would write to its folder at exit. */
const maxWriters = 64

/** The line that agents read from their input. */
async function toInput(
  starting: Promise<StartedServer>,
  start: Pick<AgentStart, 'sharedFile' | 'memoryMb' | 'labels' | 'moduleCache' | 'workDir'>,
): Promise<string> {
  const { servers, token, tls } = (await starting).connection
  const line: AgentStart = { servers, token, certificate: tls.ca, serverSeconds, ...start }
  return `${JSON.stringify(line)}\n`
}

function toLimits({ nodes }: Allocation): Pick<AgentStart, 'memoryMb'> {
  const limits = nodes.flatMap(({ name, memoryMb }) =>
    memoryMb === null ? [] : [[name, memoryMb]],
  )
  return { memoryMb: Object.fromEntries(limits) as Record<string, number> }
}

const nodeAgent = (): string => fileURLToPath(siblingProgram(import.meta.url, 'node-agent'))

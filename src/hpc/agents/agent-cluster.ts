/** The nodes of an allocation as a cluster: a private server, and an agent on each node. */

import { randomBytes } from 'node:crypto'
import { isIPv6 } from 'node:net'
import { fileURLToPath } from 'node:url'
import { type NatsServer, startNatsServer } from '../../cluster/broker/nats-server.ts'
import { ClusterBackend } from '../../cluster/cluster-backend.ts'
import type { Clock } from '../../foundation/clock.ts'
import type { BackendError } from '../../foundation/errors.ts'
import type { Log } from '../../foundation/log.ts'
import { siblingProgram } from '../../runtime/supervised-child.ts'
import type { Allocation } from '../allocation.ts'
import { createRunCertificate } from '../certificate.ts'
import { toAgentCommand } from './agent-lines.ts'
import type { AgentStart } from './node-agent.ts'
import { NodeAgents } from './node-agents.ts'
import { addressSharedWith } from '../shared-address.ts'
import { removeSharedFile, type SharedFile, writeSharedFile } from '../shared-file.ts'

export interface AgentClusterOptions {
  readonly name: string
  readonly allocation: Allocation
  readonly clock: Clock
  readonly log: Log
}

export interface AgentCluster {
  readonly backend: ClusterBackend
  /** How agents get the modules of functions. */
  readonly modules: 'shared' | 'bundle'
  /** Resolves when the server is gone for good: nothing reaches the agents any more. */
  readonly lost: Promise<BackendError>
  /** None is started again: their nodes are lost. */
  stopRestarts(): void
  /** Ends the agents and the server. */
  close(): Promise<void>
}

/**
 * Resolves when the agents of all nodes are there; otherwise rejects and leaves nothing. They start
 * while the server does, which they are told of by their input.
 */
export async function startAgentCluster(options: AgentClusterOptions): Promise<AgentCluster> {
  const { name, allocation, clock, log } = options
  const command = toAgentCommand([process.execPath, nodeAgent()])
  const sharedFile = writeSharedFile()
  const starting = startServer(options)
  const closers: (() => Promise<void>)[] = [
    () => starting.then(({ server }) => server.close()).catch(() => {}),
  ]
  const close = async (): Promise<void> => {
    for (const closer of closers.toReversed()) await closer()
  }
  try {
    let backend: ClusterBackend | null = null
    const agents = new NodeAgents({
      allocation,
      command: { command, input: toInput(starting, allocation, sharedFile) },
      present: () => new Set(backend?.nodes.map(({ nodeId }) => nodeId)),
      whyGone: (node) => backend?.whyGone(node) ?? null,
      onEnded: (node) => backend?.noteExit(node),
      clock,
      log,
    })
    closers.push(() => agents.close())
    const { server, connection } = await starting
    const settings = { name, ...connection, sampling: 'all', clock, log } as const
    const connected = await ClusterBackend.connectTo(settings, (node) => agents.noteJoined(node))
    backend = connected
    closers.push(() => connected.close())
    const lost = await Promise.race([agents.ready(), server.lost])
    if (lost !== undefined) throw lost
    // Agents that leave from now on have been told to.
    closers.push(async () => agents.stopWatching())
    const modules = chooseModules(agents.unseeing, log)
    const stopRestarts = (): void => agents.stopWatching()
    return { backend: connected, modules, lost: server.lost, stopRestarts, close }
  } catch (error) {
    await close()
    throw error
  } finally {
    removeSharedFile(sharedFile)
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

/** On the address that this machine shares with the nodes, with a token and a certificate. */
async function startServer(options: AgentClusterOptions): Promise<StartedServer> {
  const { allocation, clock, log } = options
  const address = await addressSharedWith(allocation.nodes)
  const token = randomBytes(24).toString('hex')
  const tls = createRunCertificate([address], clock.now())
  const host = isIPv6(address) ? `[${address}]` : address
  const server = await startNatsServer({ token, clock, log, host, tls })
  const connection = { servers: server.url, token, tls: { ca: tls.certificate } }
  return { server, connection }
}

/** Modules go to all nodes in the same way. */
function chooseModules(unseeing: readonly string[], log: Log): 'shared' | 'bundle' {
  if (unseeing.length === 0) return 'shared'
  const text = `${unseeing.join(', ')} cannot read the folder of the launch`
  log.warn('FolderNotShared', `${text}: functions are sent to the nodes as bundles`)
  return 'bundle'
}

/** As long as the agents of a cluster keep the tasks of a driver that is gone. */
const serverSeconds = 60

/** The line that agents read. */
async function toInput(
  starting: Promise<StartedServer>,
  { nodes }: Allocation,
  sharedFile: SharedFile,
): Promise<string> {
  const { servers, token, tls } = (await starting).connection
  const limits = nodes.flatMap(({ name, memoryMb }) =>
    memoryMb === null ? [] : [[name, memoryMb]],
  )
  const memoryMb = Object.fromEntries(limits) as Record<string, number>
  const places = { sharedFile, memoryMb, serverSeconds }
  const start: AgentStart = { servers, token, certificate: tls.ca, ...places }
  return `${JSON.stringify(start)}\n`
}

const nodeAgent = (): string => fileURLToPath(siblingProgram(import.meta.url, 'node-agent'))

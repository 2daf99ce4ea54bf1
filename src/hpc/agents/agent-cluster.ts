/** The nodes of an allocation as a cluster: a private server, and an agent on each node. */

import { randomBytes } from 'node:crypto'
import { isIPv6 } from 'node:net'
import { fileURLToPath } from 'node:url'
import { startNatsServer } from '../../cluster/broker/nats-server.ts'
import { ClusterBackend } from '../../cluster/cluster-backend.ts'
import type { Clock } from '../../foundation/clock.ts'
import type { BackendError } from '../../foundation/errors.ts'
import type { Log } from '../../foundation/log.ts'
import { siblingProgram } from '../../runtime/supervised-child.ts'
import type { Allocation } from '../allocation.ts'
import { createRunCertificate } from '../certificate.ts'
import type { AgentStart } from './node-agent.ts'
import { NodeAgents } from './node-agents.ts'
import { addressSharedWith } from '../shared-address.ts'
import { removeSharedFile, writeSharedFile } from '../shared-file.ts'

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

/** Resolves when the agents of all nodes are there; otherwise rejects and leaves nothing. */
export async function startAgentCluster(options: AgentClusterOptions): Promise<AgentCluster> {
  const { name, allocation, clock, log } = options
  const address = await addressSharedWith(allocation.nodes)
  const token = randomBytes(24).toString('hex')
  const tls = createRunCertificate([address], clock.now())
  const { certificate } = tls
  const host = isIPv6(address) ? `[${address}]` : address
  const server = await startNatsServer({ token, clock, log, host, tls })
  const sharedFile = writeSharedFile()
  const closers: (() => Promise<void>)[] = [() => server.close()]
  const close = async (): Promise<void> => {
    for (const closer of closers.toReversed()) await closer()
  }
  try {
    const connection = { servers: server.url, token, tls: { ca: certificate } }
    let backend: ClusterBackend | null = null
    const memoryMb = toMemory(allocation)
    const start = { ...toStart(server.url, token, certificate), sharedFile, memoryMb }
    const present = (): Set<string> => new Set(backend?.nodes.map(({ nodeId }) => nodeId))
    const whyGone = (node: string): string | null => backend?.whyGone(node) ?? null
    const command = toCommand(start)
    const agents = new NodeAgents({ allocation, command, present, whyGone, clock, log })
    closers.push(() => agents.close())
    backend = await ClusterBackend.create({ name, ...connection, sampling: 'all', clock, log })
    const connected = backend
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

/** Modules go to all nodes in the same way. */
function chooseModules(unseeing: readonly string[], log: Log): 'shared' | 'bundle' {
  if (unseeing.length === 0) return 'shared'
  const text = `${unseeing.join(', ')} cannot read the folder of the launch`
  log.warn('FolderNotShared', `${text}: functions are sent to the nodes as bundles`)
  return 'bundle'
}

const toMemory = ({ nodes }: Allocation): Record<string, number> =>
  Object.fromEntries(
    nodes.flatMap(({ name, memoryMb }) => (memoryMb === null ? [] : [[name, memoryMb]])),
  )

const toStart = (
  servers: string,
  token: string,
  certificate: string,
): Omit<AgentStart, 'sharedFile' | 'memoryMb'> => ({
  servers,
  token,
  certificate,
})

const toCommand = (start: AgentStart) => ({
  command: [process.execPath, fileURLToPath(siblingProgram(import.meta.url, 'node-agent'))],
  input: `${JSON.stringify(start)}\n`,
})

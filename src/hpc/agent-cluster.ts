/** The nodes of an allocation as a cluster: a private server, and an agent on each node. */

import { randomBytes } from 'node:crypto'
import { isIPv6 } from 'node:net'
import { fileURLToPath } from 'node:url'
import { ClusterBackend } from '../cluster/cluster-backend.ts'
import { type NatsServer, startNatsServer } from '../cluster/broker/nats-server.ts'
import { type Clock, sleep } from '../foundation/clock.ts'
import { BackendError } from '../foundation/errors.ts'
import type { Log } from '../foundation/log.ts'
import { siblingProgram } from '../runtime/supervised-child.ts'
import type { Allocation } from './allocation.ts'
import { createRunCertificate } from './certificate.ts'
import type { AgentStart } from './node-agent.ts'
import type { RemoteProcess } from './remote-process.ts'
import { addressSharedWith } from './shared-address.ts'

export interface AgentClusterOptions {
  readonly name: string
  readonly allocation: Allocation
  readonly clock: Clock
  readonly log: Log
}

/** How long the agents may take to start: thousands of nodes read their modules at once. */
const startMs = 300_000
const pollMs = 20

export interface AgentCluster {
  readonly backend: ClusterBackend
  /** Ends the agents and the server. */
  close(): Promise<void>
}

/** Resolves when the agents of all nodes are there; otherwise rejects and leaves nothing. */
export async function startAgentCluster(options: AgentClusterOptions): Promise<AgentCluster> {
  const { name, allocation, clock, log } = options
  const address = await addressSharedWith(allocation.nodes)
  const token = randomBytes(24).toString('hex')
  const tls = createRunCertificate([address], clock.now())
  const host = isIPv6(address) ? `[${address}]` : address
  const server = await startNatsServer({ token, clock, host, tls })
  const { certificate } = tls
  const servers = server.url
  const start: AgentStart = {
    runId: randomBytes(6).toString('hex'),
    servers,
    token,
    certificate,
  }
  const program = fileURLToPath(siblingProgram(import.meta.url, 'node-agent'))
  const agents = allocation.start(allocation.nodes, {
    command: [process.execPath, program],
    input: `${JSON.stringify(start)}\n`,
  })
  const parts: Parts = { server, agents, backend: null }
  try {
    const connection = { servers, token, tls: { ca: certificate } }
    const backend = await ClusterBackend.create({
      name,
      ...connection,
      sampling: 'all',
      clock,
      log,
    })
    parts.backend = backend
    await agentsOf(backend, allocation, agents, clock)
    return { backend, close: () => closeAll(parts) }
  } catch (error) {
    await closeAll(parts)
    throw error
  }
}

interface Parts {
  readonly server: NatsServer
  readonly agents: readonly RemoteProcess[]
  backend: ClusterBackend | null
}

async function closeAll({ server, agents, backend }: Parts): Promise<void> {
  await backend?.close()
  await Promise.all(agents.map((agent) => agent.close()))
  await server.close()
}

/** Resolves when all have joined. */
async function agentsOf(
  backend: ClusterBackend,
  { nodes, label }: Allocation,
  agents: readonly RemoteProcess[],
  clock: Clock,
): Promise<void> {
  let ended: RemoteProcess | null = null
  for (const agent of agents) void agent.ended.then(() => (ended ??= agent))
  const untilMs = clock.monotonicMs() + startMs
  for (;;) {
    const there = new Set(backend.nodes.map(({ nodeId }) => nodeId))
    const missing = nodes.filter(({ name }) => !there.has(name)).map(({ name }) => name)
    if (missing.length === 0) return
    if (ended !== null || clock.monotonicMs() > untilMs) {
      const output = agents.map((agent) => agent.output).join('\n')
      const why = `no agent on ${missing.join(', ')} of ${label}: ${output.trim()}`
      throw new BackendError(why, { code: 'AgentStartError' })
    }
    await sleep(clock, pollMs)
  }
}

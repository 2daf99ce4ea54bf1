/** Reserves parts of an allocation's nodes for the servers of services, beside tasks. */

import { randomUUID } from 'node:crypto'
import type { BackendListener, NodeCapacity } from '../../backends/backend.ts'
import type { ClusterBackend } from '../../cluster/cluster-backend.ts'
import type { ClusterConnection } from '../../cluster/driver/cluster-connection.ts'
import type { Clock } from '../../foundation/clock.ts'
import { StateError } from '../../foundation/errors.ts'
import { once } from '../../foundation/service.ts'
import type {
  NodeServers,
  ServerOrder,
  ServerProcess,
  ServerRequest,
  ServerReservation,
} from '../../runtime/server/node-servers.ts'
import type { AllocatedNode } from '../allocation.ts'
import { addressSharedWith } from '../shared-address.ts'
import { NodeServer } from './node-server.ts'
import { expectRoomFor } from './service-claims.ts'
import { ServerJob } from './server-job.ts'

export interface ServiceNodesOptions {
  /** In the order to which `nodeOffset` refers. */
  readonly nodes: () => readonly AllocatedNode[]
  readonly backend: ClusterBackend
  readonly clock: Clock
}

/** Forwards reports about server jobs to their servers. */
const listener: BackendListener = {
  report(job, report) {
    if (job instanceof ServerJob) job.onReport(report)
  },
  notice() {},
}

export class ServiceNodes implements NodeServers {
  readonly #options: ServiceNodesOptions
  readonly #sessionId = `services-${randomUUID()}`
  readonly #reservations = new Set<ServiceReservation>()
  /** The last known capacity of each node, for use while its agent is being restarted. */
  readonly #capacities = new Map<string, NodeCapacity>()
  /** Nodes that can no longer be used, with the reason. */
  readonly #lost = new Map<string, string>()
  #connection: ClusterConnection | null = null
  #driverAddress: Promise<string> | null = null
  #servers = 0
  /** Why no server may start anymore; `null` while servers may start. */
  #over: string | null = null

  constructor(options: ServiceNodesOptions) {
    this.#options = options
  }

  reserveServers(request: ServerRequest): ServerReservation {
    const { backend } = this.#options
    if (this.#over !== null) throw new StateError(this.#over)
    const all = this.#options.nodes()
    const claimed = all.map(({ name }) => ({
      name,
      ...this.#capacityOf(name),
      held: backend.held.of(name),
    }))
    expectRoomFor(request, claimed)
    const { service, nodeOffset, nodes: wanted } = request
    for (const { name } of all.slice(nodeOffset, nodeOffset + wanted.length)) {
      const reason = this.#lost.get(name)
      if (reason !== undefined) throw new StateError(reason)
    }
    const own = wanted.map((amounts, at) => {
      const name = all[nodeOffset + at]?.name ?? ''
      const isUsed = amounts.cores > 0 || amounts.gpus > 0
      const release = isUsed ? backend.held.hold(name, { service, ...amounts }) : () => {}
      return { name, release }
    })
    const reservation = new ServiceReservation(own, {
      start: (name, order) => this.#start(name, order),
      onClose: () => this.#reservations.delete(reservation),
    })
    this.#reservations.add(reservation)
    return reservation
  }

  /** Whether any reservation is still open. */
  get hasServices(): boolean {
    return this.#reservations.size > 0
  }

  /** Called when no server can run on this node anymore. Ends services that have no other node. */
  loseNode(name: string, reason: string): void {
    this.#lost.set(name, reason)
    for (const one of this.#reservations) one.loseNode(name, reason)
  }

  /** Stops all servers with this reason. No further server can be started. */
  async end(reason: string): Promise<void> {
    this.#over ??= reason
    await Promise.all([...this.#reservations].map((one) => one.end(reason)))
    await this.#connection?.release(reason)
  }

  #start(node: string, order: ServerOrder): ServerProcess {
    const { backend, clock } = this.#options
    this.#connection ??= backend.connect(
      listener,
      { id: this.#sessionId, closureOf: () => null },
      // `shared`: this package exists wherever the agent's own program was found.
      { modules: 'shared', isOfServices: true },
    )
    return new NodeServer({
      order,
      node,
      connection: this.#connection,
      sessionId: this.#sessionId,
      uid: `server-${++this.#servers}`,
      hasRoom: () => backend.held.hasRoom(node, this.#capacityOf(node)),
      driverAddress: () => (this.#driverAddress ??= addressSharedWith(this.#options.nodes())),
      clock,
    })
  }

  #capacityOf(name: string): NodeCapacity {
    for (const { nodeId, capacity } of this.#options.backend.nodes) {
      if (capacity !== undefined) this.#capacities.set(nodeId, capacity)
    }
    return this.#capacities.get(name) ?? { cores: 0, gpus: 0, memoryMb: 0 }
  }
}

interface ReservedNode {
  readonly name: string
  readonly release: () => void
}

interface ReservationParts {
  readonly start: (name: string, order: ServerOrder) => ServerProcess
  readonly onClose: () => void
}

class ServiceReservation implements ServerReservation {
  readonly #nodes: readonly ReservedNode[]
  readonly #parts: ReservationParts
  /** The servers, with the names of their nodes. */
  readonly #servers = new Map<ServerProcess, string>()
  /** Nodes of this reservation that can no longer be used, with the reason. */
  readonly #lost = new Map<string, string>()
  readonly #over = Promise.withResolvers<string>()

  constructor(nodes: readonly ReservedNode[], parts: ReservationParts) {
    this.#nodes = nodes
    this.#parts = parts
  }

  get over(): Promise<string> {
    return this.#over.promise
  }

  start(order: ServerOrder): ServerProcess {
    const node = this.#nodes[order.node]
    if (this.close.isCalled || node === undefined) {
      return neverStarted(`nothing is reserved for a server on node ${order.node} any more`)
    }
    const lost = this.#lost.get(node.name)
    if (lost !== undefined) return neverStarted(lost)
    const server = this.#parts.start(node.name, order)
    this.#servers.set(server, node.name)
    void server.ended.then(() => this.#servers.delete(server))
    return server
  }

  /** Stops the servers on this node, or the whole service if it has no other node. */
  loseNode(name: string, reason: string): void {
    if (!this.#nodes.some((node) => node.name === name)) return
    this.#lost.set(name, reason)
    if (this.#nodes.every((node) => this.#lost.has(node.name))) void this.end(reason)
    else for (const [server, node] of this.#servers) if (node === name) void server.stop()
  }

  /** Reports the reason to the service before its servers exit. */
  end(reason: string): Promise<void> {
    if (!this.close.isCalled) this.#over.resolve(reason)
    return this.close()
  }

  readonly close = once(async (): Promise<void> => {
    await Promise.all(Array.from(this.#servers.keys(), (server) => server.stop()))
    for (const { release } of this.#nodes) release()
    this.#parts.onClose()
  })
}

function neverStarted(why: string): ServerProcess {
  const error = new StateError(why)
  const launched = Promise.reject(error)
  launched.catch(() => {})
  const ended = Promise.resolve(error.message)
  return { launched, ended, output: '', unref() {}, stop: () => Promise.resolve() }
}

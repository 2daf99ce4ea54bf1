/** The nodes of an allocation for the servers of services, beside the tasks that run there. */

import { randomUUID } from 'node:crypto'
import type { BackendListener, NodeCapacity } from '../../backends/backend.ts'
import type { ClusterBackend } from '../../cluster/cluster-backend.ts'
import type { ClusterConnection } from '../../cluster/driver/cluster-connection.ts'
import type { Clock } from '../../foundation/clock.ts'
import { StateError } from '../../foundation/errors.ts'
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
  /** In the order in which services count them. */
  readonly nodes: () => readonly AllocatedNode[]
  readonly backend: ClusterBackend
  readonly clock: Clock
}

/** What is told of its jobs goes to their servers. */
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
  /** Of every node that was there; one whose agent is being started again has it, too. */
  readonly #capacities = new Map<string, NodeCapacity>()
  #connection: ClusterConnection | null = null
  #driverAddress: Promise<string> | null = null
  #servers = 0
  /** Why no server may begin any more; `null` while one may. */
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

  /** Whether any has not been closed. */
  get hasServices(): boolean {
    return this.#reservations.size > 0
  }

  /** Ends all servers with this reason; none begins any more. */
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
      // Where the agent's own program was found, this package is.
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
  readonly #servers = new Set<ServerProcess>()
  readonly #over = Promise.withResolvers<string>()
  #closing: Promise<void> | null = null

  constructor(nodes: readonly ReservedNode[], parts: ReservationParts) {
    this.#nodes = nodes
    this.#parts = parts
  }

  get over(): Promise<string> {
    return this.#over.promise
  }

  start(order: ServerOrder): ServerProcess {
    const node = this.#nodes[order.node]
    if (this.#closing !== null || node === undefined) return neverStarted(order.node)
    const server = this.#parts.start(node.name, order)
    this.#servers.add(server)
    void server.ended.then(() => this.#servers.delete(server))
    return server
  }

  /** Its service learns the reason before its servers end. */
  end(reason: string): Promise<void> {
    if (this.#closing === null) this.#over.resolve(reason)
    return this.close()
  }

  close(): Promise<void> {
    this.#closing ??= this.#closeOnce()
    return this.#closing
  }

  async #closeOnce(): Promise<void> {
    await Promise.all([...this.#servers].map((server) => server.stop()))
    for (const { release } of this.#nodes) release()
    this.#parts.onClose()
  }
}

function neverStarted(node: number): ServerProcess {
  const error = new StateError(`nothing is reserved for a server on node ${node} any more`)
  const launched = Promise.reject(error)
  launched.catch(() => {})
  const ended = Promise.resolve(error.message)
  return { launched, ended, output: '', unref() {}, stop: () => Promise.resolve() }
}

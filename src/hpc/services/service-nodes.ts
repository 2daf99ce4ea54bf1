/** Reserves parts of an allocation's nodes for the servers of services. */

import { randomUUID } from 'node:crypto'
import type { BackendListener, NodeCapacity } from '../../backends/backend.ts'
import type { ClusterBackend } from '../../cluster/cluster-backend.ts'
import type { ClusterConnection } from '../../cluster/io/driver/cluster-connection.ts'
import type { HeldAmounts } from '../../cluster/protocol/placement/held-nodes.ts'
import type { Clock } from '../../foundation/clock.ts'
import { StateError, ValueError } from '../../foundation/errors.ts'
import { once } from '../../foundation/service.ts'
import type {
  NodeServers,
  ServerOrder,
  ServerProcess,
  ServerRequest,
  ServerReservation,
} from '../../runtime/server/node-servers.ts'
import { countFits, describeAmount } from '../../tasks/resource-fit.ts'
import type { AllocatedNode } from '../allocation.ts'
import { findSharedAddress } from '../shared-address.ts'
import { NodeServer, ServerJob } from './node-server.ts'

export interface ServiceNodesOptions {
  /** Returns the nodes of the allocation, in the order to which `nodeOffset` refers. */
  readonly nodes: () => readonly AllocatedNode[]
  readonly backend: ClusterBackend
  readonly clock: Clock
}

const serverListener: BackendListener = {
  report(job, report) {
    if (job instanceof ServerJob) job.onReport(report)
  },
  notice() {},
}

export class ServiceNodes implements NodeServers {
  readonly #options: ServiceNodesOptions
  readonly #sessionId = `services-${randomUUID()}`
  readonly #reservations = new Set<ServiceReservation>()
  /** The last known capacity of each node, used while its agent restarts. */
  readonly #capacities = new Map<string, NodeCapacity>()
  readonly #lostNodes = new Map<string, string>()
  #connection: ClusterConnection | null = null
  #driverAddress: Promise<string> | null = null
  #serverCount = 0
  #closedReason: string | null = null

  constructor(options: ServiceNodesOptions) {
    this.#options = options
  }

  reserveServers(request: ServerRequest): ServerReservation {
    const { backend } = this.#options
    if (this.#closedReason !== null) throw new StateError(this.#closedReason)
    const all = this.#options.nodes()
    const claimed = all.map(({ name }) => ({
      name,
      ...this.#findCapacity(name),
      held: backend.held.of(name),
    }))
    expectRoomFor(request, claimed)
    const { service, nodeOffset, nodes: wanted } = request
    for (const { name } of all.slice(nodeOffset, nodeOffset + wanted.length)) {
      const reason = this.#lostNodes.get(name)
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

  get hasServices(): boolean {
    return this.#reservations.size > 0
  }

  /** Must be called when a node can no longer be used. Ends services that have no other node. */
  loseNode(name: string, reason: string): void {
    this.#lostNodes.set(name, reason)
    for (const one of this.#reservations) one.loseNode(name, reason)
  }

  /** Stops all servers. No further server can start. */
  async end(reason: string): Promise<void> {
    this.#closedReason ??= reason
    await Promise.all([...this.#reservations].map((one) => one.end(reason)))
    await this.#connection?.release(reason)
  }

  #start(node: string, order: ServerOrder): ServerProcess {
    const { backend, clock } = this.#options
    this.#connection ??= backend.connect(
      serverListener,
      { id: this.#sessionId, closureOf: () => null },
      // No bundle is needed, because the agent's program comes from the same package.
      { modules: 'shared', isForServices: true },
    )
    return new NodeServer({
      order,
      node,
      connection: this.#connection,
      sessionId: this.#sessionId,
      uid: `server-${++this.#serverCount}`,
      hasRoom: () => backend.held.hasRoom(node, this.#findCapacity(node)),
      driverAddress: () => (this.#driverAddress ??= findSharedAddress(this.#options.nodes())),
      clock,
    })
  }

  #findCapacity(name: string): NodeCapacity {
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
  readonly #servers = new Map<ServerProcess, string>()
  readonly #lostNodes = new Map<string, string>()
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
      return createUnstarted(`nothing is reserved for a server on node ${order.node} any more`)
    }
    const lossReason = this.#lostNodes.get(node.name)
    if (lossReason !== undefined) return createUnstarted(lossReason)
    const server = this.#parts.start(node.name, order)
    this.#servers.set(server, node.name)
    void server.ended.then(() => this.#servers.delete(server))
    return server
  }

  /** Stops the servers on this node, or the whole service if all its nodes are lost. */
  loseNode(name: string, reason: string): void {
    if (!this.#nodes.some((node) => node.name === name)) return
    this.#lostNodes.set(name, reason)
    if (this.#nodes.every((node) => this.#lostNodes.has(node.name))) void this.end(reason)
    else for (const [server, node] of this.#servers) if (node === name) void server.stop()
  }

  /** Stops the servers. Reports the reason to the service before they exit. */
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

function createUnstarted(why: string): ServerProcess {
  const error = new StateError(why)
  const launched = Promise.reject(error)
  launched.catch(() => {})
  const ended = Promise.resolve(error.message)
  return { launched, ended, output: '', unref() {}, stop: () => Promise.resolve() }
}

/** A node and the resources that services hold on it. */
export interface ClaimedNode {
  readonly name: string
  readonly cores: number
  readonly gpus: number
  readonly held: readonly HeldAmounts[]
}

/** Throws a `ValueError` that names the field, the node and the conflicting services. */
export function expectRoomFor(request: ServerRequest, nodes: readonly ClaimedNode[]): void {
  expectNodesExist(request, nodes)
  for (const [at, wanted] of request.nodes.entries()) {
    const number = request.nodeOffset + at
    const node = nodes[number]
    if (node === undefined) continue
    for (const rule of rules) {
      const lack = describeLack(node, wanted[rule.kind], rule)
      if (lack === null) continue
      const text = `node ${number} (${node.name}) has ${lack}`
      const needs = `service "${request.service}" needs ${wanted[rule.kind]} there`
      throw new ValueError(`${rule.field}: ${text}; ${needs}`, {
        field: rule.field,
        got: wanted[rule.kind],
        hint: `Use other nodes by hardware.node_offset, or fewer ${rule.advice}.`,
      })
    }
  }
}

const rules = [
  {
    kind: 'gpus',
    field: 'hardware.num_gpus',
    reservedForTasks: 0,
    advice: 'GPUs by hardware.num_gpus',
  },
  // Leaves one core, because one-core tasks would otherwise be sent to the node and never start.
  { kind: 'cores', field: 'engine.cores', reservedForTasks: 1, advice: 'cores for each server' },
] as const

function expectNodesExist(
  { service, nodeOffset, nodes: wanted }: ServerRequest,
  nodes: readonly ClaimedNode[],
): void {
  const last = nodes.length - 1
  if (nodeOffset + wanted.length <= nodes.length) return
  if (nodes.length === 0) {
    const text = 'there are none: servers run on nodes of the launch, and of no other allocation'
    throw new ValueError(`hardware.node_offset: service "${service}" needs nodes; ${text}`, {
      field: 'hardware.node_offset',
      got: nodeOffset,
      hint: 'Ask for them: tutti launch --nodes N.',
    })
  }
  const isBeyondLast = nodeOffset > last
  const field = isBeyondLast ? 'hardware.node_offset' : 'hardware.num_nodes'
  const end = nodeOffset + wanted.length - 1
  const requested = end === nodeOffset ? `node ${end}` : `the nodes ${nodeOffset} to ${end}`
  const names =
    last === 0 ? `node 0 (${nodes[0]?.name})` : `the nodes 0 to ${last} (${joinNames(nodes)})`
  throw new ValueError(`${field}: service "${service}" needs ${requested}; there are ${names}`, {
    field,
    expected: isBeyondLast ? `at most ${last}` : `at most ${nodes.length - nodeOffset}`,
    got: isBeyondLast ? nodeOffset : wanted.length,
  })
}

const joinNames = (nodes: readonly ClaimedNode[]): string =>
  `${nodes[0]?.name} to ${nodes.at(-1)?.name}`

function describeLack(
  { held, ...have }: ClaimedNode,
  wanted: number,
  { kind, reservedForTasks }: (typeof rules)[number],
): string | null {
  const holders = held.filter((one) => one[kind] > 0)
  const free = holders.reduce((left, one) => left - one[kind], have[kind] - reservedForTasks)
  if (countFits(free, wanted) > 0) return null
  const others = holders.map((one) => `service "${one.service}" holds ${one[kind]}`)
  const whole = describeAmount(kind, have[kind])
  const parts = others.length === 0 ? whole : `${whole}, of which ${others.join(' and ')}`
  return reservedForTasks === 0 ? parts : `${parts}, and one stays for tasks`
}

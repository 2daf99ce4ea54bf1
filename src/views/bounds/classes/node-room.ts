/** The room for each request on the nodes of a backend. */

import { countFits, hasLabels } from '../../../tasks/resource-fit.ts'
import { type Amounts, heldResources, type NodeSize, oneCore, type SlotNode } from '../slots.ts'
import { type SlotRequest, type SlotResource, toNodeAmounts } from '../slots.ts'
import { toRankAmounts, toTaskAmounts } from '../slots.ts'

/** One number per entry of `heldResources`. This is faster than an object with computed keys. */
export type Vector = Float64Array
export const coresIndex = heldResources.indexOf('cores')

const toVector = (amounts: Amounts): Vector =>
  Float64Array.from(heldResources, (resource) => amounts[resource])

export const toAmounts = (vector: Vector): Amounts =>
  Object.fromEntries(heldResources.map((resource, at) => [resource, vector[at]])) as Amounts

export const createVector = (): Vector => new Float64Array(heldResources.length)

export function addScaled(sums: Vector, amounts: Vector, factor: number): void {
  for (let at = 0; at < sums.length; at++) sums[at] = (sums[at] ?? 0) + factor * (amounts[at] ?? 0)
}

/**
 * The amount of a resource whose size is unknown. It is larger than any node, but finite, so that
 * sums can be subtracted again.
 */
const unlimited = 2 ** 45
/**
 * The maximum number of ranks to count. It is more than any machine can run, but finite, so that
 * sums can be subtracted again.
 */
const maxRanks = 1_000_000

/** A request, its waiting tasks, and how many of its ranks fit on the nodes that are present. */
export class RequestRoom {
  readonly number: number
  readonly ranks: number
  readonly cores: number
  readonly isClosure: boolean
  readonly taskAmounts: Vector
  readonly #rankAmounts: Vector
  /** For each wait, the next wait of the same request. */
  readonly #nextWaits: Uint32Array
  /** The first wait that may not have ended, and the last one; -1 if there is none. */
  #firstWait = -1
  #lastWait = -1
  ready = 0
  /** The number of ready tasks that wait because of the limit of their name. */
  limited = 0
  /** The number of ready tasks that wait for a worker to start. */
  starting = 0
  fitting = 0
  readonly #fittingBy = createVector()
  #nodes = 0
  #fittingUnlabelled = 0

  /** All requests of a run share `nextWaits`, which has an element for each wait. */
  constructor(
    request: Omit<SlotRequest, 'backend' | 'isPrompt' | 'labels'>,
    number: number,
    nextWaits: Uint32Array,
  ) {
    this.number = number
    this.#nextWaits = nextWaits
    this.ranks = request.ranks
    this.cores = request.cores * request.ranks
    this.isClosure = request.limit === null
    this.#rankAmounts = toVector(toRankAmounts(request))
    this.taskAmounts = toVector(toTaskAmounts(request))
  }

  /** Adds a wait. Waits are added in order of time. */
  enqueue(wait: number): void {
    if (this.#firstWait === -1) this.#firstWait = wait
    else this.#nextWaits[this.#lastWait] = wait
    this.#lastWait = wait
  }

  /** The queue position of the request's first waiting task; `Infinity` if none waits. */
  firstQueuePosition(positions: Uint32Array): number {
    while (positions[this.#firstWait] === 0) {
      const isLast = this.#firstWait === this.#lastWait
      this.#firstWait = isLast ? -1 : (this.#nextWaits[this.#firstWait] ?? -1)
    }
    return positions[this.#firstWait] ?? Infinity
  }

  /** Adds a node with these free resources, or removes it if `sign` is -1. */
  addNode(free: Vector, sign: number): void {
    let ranks = maxRanks
    for (let at = 0; at < free.length; at++) {
      const times = Math.min(maxRanks, countFits(free[at] ?? 0, this.#rankAmounts[at] ?? 0))
      this.#fittingBy[at] = (this.#fittingBy[at] ?? 0) + sign * times
      if (times < ranks) ranks = times
    }
    this.fitting += sign * ranks
    this.#nodes += sign
  }

  addUnlabelledNode(free: Vector, sign: number): void {
    const times = free.map((amount, at) => countFits(amount, this.#rankAmounts[at] ?? 0))
    this.#fittingUnlabelled += sign * Math.min(maxRanks, ...times)
  }

  get scarcest(): SlotResource {
    if (this.#nodes === 0 || this.#fittingUnlabelled > 0) return 'labels'
    const [cores = 0, gpus = 0, memory = 0, workers = 0, processes = 0] = this.#fittingBy
    const min = Math.min(cores, gpus, memory, workers, processes)
    if (gpus === min) return 'gpus'
    if (memory === min) return 'memory'
    if (cores === min) return 'cores'
    return workers === min ? 'workers' : 'processes'
  }
}

/** Used for the requests that were not stored, because there were too many. */
export const unknownRequest = new RequestRoom(oneCore, -1, new Uint32Array(0))

/** The free resources of a node. The node is not present until it joins. */
export class NodeRoom {
  readonly #freeAmounts: Vector
  readonly #requestRooms: readonly (readonly [SlotRequest, RequestRoom])[]
  /** The requests whose labels this node has. */
  #labelled: readonly RequestRoom[] = []
  /** The requests for labels that this node does not have. */
  #unlabelled: readonly RequestRoom[] = []
  size: NodeSize
  isPresent = false

  constructor(node: SlotNode, requests: readonly SlotRequest[], rooms: readonly RequestRoom[]) {
    this.size = node.earlier[0] ?? node
    this.#freeAmounts = toVector(toNodeAmounts(this.size, unlimited))
    this.#requestRooms = rooms.flatMap((room) => {
      const request = requests[room.number]
      return request?.backend === node.backend ? [[request, room] as const] : []
    })
    this.#sortRequests()
  }

  use(amounts: Vector, change: number): void {
    this.#addToRequests(-1)
    addScaled(this.#freeAmounts, amounts, -change)
    this.#addToRequests(1)
  }

  setPresent(isPresent: boolean): void {
    this.#addToRequests(-1)
    this.isPresent = isPresent
    this.#addToRequests(1)
  }

  /** Changes the size of the node. Running tasks keep their resources. */
  resize(size: NodeSize): void {
    this.#addToRequests(-1)
    addScaled(this.#freeAmounts, toVector(toNodeAmounts(this.size, unlimited)), -1)
    addScaled(this.#freeAmounts, toVector(toNodeAmounts(size, unlimited)), 1)
    this.size = size
    this.#sortRequests()
    this.#addToRequests(1)
  }

  #sortRequests(): void {
    const roomsWith = (isLabelled: boolean): RequestRoom[] =>
      this.#requestRooms.flatMap(([request, room]) =>
        hasLabels(this.size, request) === isLabelled ? [room] : [],
      )
    this.#labelled = roomsWith(true)
    this.#unlabelled = roomsWith(false)
  }

  #addToRequests(sign: number): void {
    if (!this.isPresent) return
    for (const room of this.#labelled) room.addNode(this.#freeAmounts, sign)
    for (const room of this.#unlabelled) room.addUnlabelledNode(this.#freeAmounts, sign)
  }
}

/** Returns the sizes of all nodes, added up; 0 for a resource that some node does not limit. */
export function totalSize(nodes: readonly NodeRoom[]): Vector {
  const total = createVector()
  for (const { size } of nodes) {
    addScaled(total, toVector(toNodeAmounts(size, size.cores > 0 ? Infinity : 0)), 1)
  }
  return total.map((amount) => (amount === Infinity ? 0 : amount))
}

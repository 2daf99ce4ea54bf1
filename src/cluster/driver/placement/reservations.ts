/**
 * Nodes that are reserved for waiting jobs. The first job for which no node has room reserves nodes
 * against all others, so that small jobs cannot starve it. Each job behind it reserves nodes
 * against jobs of lower priority, so that urgent jobs do not begin one after another on one node
 * while less urgent ones refill the others. Pure.
 */

import { chooseNodes, type RunningRequest, roomFor } from './job-group.ts'
import { outlives, type PlacementTimes } from './late-jobs.ts'
import { couldTake, freeCores, type Node, use, type Wanted } from './placement-node.ts'
import { type PlacedJob, priorityOf, type Shape } from './shapes.ts'

/** The part of a shape that reservations need. */
type Waiting = Omit<Shape<PlacedJob>, 'queue'> & {
  readonly queue: Pick<
    Shape<PlacedJob>['queue'],
    'length' | 'peek' | 'countAbove' | 'lowestPriority'
  >
}

/** The nodes that are reserved for one job or group. */
interface Claim {
  readonly owner: Reservation
  /** The index of the claim among the claims of its owner. */
  index: number
  /** The nodes, with the number of jobs that each will get. */
  readonly nodes: ReadonlyMap<Node, number>
}

interface Reservation {
  readonly shape: Waiting
  readonly claims: Claim[]
  /** The number of wanted claims at the last attempt that found no further nodes. */
  tried: number
}

export type IsKept = (node: Node) => boolean
const neverKept: IsKept = () => false

export class Reservations {
  readonly #byShape = new Map<Waiting, Reservation>()
  /** Each node has no more than one claim. */
  readonly #byNode = new Map<Node, Claim>()
  readonly #times: PlacementTimes
  readonly #onFree: (node: Node) => void
  /** The first shape for which no node had room, in the current pass. */
  #first: Waiting | null = null
  /** The first shape of the previous pass. */
  #lastFirst: Waiting | null = null

  /** `onFree` is called with nodes that other jobs may use again. */
  constructor(times: PlacementTimes, onFree: (node: Node) => void) {
    this.#times = times
    this.#onFree = onFree
  }

  get isEmpty(): boolean {
    return this.#byShape.size === 0
  }

  has(node: Node): boolean {
    return this.#byNode.has(node)
  }

  /** Starts a new pass over the waiting shapes, in their order. */
  begin(): void {
    this.#lastFirst = this.#first ?? this.#lastFirst
    this.#first = null
  }

  /**
   * Called when no node has room for the shape. `lowest`: the lowest priority of all waiting jobs.
   */
  add(shape: Waiting, lowest: number, nodes: ReadonlyMap<string, Node>): void {
    if (this.#first === null) this.#setFirst(shape)
    const known = this.#byShape.get(shape)
    const reservation = known ?? { shape, claims: [], tried: 0 }
    if (known === undefined) this.#byShape.set(shape, reservation)
    const min = this.#first === shape ? 1 : 0
    const wanted = Math.min(nodes.size, Math.max(min, shape.queue.countAbove(lowest)))
    const { claims } = reservation
    while (claims.length > Math.max(1, wanted)) this.#remove(claims.at(-1))
    if (claims.length >= wanted) return
    if (reservation.tried < wanted || this.#couldTakeOver(reservation)) {
      this.#extend(reservation, wanted, [...nodes.values()])
    }
  }

  /** Called when a job of the shape was placed on the node. */
  placed(shape: Waiting, node: Node): void {
    const owner = this.#byShape.get(shape)
    if (owner === undefined) return
    const { queue } = shape
    const { claims } = owner
    const claim = this.#byNode.get(node)
    const isOver = claims.length > queue.length
    if (claim?.owner === owner) {
      swapWithLast(claims, claim)
      if (isOver) this.#remove(claim)
    } else if (isOver) this.#remove(claims.at(-1))
    // With several priorities, the claims of less urgent jobs now exclude fewer jobs.
    if (queue.peek()?.spec.priority !== queue.lowestPriority) {
      for (const one of claims) for (const each of one.nodes.keys()) this.#onFree(each)
    }
  }

  /** Called when no job of the shape waits anymore. */
  drop(shape: Waiting): void {
    const { claims = [] } = this.#byShape.get(shape) ?? {}
    this.#byShape.delete(shape)
    for (const claim of claims.toReversed()) this.#remove(claim)
  }

  /** The node takes no jobs now, so other nodes are chosen instead. */
  leave(node: Node): void {
    this.#remove(this.#byNode.get(node))
    for (const one of this.#byShape.values()) one.tried = 0
  }

  /** Drops all reservations, so that nodes are chosen again. */
  clear(): void {
    this.#byShape.clear()
    this.#byNode.clear()
    this.#first = null
    this.#lastFirst = null
  }

  /** Returns which nodes the next job of this shape must not use. */
  keptFrom(shape: Waiting): IsKept {
    const head = shape.queue.peek()
    if (this.#byNode.size === 0 || head === undefined) return neverKept
    const { priority, resources } = head.spec
    const isLate = new Map<Claim, boolean>()
    return (node) => {
      const claim = this.#byNode.get(node)
      if (claim === undefined || claim.owner.shape === shape) return false
      const { index, owner } = claim
      const isFirst = index === 0 && owner.shape === this.#first
      if (!isFirst && index >= owner.shape.queue.countAbove(priority)) return false
      if (isFiller(node, shape, owner.shape)) return false
      if (resources.seconds === undefined) return true
      const known = isLate.get(claim) ?? !endsBefore(resources.seconds, claim, this.#times.running)
      isLate.set(claim, known)
      return known
    }
  }

  #setFirst(shape: Waiting): void {
    this.#first = shape
    const last = this.#lastFirst
    if (last === null || last === shape) return
    // The first claim of the previous first shape now excludes fewer jobs.
    const [claim] = this.#byShape.get(last)?.claims ?? []
    for (const node of claim?.nodes.keys() ?? []) this.#onFree(node)
  }

  /** Whether other shapes have reserved nodes that should go to this one. */
  #couldTakeOver(reservation: Reservation): boolean {
    if (this.#byNode.size === 0) return false
    return [...this.#byShape.values()].some(
      (other) => other.claims.length > 0 && this.#isAfter(other, reservation),
    )
  }

  #isAfter({ shape: other }: Reservation, { shape, claims }: Reservation): boolean {
    if (other === shape) return false
    if (shape === this.#first && claims.length === 0) return true
    return priorityOf(other) < priorityOf(shape)
  }

  #extend(reservation: Reservation, wanted: number, nodes: readonly Node[]): void {
    const { shape, claims } = reservation
    const lasts = outlives(shape.queue.peek(), this.#times)
    const usable = nodes.filter(
      (node) => node.isUsable && node.name !== shape.avoid && couldTake(node, shape) && lasts(node),
    )
    for (const chosen of claimsFor(shape, usable, (node) => this.#isOpen(node, reservation))) {
      // Only the first claim may take nodes from shapes of the same priority.
      if (![...chosen.keys()].every((node) => this.#isOpen(node, reservation))) continue
      for (const node of chosen.keys()) this.#remove(this.#byNode.get(node))
      const claim = { owner: reservation, index: claims.length, nodes: chosen }
      claims.push(claim)
      for (const node of chosen.keys()) this.#byNode.set(node, claim)
      if (claims.length >= wanted) break
    }
    reservation.tried = wanted
  }

  #isOpen(node: Node, reservation: Reservation): boolean {
    const claim = this.#byNode.get(node)
    return claim === undefined || this.#isAfter(claim.owner, reservation)
  }

  #remove(claim: Claim | undefined): void {
    if (claim === undefined) return
    const { owner, nodes } = claim
    swapWithLast(owner.claims, claim)
    owner.claims.pop()
    for (const node of nodes.keys()) this.#byNode.delete(node)
    for (const node of nodes.keys()) this.#onFree(node)
    // Shapes that lack nodes may use the freed ones.
    for (const one of this.#byShape.values()) if (one !== owner) one.tried = 0
  }
}

function swapWithLast(claims: Claim[], claim: Claim): void {
  const last = claims.at(-1)
  if (last === undefined || last === claim) return
  const { index } = claim
  claims[last.index] = claim
  claim.index = last.index
  claims[index] = last
  last.index = index
}

/** Yields the nodes for one job or group after another, in the expected order of availability. */
function* claimsFor(
  shape: Waiting,
  usable: readonly Node[],
  isOpen: (node: Node) => boolean,
): Generator<ReadonlyMap<Node, number>> {
  if (shape.group === null) {
    const ranked = usable.filter((node) => isOpen(node)).map((node) => rankOf(node, shape))
    ranked.sort((a, b) => Number(b.isNext) - Number(a.isNext) || b.free - a.free)
    for (const { node } of ranked) yield new Map([[node, 1]])
    return
  }
  const used = new Set<Node>()
  for (;;) {
    const left = usable.filter((node) => !used.has(node) && isOpen(node))
    const chosen = chooseNodes(left, shape, shape.group, 'idle')
    if (chosen === null) return
    const counts = new Map<Node, number>()
    for (const node of chosen) counts.set(node, (counts.get(node) ?? 0) + 1)
    for (const node of counts.keys()) used.add(node)
    yield counts
  }
}

const rankOf = (node: Node, { request }: Waiting) => ({
  node,
  isNext: node.offer.cores > 0 && !lacksGpus(node, request) && !lacksMemory(node, request),
  free: node.facts.cores - node.cores,
})

type Asked = Waiting['request']

const lacksGpus = ({ gpus, facts }: Node, request: Asked): boolean =>
  gpus + request.gpus > facts.gpus

const lacksMemory = ({ memoryMb, facts }: Node, request: Asked): boolean =>
  memoryMb + request.memoryMb > facts.memoryMb

/**
 * Whether a job may use idle cores of a reserved node while the owner lacks GPUs or memory there,
 * because they might otherwise be idle for long. The job must begin immediately, and must not use
 * the scarce resources.
 */
function isFiller(node: Node, { request }: Wanted, { request: kept, group }: Waiting): boolean {
  if (group !== null || freeCores(node) < request.cores) return false
  const [gpus, memory] = [lacksGpus(node, kept), lacksMemory(node, kept)]
  if (!gpus && !memory) return false
  return !(gpus && request.gpus > 0) && !(memory && request.memoryMb > 0)
}

/** Whether a job would end before the owner can use all nodes of its claim. */
const endsBefore = (
  seconds: number,
  { nodes, owner }: Claim,
  running: (node: string) => readonly RunningRequest[],
): boolean =>
  Array.from(nodes).some(
    ([node, count]) => secondsUntilRoom(node, owner.shape, count, running(node.name)) >= seconds,
  )

/** The minimum time until a node has room for `count` such jobs. */
function secondsUntilRoom(
  node: Node,
  wanted: Wanted,
  count: number,
  running: readonly RunningRequest[],
): number {
  const after = { ...node }
  let seconds = 0
  for (const one of running.toSorted((a, b) => a.seconds - b.seconds)) {
    if (roomFor(after, wanted, 'now') >= count) break
    seconds = Math.max(seconds, one.seconds)
    use(after, one.request, -1)
  }
  return seconds
}

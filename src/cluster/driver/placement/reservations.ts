/**
 * Nodes that are kept free for what waits. The first job for which no node has room keeps its own
 * from all others: small jobs cannot starve it. Each of those behind it keeps its own from jobs of
 * lower priority: urgent jobs do not begin one after another on one node while less urgent ones
 * refill the rest. Pure.
 */

import { chooseNodes, type RunningRequest, roomFor } from './job-group.ts'
import { lastsFor, type PlacementTimes } from './late-jobs.ts'
import { couldTake, freeCores, type Node, use, type Wanted } from './placement-node.ts'
import { type PlacedJob, priorityOf, type Shape } from './shapes.ts'

/** The part of a shape that is looked at. */
type Waiting = Omit<Shape<PlacedJob>, 'queue'> & {
  readonly queue: Pick<
    Shape<PlacedJob>['queue'],
    'length' | 'peek' | 'countAbove' | 'lowestPriority'
  >
}

/** Nodes that are kept for one job, or for one group. */
interface Claim {
  readonly owner: Reservation
  /** How many of the owner's jobs have a claim before it. */
  index: number
  /** With how many of its jobs each will get. */
  readonly nodes: ReadonlyMap<Node, number>
}

interface Reservation {
  readonly shape: Waiting
  readonly claims: Claim[]
  /** There were no nodes for more than it has when it wanted so many. */
  tried: number
}

export type IsKept = (node: Node) => boolean
const neverKept: IsKept = () => false

export class Reservations {
  readonly #byShape = new Map<Waiting, Reservation>()
  /** No node has two. */
  readonly #byNode = new Map<Node, Claim>()
  readonly #times: PlacementTimes
  readonly #onFree: (node: Node) => void
  /** What was first among those for which no node had room. */
  #first: Waiting | null = null
  /** The same, when what waits was looked at before. */
  #lastFirst: Waiting | null = null

  /** `onFree` is told of nodes that others may use again. */
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

  /** What waits is looked at anew, in its order. */
  begin(): void {
    this.#lastFirst = this.#first ?? this.#lastFirst
    this.#first = null
  }

  /** No node has room for it now. `lowest`: the least urgent job that could pass it. */
  add(shape: Waiting, lowest: number, nodes: ReadonlyMap<string, Node>): void {
    if (this.#first === null) this.#setFirst(shape)
    const known = this.#byShape.get(shape)
    const reservation = known ?? { shape, claims: [], tried: 0 }
    if (known === undefined) this.#byShape.set(shape, reservation)
    const least = this.#first === shape ? 1 : 0
    const wanted = Math.min(nodes.size, Math.max(least, shape.queue.countAbove(lowest)))
    const { claims } = reservation
    while (claims.length > Math.max(1, wanted)) this.#remove(claims.at(-1))
    if (claims.length >= wanted) return
    if (reservation.tried < wanted || this.#couldTakeOver(reservation)) {
      this.#extend(reservation, wanted, [...nodes.values()])
    }
  }

  /** One of its jobs was placed there. */
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
    // With several priorities the claims of the less urgent ones are kept from fewer jobs now.
    if (queue.peek()?.spec.priority !== queue.lowestPriority) {
      for (const one of claims) for (const each of one.nodes.keys()) this.#onFree(each)
    }
  }

  /** None of its jobs waits any more. */
  drop(shape: Waiting): void {
    const { claims = [] } = this.#byShape.get(shape) ?? {}
    this.#byShape.delete(shape)
    for (const claim of claims.toReversed()) this.#remove(claim)
  }

  /** The node takes nothing: others are chosen for what it was kept for. */
  leave(node: Node): void {
    this.#remove(this.#byNode.get(node))
    for (const one of this.#byShape.values()) one.tried = 0
  }

  /** All are chosen anew. */
  clear(): void {
    this.#byShape.clear()
    this.#byNode.clear()
    this.#first = null
    this.#lastFirst = null
  }

  /** Which nodes the next job of this shape may not use. */
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
    // What was first before keeps its first claim from fewer jobs now.
    const [claim] = this.#byShape.get(last)?.claims ?? []
    for (const node of claim?.nodes.keys() ?? []) this.#onFree(node)
  }

  /** Whether others have nodes that this one should have. */
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
    const lasts = lastsFor(shape.queue.peek(), this.#times)
    const usable = nodes.filter(
      (node) => node.isUsable && node.name !== shape.avoid && couldTake(node, shape) && lasts(node),
    )
    for (const chosen of claimsFor(shape, usable, (node) => this.#isOpen(node, reservation))) {
      // Only the first claim may be taken from those that are as urgent.
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
    // Whoever lacks nodes may have these.
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

/** The nodes of one after another of its jobs or groups, those first that begin first, probably. */
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
 * Whether a job may use cores of a node while what that is kept for lacks GPUs or memory there:
 * they could be idle for long otherwise. It begins at once, and asks for none of what is lacking.
 */
function isFiller(node: Node, { request }: Wanted, { request: kept, group }: Waiting): boolean {
  if (group !== null || freeCores(node) < request.cores) return false
  const [gpus, memory] = [lacksGpus(node, kept), lacksMemory(node, kept)]
  if (!gpus && !memory) return false
  return !(gpus && request.gpus > 0) && !(memory && request.memoryMb > 0)
}

/** Whether a job has ended before all of the nodes can be used by what they are kept for. */
const endsBefore = (
  seconds: number,
  { nodes, owner }: Claim,
  running: (node: string) => readonly RunningRequest[],
): boolean =>
  Array.from(nodes).some(
    ([node, count]) => secondsUntilRoom(node, owner.shape, count, running(node.name)) >= seconds,
  )

/** How long it takes at least until a node has room for so many. */
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

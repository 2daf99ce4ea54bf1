/**
 * Reserves nodes for waiting jobs. Otherwise, small jobs could starve the first waiting job, and
 * less urgent jobs could take the nodes for which more urgent jobs wait.
 */

import { chooseNodes, type RunningRequest, countRoom } from './job-group.ts'
import { outlives, type PlacementTimes } from './late-jobs.ts'
import {
  couldRunJob,
  freeCores,
  type Node,
  changeUsage,
  type JobRequirements,
} from './placement-node.ts'
import { firstPriority, type WaitingShape } from './shapes.ts'

interface Claim {
  readonly owner: Reservation
  index: number
  /** The reserved nodes, with the number of jobs that each of them will get. */
  readonly nodes: ReadonlyMap<Node, number>
}

interface Reservation {
  readonly shape: WaitingShape
  readonly claims: Claim[]
  /** The number of claims that were wanted when the last attempt found no further nodes. */
  triedClaims: number
}

export type IsReserved = (node: Node) => boolean
const neverReserved: IsReserved = () => false

export class Reservations {
  readonly #byShape = new Map<WaitingShape, Reservation>()
  /** The claim of each reserved node. A node has at most one. */
  readonly #byNode = new Map<Node, Claim>()
  readonly #times: PlacementTimes
  readonly #onFree: (node: Node) => void
  /** The first shape in the current pass for which no node had room. */
  #first: WaitingShape | null = null
  #previousFirst: WaitingShape | null = null

  /** `onFree` is called with each node that other jobs may use again. */
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

  /** Starts a pass over the shapes, in which `add` is called in the order of their jobs. */
  begin(): void {
    this.#previousFirst = this.#first ?? this.#previousFirst
    this.#first = null
  }

  /**
   * Reserves nodes for a shape that has no room. `lowest` is the lowest priority of all waiting
   * jobs.
   */
  add(shape: WaitingShape, lowest: number, nodes: ReadonlyMap<string, Node>): void {
    if (this.#first === null) this.#setFirst(shape)
    const known = this.#byShape.get(shape)
    const reservation = known ?? { shape, claims: [], triedClaims: 0 }
    if (known === undefined) this.#byShape.set(shape, reservation)
    const min = this.#first === shape ? 1 : 0
    const wanted = Math.min(nodes.size, Math.max(min, shape.queue.countAbove(lowest)))
    const { claims } = reservation
    while (claims.length > Math.max(1, wanted)) this.#remove(claims.at(-1))
    if (claims.length >= wanted) return
    if (reservation.triedClaims < wanted || this.#canTakeOver(reservation)) {
      this.#extend(reservation, wanted, [...nodes.values()])
    }
  }

  handlePlaced(shape: WaitingShape, node: Node): void {
    const owner = this.#byShape.get(shape)
    if (owner === undefined) return
    const { queue } = shape
    const { claims } = owner
    const claim = this.#byNode.get(node)
    const hasExcess = claims.length > queue.length
    if (claim?.owner === owner) {
      swapWithLast(claims, claim)
      if (hasExcess) this.#remove(claim)
    } else if (hasExcess) this.#remove(claims.at(-1))
    // With several priorities, the remaining claims exclude fewer jobs, so other jobs may now use
    // the nodes.
    if (queue.peek()?.spec.priority !== queue.lowestPriority) {
      for (const one of claims) for (const each of one.nodes.keys()) this.#onFree(each)
    }
  }

  drop(shape: WaitingShape): void {
    const { claims = [] } = this.#byShape.get(shape) ?? {}
    this.#byShape.delete(shape)
    for (const claim of claims.toReversed()) this.#remove(claim)
  }

  removeNode(node: Node): void {
    this.#remove(this.#byNode.get(node))
    for (const one of this.#byShape.values()) one.triedClaims = 0
  }

  clear(): void {
    this.#byShape.clear()
    this.#byNode.clear()
    this.#first = null
    this.#previousFirst = null
  }

  reservedAgainst(shape: WaitingShape): IsReserved {
    const head = shape.queue.peek()
    if (this.#byNode.size === 0 || head === undefined) return neverReserved
    const { priority, resources } = head.spec
    const isLate = new Map<Claim, boolean>()
    return (node) => {
      const claim = this.#byNode.get(node)
      if (claim === undefined || claim.owner.shape === shape) return false
      const { index, owner } = claim
      const isFirst = index === 0 && owner.shape === this.#first
      if (!isFirst && index >= owner.shape.queue.countAbove(priority)) return false
      if (canFillIdle(node, shape, owner.shape)) return false
      if (resources.seconds === undefined) return true
      const known =
        isLate.get(claim) ?? !endsBeforeClaim(resources.seconds, claim, this.#times.running)
      isLate.set(claim, known)
      return known
    }
  }

  #setFirst(shape: WaitingShape): void {
    this.#first = shape
    const last = this.#previousFirst
    if (last === null || last === shape) return
    // The previous first shape has lost its precedence, so other jobs may now use the nodes of its
    // first claim.
    const [claim] = this.#byShape.get(last)?.claims ?? []
    for (const node of claim?.nodes.keys() ?? []) this.#onFree(node)
  }

  #canTakeOver(reservation: Reservation): boolean {
    if (this.#byNode.size === 0) return false
    return [...this.#byShape.values()].some(
      (other) => other.claims.length > 0 && this.#isLessUrgent(other, reservation),
    )
  }

  #isLessUrgent({ shape: other }: Reservation, { shape, claims }: Reservation): boolean {
    if (other === shape) return false
    if (shape === this.#first && claims.length === 0) return true
    return firstPriority(other) < firstPriority(shape)
  }

  #extend(reservation: Reservation, wanted: number, nodes: readonly Node[]): void {
    const { shape, claims } = reservation
    const lasts = outlives(shape.queue.peek(), this.#times)
    const usable = nodes.filter(
      (node) =>
        node.isUsable && node.name !== shape.avoidedNode && couldRunJob(node, shape) && lasts(node),
    )
    for (const chosen of chooseClaims(shape, usable, (node) => this.#isOpen(node, reservation))) {
      // Only the first claim may take nodes from shapes of the same priority.
      if (![...chosen.keys()].every((node) => this.#isOpen(node, reservation))) continue
      for (const node of chosen.keys()) this.#remove(this.#byNode.get(node))
      const claim = { owner: reservation, index: claims.length, nodes: chosen }
      claims.push(claim)
      for (const node of chosen.keys()) this.#byNode.set(node, claim)
      if (claims.length >= wanted) break
    }
    reservation.triedClaims = wanted
  }

  #isOpen(node: Node, reservation: Reservation): boolean {
    const claim = this.#byNode.get(node)
    return claim === undefined || this.#isLessUrgent(claim.owner, reservation)
  }

  #remove(claim: Claim | undefined): void {
    if (claim === undefined) return
    const { owner, nodes } = claim
    swapWithLast(owner.claims, claim)
    owner.claims.pop()
    for (const node of nodes.keys()) this.#byNode.delete(node)
    for (const node of nodes.keys()) this.#onFree(node)
    // Other shapes that lack nodes may reserve the freed ones.
    for (const one of this.#byShape.values()) if (one !== owner) one.triedClaims = 0
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

/** Yields the nodes for each job or group in turn. Nodes that are free sooner come first. */
function* chooseClaims(
  shape: WaitingShape,
  usable: readonly Node[],
  isOpen: (node: Node) => boolean,
): Generator<ReadonlyMap<Node, number>> {
  if (shape.group === null) {
    const ranked = usable.filter((node) => isOpen(node)).map((node) => rankNode(node, shape))
    ranked.sort((a, b) => Number(b.isNext) - Number(a.isNext) || b.free - a.free)
    for (const { node } of ranked) yield new Map([[node, 1]])
    return
  }
  const used = new Set<Node>()
  for (;;) {
    const freeNodes = usable.filter((node) => !used.has(node) && isOpen(node))
    const chosen = chooseNodes(freeNodes, shape, shape.group, 'idle')
    if (chosen === null) return
    const counts = new Map<Node, number>()
    for (const node of chosen) counts.set(node, (counts.get(node) ?? 0) + 1)
    for (const node of counts.keys()) used.add(node)
    yield counts
  }
}

const rankNode = (node: Node, { request }: WaitingShape) => ({
  node,
  isNext: node.offer.cores > 0 && !lacksGpus(node, request) && !lacksMemory(node, request),
  free: node.facts.cores - node.cores,
})

type Request = WaitingShape['request']

const lacksGpus = ({ gpus, facts }: Node, request: Request): boolean =>
  gpus + request.gpus > facts.gpus

const lacksMemory = ({ memoryMb, facts }: Node, request: Request): boolean =>
  memoryMb + request.memoryMb > facts.memoryMb

/**
 * Whether a job may use idle cores of a reserved node. The job must be able to begin now, and the
 * owner of the claim must lack GPUs or memory that the job does not need.
 */
function canFillIdle(
  node: Node,
  { request }: JobRequirements,
  { request: kept, group }: WaitingShape,
): boolean {
  if (group !== null || freeCores(node) < request.cores) return false
  const [gpus, memory] = [lacksGpus(node, kept), lacksMemory(node, kept)]
  if (!gpus && !memory) return false
  return !(gpus && request.gpus > 0) && !(memory && request.memoryMb > 0)
}

const endsBeforeClaim = (
  seconds: number,
  { nodes, owner }: Claim,
  running: (node: string) => readonly RunningRequest[],
): boolean =>
  Array.from(nodes).some(
    ([node, count]) => secondsUntilRoom(node, owner.shape, count, running(node.name)) >= seconds,
  )

function secondsUntilRoom(
  node: Node,
  wanted: JobRequirements,
  count: number,
  running: readonly RunningRequest[],
): number {
  const freedNode = { ...node }
  let seconds = 0
  for (const one of running.toSorted((a, b) => a.seconds - b.seconds)) {
    if (countRoom(freedNode, wanted, 'now') >= count) break
    seconds = Math.max(seconds, one.seconds)
    changeUsage(freedNode, one.request, -1)
  }
  return seconds
}

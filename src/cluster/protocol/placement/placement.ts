/**
 * Decides which node gets which job, by priority, age, resources and offers. Pure. The cost of
 * placing a job does not depend on the number of nodes: those with room are kept in rings.
 */

import type { ResourceRequest } from '../../../tasks/resources.ts'
import { noRules } from '../../wire/agent-rules.ts'
import type { AgentRules, NodeFacts, Offer } from '../../wire/messages.ts'
import { chooseNodes, couldPlace, type GroupShape } from './job-group.ts'
import { type HeldView, noHeldNodes } from './held-nodes.ts'
import { outlives, LateJobs, type PlacementTimes, unlimitedTimes } from './late-jobs.ts'
import {
  couldRunJob,
  freeCores,
  hasRoom,
  isUnrestricted,
  getPlacedJobs,
  minQueueRoom,
  newNode,
  type Node,
  NodeRing,
  ReleasedNodes,
  countQueueRoom,
  changeUsage,
} from './placement-node.ts'
import { type IsReserved, Reservations } from './reservations.ts'
import {
  getGroupJobs,
  isBefore,
  isGroupFollower,
  type PlacedJob,
  firstPriority,
  type Shape,
  Shapes,
} from './shapes.ts'

const maxJobsPerTurn = 256

export class Placement<T extends PlacedJob> {
  readonly #nodes = new Map<string, Node>()
  readonly #idle = new NodeRing()
  /** Nodes without idle cores, at which jobs may wait. */
  readonly #busy = new NodeRing()
  readonly #shapes: Shapes<T>
  readonly #stuckShapes = new Set<Shape<T>>()
  readonly #reservations: Reservations
  readonly #late: LateJobs<T>
  readonly #times: PlacementTimes
  readonly #held: HeldView
  #waiting = 0
  #last: Node | null = null
  readonly #released = new ReleasedNodes()

  constructor(times: PlacementTimes = unlimitedTimes, held: HeldView = noHeldNodes) {
    this.#times = times
    this.#held = held
    this.#late = new LateJobs(times.secondsLeft)
    this.#shapes = new Shapes(times.horizons)
    this.#reservations = new Reservations(times, (node) => this.#handleMoreRoom(node))
  }

  get waiting(): number {
    return this.#waiting
  }

  get nodes(): readonly Node[] {
    return [...this.#nodes.values()]
  }

  get shapes(): readonly Shape<T>[] {
    return this.#shapes.all
  }

  addNode(name: string, facts: NodeFacts, offer: Offer, rules: AgentRules = noRules): void {
    this.removeNode(name)
    const node = newNode({ name, whole: facts, rules, offer }, this.#held)
    this.#nodes.set(name, node)
    this.#handleJoined(node)
  }

  /** Removes a node. The caller must put back or end the jobs that were placed on it. */
  removeNode(name: string): void {
    const node = this.#nodes.get(name)
    if (node === undefined) return
    this.#nodes.delete(name)
    node.isUsable = false
    this.#handleUnusable(node)
  }

  setHeld(name: string): void {
    const node = this.#nodes.get(name)
    if (node === undefined) return
    node.facts = this.#held.without(name, node.whole)
    this.#handleUnusable(node)
    // The reservations are outdated: jobs may have lacked resources that are free now.
    this.#reservations.clear()
  }

  setOffer(name: string, offer: Offer): void {
    const node = this.#nodes.get(name)
    if (node === undefined) return
    node.offer = offer
    this.#handleMoreRoom(node)
  }

  setAhead(name: string, ahead: number): void {
    const node = this.#nodes.get(name)
    if (node === undefined || node.offer.ahead === ahead) return
    this.setOffer(name, { ...node.offer, ahead })
  }

  setUsable(name: string, isUsable: boolean): void {
    const node = this.#nodes.get(name)
    if (node === undefined || node.isUsable === isUsable) return
    node.isUsable = isUsable
    if (isUsable) this.#handleJoined(node)
    else this.#handleUnusable(node)
  }

  push(job: T): void {
    if (isGroupFollower(job)) return
    this.#shapes.findOrCreate(job).queue.push(job)
    this.#waiting++
  }

  /** Puts jobs back at their former positions in the queue, before all later jobs. */
  putBack(all: readonly T[]): void {
    const jobs = all.filter((job) => !isGroupFollower(job))
    for (const [shape, back] of Map.groupBy(jobs, (job) => this.#shapes.findOrCreate(job))) {
      shape.queue.requeue(back)
    }
    this.#waiting += jobs.length
  }

  remove(job: T): void {
    if (isGroupFollower(job) || this.#late.delete(job)) return
    const shape = this.#shapes.findOrCreate(job)
    shape.queue.remove(job)
    this.#waiting--
    this.#removeIfEmpty(shape)
  }

  addRunning(name: string, { spec }: T): void {
    const node = this.#nodes.get(name)
    if (node !== undefined) this.#use(node, spec.resources)
  }

  release(name: string, { spec }: T): void {
    const node = this.#nodes.get(name)
    if (node === undefined) return
    changeUsage(node, spec.resources, -1)
    this.#released.add(node)
  }

  /** Places as many jobs as possible. Returns the jobs that each node gets, in order. */
  assign(): Map<string, T[]> {
    const placed = new Map<string, T[]>()
    this.#checkReleased()
    if (this.#late.size > 0) this.putBack(this.#late.removeTimely())
    if (this.#waiting === 0 || this.#nodes.size === 0) return placed
    const triedShapes = new Set<Shape<T>>()
    this.#reservations.begin()
    let lowestPriority: number | null = null
    for (;;) {
      const first = this.#shapes.findNext(triedShapes)
      if (first === null) break
      const { shape, nextOther } = first
      if (this.#deferLate(shape)) continue
      const isPlaced =
        shape.group === null
          ? this.#placeNext(shape, nextOther, placed)
          : this.#placeGroup(shape, shape.group, placed)
      if (isPlaced) continue
      triedShapes.add(shape)
      if (shape.isDefault) continue
      lowestPriority ??= this.#shapes.lowestPriority
      this.#reservations.add(shape, lowestPriority, this.#nodes)
    }
    return placed
  }

  removeExcluding(name: string): T[] {
    return this.#shapes.all
      .filter(({ exclusion }) => exclusion?.agents.has(name) === true)
      .flatMap((shape) => this.#removeAllOf(shape))
  }

  removeShape(key: string): T[] {
    const shape = this.#shapes.get(key)
    return shape === undefined ? [] : this.#removeAllOf(shape)
  }

  /** The number of idle cores that could run jobs that wait at other nodes. */
  get freeCores(): number {
    this.#checkReleased()
    const nodes = this.#idle.items.filter((node) => {
      return isUnrestricted(node) && !this.#reservations.has(node)
    })
    return nodes.reduce((sum, node) => sum + freeCores(node), 0)
  }

  /** Returns how many jobs wait at a node, estimated from the node's offer. */
  waitingAt(name: string): number {
    const node = this.#nodes.get(name)
    return node === undefined ? 0 : Math.max(0, node.cores - node.offer.cores)
  }

  takeAll(): T[] {
    const waiting = this.#shapes.all.flatMap((shape) => this.#removeAllOf(shape))
    return [...this.#late.takeAll().flatMap((job) => getGroupJobs(job)), ...waiting]
  }

  #removeAllOf(shape: Shape<T>): T[] {
    const jobs: T[] = []
    for (let job = shape.queue.pop(); job !== undefined; job = shape.queue.pop()) jobs.push(job)
    this.#waiting -= jobs.length
    this.#removeIfEmpty(shape)
    return jobs.flatMap((job) => getGroupJobs(job))
  }

  #removeIfEmpty(shape: Shape<T>): void {
    if (shape.queue.length > 0) return
    this.#shapes.delete(shape)
    this.#stuckShapes.delete(shape)
    this.#reservations.drop(shape)
  }

  /** Sets the first job aside if it needs more time than is left: it would block the others. */
  #deferLate(shape: Shape<T>): boolean {
    const head = shape.queue.peek()
    if (head === undefined || !this.#late.add(head)) return false
    shape.queue.pop()
    this.#waiting--
    this.#removeIfEmpty(shape)
    return true
  }

  #placeNext(shape: Shape<T>, nextOther: T | undefined, placed: Map<string, T[]>): boolean {
    const node = this.#findNode(shape)
    if (node === null) return false
    this.#place(shape, node, nextOther, getPlacedJobs(placed, node))
    return true
  }

  #placeGroup(shape: Shape<T>, group: GroupShape, placed: Map<string, T[]>): boolean {
    this.#resetIfUrgent(shape)
    if (shape.changed?.size === 0) return false
    const isReserved = this.#reservations.reservedAgainst(shape)
    const all = [...this.#nodes.values()]
    const others = all.filter(({ name }) => name !== shape.avoidedNode)
    const from = couldPlace(others, shape) ? others : all
    const lasts = outlives(shape.queue.peek(), this.#times)
    const free = from.filter((node) => !isReserved(node) && lasts(node))
    const chosen = chooseNodes(free, shape, group, 'now')
    if (chosen === null) {
      this.#setStuck(shape)
      return false
    }
    const jobs = (shape.queue.pop()?.group?.jobs ?? []) as readonly T[]
    this.#waiting--
    this.#removeIfEmpty(shape)
    for (const [at, node] of chosen.entries()) {
      const job = jobs[at]
      if (job === undefined) continue
      this.#use(node, shape.request)
      getPlacedJobs(placed, node).push(job)
    }
    if (chosen[0] !== undefined) this.#reservations.handlePlaced(shape, chosen[0])
    return true
  }

  #findNode(shape: Shape<T>): Node | null {
    this.#resetIfUrgent(shape)
    const isReserved = this.#reservations.reservedAgainst(shape)
    const lasts = outlives(shape.queue.peek(), this.#times)
    const accepts = (node: Node): boolean =>
      node.name !== shape.avoidedNode && hasRoom(node, shape) && lasts(node) && !isReserved(node)
    if (shape.changed === null) {
      // For a single job, prefers the previous job's node, which already has the code and a worker.
      const last = this.#waiting === 1 ? this.#last : null
      if (last?.ring === this.#idle && last.cores === 0 && accepts(last)) return last
      const found = this.#idle.next(accepts) ?? (shape.isDefault ? this.#busy.next(accepts) : null)
      if (found !== null) return found
      this.#setStuck(shape)
    } else {
      for (const node of shape.changed) {
        if (accepts(node)) return node
        shape.changed.delete(node)
        shape.stuckPriority = firstPriority(shape)
      }
    }
    return this.#findAvoidedNode(shape, isReserved)
  }

  /** Returns the node that the job should avoid, if no other node could ever run the job. */
  #findAvoidedNode(shape: Shape<T>, isReserved: IsReserved): Node | null {
    const node = shape.avoidedNode === null ? undefined : this.#nodes.get(shape.avoidedNode)
    if (node === undefined || isReserved(node) || !hasRoom(node, shape)) return null
    if (!outlives(shape.queue.peek(), this.#times)(node)) return null
    for (const other of this.#nodes.values()) {
      if (other !== node && other.isUsable && couldRunJob(other, shape)) return null
    }
    return node
  }

  #place(shape: Shape<T>, node: Node, nextOther: T | undefined, jobs: T[]): void {
    this.#last = node
    const share = Math.ceil(shape.queue.length / this.#nodes.size)
    const room = freeCores(node) > 0 ? freeCores(node) : countQueueRoom(node)
    const max = shape.isDefault ? Math.min(room, maxJobsPerTurn, share) : 1
    // Reservations depend on the priority, so jobs of lower priority are placed separately.
    const min = this.#reservations.isEmpty ? -Infinity : firstPriority(shape)
    for (let count = 0; count < max; count++) {
      const job = shape.queue.peek()
      if (job === undefined || (nextOther !== undefined && !isBefore(job, nextOther))) break
      if (job.spec.priority < min) break
      shape.queue.pop()
      this.#waiting--
      changeUsage(node, shape.request, 1)
      jobs.push(job)
    }
    this.#updateRing(node)
    if (!shape.isDefault) this.#reservations.handlePlaced(shape, node)
    this.#removeIfEmpty(shape)
  }

  #use(node: Node, request: ResourceRequest): void {
    changeUsage(node, request, 1)
    this.#updateRing(node)
  }

  #checkReleased(): void {
    for (const node of this.#released.takeAll()) if (node.isUsable) this.#handleMoreRoom(node)
  }

  #handleMoreRoom(node: Node): void {
    this.#updateRing(node)
    if (node.ring !== null) for (const { changed } of this.#stuckShapes) changed?.add(node)
  }

  /** Drops all reservations, because they were made without this node. */
  #handleJoined(node: Node): void {
    this.#handleMoreRoom(node)
    if (!this.#reservations.isEmpty) this.#resetStuck()
    this.#reservations.clear()
  }

  /**
   * Lets all shapes search again: their jobs may now need a node that they avoided, or may have
   * reserved this one.
   */
  #handleUnusable(node: Node): void {
    this.#updateRing(node)
    this.#reservations.removeNode(node)
    this.#resetStuck()
  }

  #updateRing(node: Node): void {
    const isOpen = countQueueRoom(node) >= minQueueRoom(node, this.#nodes.size)
    const ring = freeCores(node) > 0 ? this.#idle : isOpen ? this.#busy : null
    if (node.ring === ring) return
    if (node.ring !== null) (node.ring === this.#idle ? this.#idle : this.#busy).delete(node)
    ring?.add(node)
  }

  #setStuck(shape: Shape<T>): void {
    shape.changed = new Set()
    shape.stuckPriority = firstPriority(shape)
    this.#stuckShapes.add(shape)
  }

  /** A more urgent job may use nodes that are reserved against lower priorities. */
  #resetIfUrgent(shape: Shape<T>): void {
    if (shape.changed === null || this.#reservations.isEmpty) return
    if (firstPriority(shape) <= shape.stuckPriority) return
    shape.changed = null
    this.#stuckShapes.delete(shape)
  }

  #resetStuck(): void {
    for (const shape of this.#stuckShapes) shape.changed = null
    this.#stuckShapes.clear()
  }
}

/**
 * Decides which node gets which job, by priority, age, resources and the offers of nodes. Pure:
 * sends nothing and does not read the clock. The cost of placing a job does not depend on the
 * number of nodes: nodes with room are kept in rings, and a job that found no room examines only
 * nodes that have changed since.
 */

import type { ResourceRequest } from '../../../tasks/resources.ts'
import { type AgentRules, type NodeFacts, noRules, type Offer } from '../../wire/messages.ts'
import { chooseNodes, couldHold, type GroupShape } from './job-group.ts'
import { type HeldView, noneHeld } from './held-nodes.ts'
import { outlives, LateJobs, type PlacementTimes, timeless } from './late-jobs.ts'
import {
  couldTake,
  freeCores,
  hasRoom,
  isUnrestricted,
  jobsAt,
  minRoomOf,
  newNode,
  type Node,
  NodeRing,
  ReleasedNodes,
  roomOf,
  use,
} from './placement-node.ts'
import { type IsKept, Reservations } from './reservations.ts'
import {
  allOf,
  isBefore,
  isGroupFollower,
  type PlacedJob,
  priorityOf,
  type Shape,
  Shapes,
} from './shapes.ts'

/** The maximum number of jobs that one node gets in one turn. */
const maxShare = 256

export class Placement<T extends PlacedJob> {
  readonly #nodes = new Map<string, Node>()
  /** Nodes with idle cores. */
  readonly #idle = new NodeRing()
  /** Nodes without idle cores, where jobs may wait. */
  readonly #busy = new NodeRing()
  /** The shapes of waiting jobs. */
  readonly #shapes: Shapes<T>
  /** Shapes for which no node had room. */
  readonly #stuck = new Set<Shape<T>>()
  readonly #reservations: Reservations
  /** Jobs that need more time than is left. */
  readonly #late: LateJobs<T>
  readonly #times: PlacementTimes
  readonly #held: HeldView
  #waiting = 0
  #last: Node | null = null
  readonly #released = new ReleasedNodes()

  constructor(times: PlacementTimes = timeless, held: HeldView = noneHeld) {
    this.#times = times
    this.#held = held
    this.#late = new LateJobs(times.secondsLeft)
    this.#shapes = new Shapes(times.horizons)
    this.#reservations = new Reservations(times, (node) => this.#gained(node))
  }

  /** The number of jobs that wait for a node. */
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
    this.#joined(node)
  }

  /** The caller must put back or end the jobs that were placed on the node. */
  removeNode(name: string): void {
    const node = this.#nodes.get(name)
    if (node === undefined) return
    this.#nodes.delete(name)
    node.isUsable = false
    this.#lostOne(node)
  }

  /** Called when the amount that services hold on the node has changed. */
  setHeld(name: string): void {
    const node = this.#nodes.get(name)
    if (node === undefined) return
    node.facts = this.#held.without(name, node.whole)
    this.#lostOne(node)
    // Waiting jobs may have lacked the resources that are free now.
    this.#reservations.clear()
  }

  setOffer(name: string, offer: Offer): void {
    const node = this.#nodes.get(name)
    if (node === undefined) return
    node.offer = offer
    this.#gained(node)
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
    if (isUsable) this.#joined(node)
    else this.#lostOne(node)
  }

  push(job: T): void {
    if (isGroupFollower(job)) return
    this.#shapes.of(job).queue.push(job)
    this.#waiting++
  }

  /** Puts jobs back into their former position, before all later jobs. */
  putBack(all: readonly T[]): void {
    const jobs = all.filter((job) => !isGroupFollower(job))
    for (const [shape, back] of Map.groupBy(jobs, (job) => this.#shapes.of(job))) {
      shape.queue.putBack(back)
    }
    this.#waiting += jobs.length
  }

  remove(job: T): void {
    if (isGroupFollower(job) || this.#late.delete(job)) return
    const shape = this.#shapes.of(job)
    shape.queue.remove(job)
    this.#waiting--
    this.#forgetEmpty(shape)
  }

  /** Accounts for a job that already runs on the node. */
  book(name: string, { spec }: T): void {
    const node = this.#nodes.get(name)
    if (node !== undefined) this.#use(node, spec.resources)
  }

  /** Called when a job on the node has ended or is put back. */
  release(name: string, { spec }: T): void {
    const node = this.#nodes.get(name)
    if (node === undefined) return
    use(node, spec.resources, -1)
    this.#released.add(node)
  }

  /** Places as many jobs as possible. Returns the jobs of each node, in order. */
  assign(): Map<string, T[]> {
    const placed = new Map<string, T[]>()
    this.#lookAtReleased()
    if (this.#late.size > 0) this.putBack(this.#late.takeTimely())
    if (this.#waiting === 0 || this.#nodes.size === 0) return placed
    const done = new Set<Shape<T>>()
    this.#reservations.begin()
    let lowest: number | null = null
    for (;;) {
      const first = this.#shapes.first(done)
      if (first === null) break
      const { shape, nextOther } = first
      if (this.#putOffLate(shape)) continue
      const isPlaced =
        shape.group === null
          ? this.#placeNext(shape, nextOther, placed)
          : this.#placeGroup(shape, shape.group, placed)
      if (isPlaced) continue
      done.add(shape)
      if (shape.isDefault) continue
      lowest ??= this.#shapes.lowestPriority
      this.#reservations.add(shape, lowest, this.#nodes)
    }
    return placed
  }

  /** Takes waiting jobs that are excluded from this node. */
  takeExcluding(name: string): T[] {
    return this.#shapes.all
      .filter(({ excluded }) => excluded?.agents.has(name) === true)
      .flatMap((shape) => this.#takeAllOf(shape))
  }

  /** Takes all waiting jobs of a shape. */
  takeUnplaceable(key: string): T[] {
    const shape = this.#shapes.get(key)
    return shape === undefined ? [] : this.#takeAllOf(shape)
  }

  /** Idle cores that could run jobs that wait at other nodes. */
  get freeCores(): number {
    this.#lookAtReleased()
    const nodes = this.#idle.items.filter((node) => {
      return isUnrestricted(node) && !this.#reservations.has(node)
    })
    return nodes.reduce((sum, node) => sum + freeCores(node), 0)
  }

  /** The number of jobs that wait at a node, judged by its offer. */
  waitingAt(name: string): number {
    const node = this.#nodes.get(name)
    return node === undefined ? 0 : Math.max(0, node.cores - node.offer.cores)
  }

  takeAll(): T[] {
    const waiting = this.#shapes.all.flatMap((shape) => this.#takeAllOf(shape))
    return [...this.#late.takeAll().flatMap((job) => allOf(job)), ...waiting]
  }

  #takeAllOf(shape: Shape<T>): T[] {
    const jobs: T[] = []
    for (let job = shape.queue.take(); job !== undefined; job = shape.queue.take()) jobs.push(job)
    this.#waiting -= jobs.length
    this.#forgetEmpty(shape)
    return jobs.flatMap((job) => allOf(job))
  }

  #forgetEmpty(shape: Shape<T>): void {
    if (shape.queue.length > 0) return
    this.#shapes.delete(shape)
    this.#stuck.delete(shape)
    this.#reservations.drop(shape)
  }

  /** Sets late jobs aside, because they would block the jobs behind them. */
  #putOffLate(shape: Shape<T>): boolean {
    const head = shape.queue.peek()
    if (head === undefined || !this.#late.add(head)) return false
    shape.queue.take()
    this.#waiting--
    this.#forgetEmpty(shape)
    return true
  }

  #placeNext(shape: Shape<T>, nextOther: T | undefined, placed: Map<string, T[]>): boolean {
    const node = this.#findNode(shape)
    if (node === null) return false
    this.#place(shape, node, nextOther, jobsAt(placed, node))
    return true
  }

  /** Places all jobs of a group, or none. */
  #placeGroup(shape: Shape<T>, group: GroupShape, placed: Map<string, T[]>): boolean {
    this.#lookAgainIfUrgent(shape)
    if (shape.changed?.size === 0) return false
    const isKept = this.#reservations.keptFrom(shape)
    const all = [...this.#nodes.values()]
    const others = all.filter(({ name }) => name !== shape.avoid)
    const from = couldHold(others, shape) ? others : all
    const lasts = outlives(shape.queue.peek(), this.#times)
    const free = from.filter((node) => !isKept(node) && lasts(node))
    const chosen = chooseNodes(free, shape, group, 'now')
    if (chosen === null) {
      this.#setStuck(shape)
      return false
    }
    const jobs = (shape.queue.take()?.group?.jobs ?? []) as readonly T[]
    this.#waiting--
    this.#forgetEmpty(shape)
    for (const [at, node] of chosen.entries()) {
      const job = jobs[at]
      if (job === undefined) continue
      this.#use(node, shape.request)
      jobsAt(placed, node).push(job)
    }
    if (chosen[0] !== undefined) this.#reservations.placed(shape, chosen[0])
    return true
  }

  /** The next node in turn where the job can begin immediately, otherwise one where it may wait. */
  #findNode(shape: Shape<T>): Node | null {
    this.#lookAgainIfUrgent(shape)
    const isKept = this.#reservations.keptFrom(shape)
    const lasts = outlives(shape.queue.peek(), this.#times)
    const accepts = (node: Node): boolean =>
      node.name !== shape.avoid && hasRoom(node, shape) && lasts(node) && !isKept(node)
    if (shape.changed === null) {
      // A single job goes to the node of the last one, where code and worker are already loaded.
      const last = this.#waiting === 1 ? this.#last : null
      if (last?.ring === this.#idle && last.cores === 0 && accepts(last)) return last
      const found = this.#idle.next(accepts) ?? (shape.isDefault ? this.#busy.next(accepts) : null)
      if (found !== null) return found
      this.#setStuck(shape)
    } else {
      for (const node of shape.changed) {
        if (accepts(node)) return node
        shape.changed.delete(node)
        shape.stuckPriority = priorityOf(shape)
      }
    }
    return this.#avoidedNode(shape, isKept)
  }

  /** Returns the node to avoid, if no other node could ever take the job. */
  #avoidedNode(shape: Shape<T>, isKept: IsKept): Node | null {
    const node = shape.avoid === null ? undefined : this.#nodes.get(shape.avoid)
    if (node === undefined || isKept(node) || !hasRoom(node, shape)) return null
    if (!outlives(shape.queue.peek(), this.#times)(node)) return null
    for (const other of this.#nodes.values()) {
      if (other !== node && other.isUsable && couldTake(other, shape)) return null
    }
    return node
  }

  #place(shape: Shape<T>, node: Node, nextOther: T | undefined, jobs: T[]): void {
    this.#last = node
    const share = Math.ceil(shape.queue.length / this.#nodes.size)
    const room = freeCores(node) > 0 ? freeCores(node) : roomOf(node)
    const max = shape.isDefault ? Math.min(room, maxShare, share) : 1
    // Reservations depend on the priority, so less urgent jobs of the shape are placed separately.
    const min = this.#reservations.isEmpty ? -Infinity : priorityOf(shape)
    for (let count = 0; count < max; count++) {
      const job = shape.queue.peek()
      if (job === undefined || (nextOther !== undefined && !isBefore(job, nextOther))) break
      if (job.spec.priority < min) break
      shape.queue.take()
      this.#waiting--
      use(node, shape.request, 1)
      jobs.push(job)
    }
    this.#sort(node)
    if (!shape.isDefault) this.#reservations.placed(shape, node)
    this.#forgetEmpty(shape)
  }

  #use(node: Node, request: ResourceRequest): void {
    use(node, request, 1)
    this.#sort(node)
  }

  #lookAtReleased(): void {
    for (const node of this.#released.takeAll()) if (node.isUsable) this.#gained(node)
  }

  /** Called when the node may have more room than before. */
  #gained(node: Node): void {
    this.#sort(node)
    if (node.ring !== null) for (const { changed } of this.#stuck) changed?.add(node)
  }

  /** Drops all reservations, because they were made without this node. */
  #joined(node: Node): void {
    this.#gained(node)
    if (!this.#reservations.isEmpty) this.#lookAgain()
    this.#reservations.clear()
  }

  /**
   * The node takes no jobs now. Jobs that avoid another node, or reserved this one, search again.
   */
  #lostOne(node: Node): void {
    this.#sort(node)
    this.#reservations.leave(node)
    this.#lookAgain()
  }

  /** Moves the node into the right ring. */
  #sort(node: Node): void {
    const isOpen = roomOf(node) >= minRoomOf(node, this.#nodes.size)
    const ring = freeCores(node) > 0 ? this.#idle : isOpen ? this.#busy : null
    if (node.ring === ring) return
    if (node.ring !== null) (node.ring === this.#idle ? this.#idle : this.#busy).delete(node)
    ring?.add(node)
  }

  #setStuck(shape: Shape<T>): void {
    shape.changed = new Set()
    shape.stuckPriority = priorityOf(shape)
    this.#stuck.add(shape)
  }

  /** Nodes that are reserved against less urgent jobs may be free for the shape's next job. */
  #lookAgainIfUrgent(shape: Shape<T>): void {
    if (shape.changed === null || this.#reservations.isEmpty) return
    if (priorityOf(shape) <= shape.stuckPriority) return
    shape.changed = null
    this.#stuck.delete(shape)
  }

  #lookAgain(): void {
    for (const shape of this.#stuck) shape.changed = null
    this.#stuck.clear()
  }
}

/**
 * Decides which node gets which job, by priority, age, resources and what the nodes offer. Pure
 * data: it sends nothing and knows no time. What it costs to place a job does not depend on the
 * number of nodes: those with room are kept in rings, and a job for which there is none looks again
 * only at nodes that have changed.
 */

import { JobQueue, type WaitingJob } from '../../backends/local/job-queue.ts'
import { isDefaultRequest, type ResourceRequest } from '../../tasks/resources.ts'
import type { TaskSpec } from '../../tasks/spec.ts'
import { type AgentRules, type NodeFacts, noRules, type Offer } from '../wire/messages.ts'
import { labelsOf } from '../wire/resource-words.ts'
import { kindOf } from '../wire/rules.ts'
import {
  couldRun,
  couldTake,
  type Exclusion,
  freeCores,
  hasRoom,
  isUnrestricted,
  type Node,
  NodeRing,
  roomOf,
  use,
  type Wanted,
} from './placement-node.ts'

export interface PlacedJob extends WaitingJob {
  readonly spec: Pick<TaskSpec, 'kind' | 'priority' | 'resources'>
  /** A node that should not get it while there is another: an attempt failed there. */
  readonly avoid: string | null
  /** Nodes that must not get it. Does not change while the job waits. */
  readonly excluded: Exclusion | null
}

/** Jobs that ask for the same. */
interface Shape<T extends PlacedJob> extends Wanted {
  readonly key: string
  readonly avoid: string | null
  readonly queue: JobQueue<T>
  /** Nodes that have changed since no node had room for it; `null` while one may have. */
  changed: Set<Node> | null
}

interface Reservation<T extends PlacedJob> {
  readonly shape: Shape<T>
  readonly node: Node | null
}

/** The most jobs that one node gets before the next one's turn. */
const largestShare = 256

export class Placement<T extends PlacedJob> {
  readonly #nodes = new Map<string, Node>()
  /** Nodes with idle cores. */
  readonly #idle = new NodeRing()
  /** Nodes without, where jobs may wait. */
  readonly #busy = new NodeRing()
  /** Those with jobs that wait. */
  readonly #shapes = new Map<string, Shape<T>>()
  /** Those of them for which no node had room. */
  readonly #stuck = new Set<Shape<T>>()
  /** A node that is kept free for the first job that did not fit: small ones cannot starve it. */
  #reserved: Reservation<T> | null = null
  #waiting = 0
  /** The node that got the last job. */
  #last: Node | null = null

  /** Jobs that wait for a node. */
  get waiting(): number {
    return this.#waiting
  }

  addNode(name: string, facts: NodeFacts, offer: Offer, rules: AgentRules = noRules): void {
    this.removeNode(name)
    const used = { cores: 0, gpus: 0, memoryMb: 0 }
    const place = { isUsable: true, ring: null, ringIndex: -1 }
    const node: Node = { name, facts, rules, offer, ...used, ...place }
    this.#nodes.set(name, node)
    this.#gained(node)
  }

  /** What was placed there has to be put back, or has ended. */
  removeNode(name: string): void {
    const node = this.#nodes.get(name)
    if (node === undefined) return
    this.#nodes.delete(name)
    node.isUsable = false
    this.#lostOne(node)
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
    node.offer = { ...node.offer, ahead }
    this.#gained(node)
  }

  setUsable(name: string, isUsable: boolean): void {
    const node = this.#nodes.get(name)
    if (node === undefined || node.isUsable === isUsable) return
    node.isUsable = isUsable
    if (isUsable) this.#gained(node)
    else this.#lostOne(node)
  }

  push(job: T): void {
    this.#shapeOf(job).queue.push(job)
    this.#waiting++
  }

  /** Back to where they were: before all that came after them. */
  putBack(jobs: readonly T[]): void {
    for (const [shape, back] of Map.groupBy(jobs, (job) => this.#shapeOf(job))) {
      shape.queue.putBack(back)
    }
    this.#waiting += jobs.length
  }

  /** Forgets a job that waits. */
  remove(job: T): void {
    const shape = this.#shapeOf(job)
    shape.queue.remove(job)
    this.#waiting--
    this.#forgetEmpty(shape)
  }

  /** Books a job that runs there already. */
  book(name: string, { spec }: T): void {
    const node = this.#nodes.get(name)
    if (node !== undefined) this.#use(node, spec.resources)
  }

  /** A job that was placed there has ended or is put back. */
  release(name: string, { spec }: T): void {
    const node = this.#nodes.get(name)
    if (node === undefined) return
    use(node, spec.resources, -1)
    this.#gained(node)
  }

  /** Places what can be placed now: the jobs of each node, in order. */
  assign(): Map<string, T[]> {
    const placed = new Map<string, T[]>()
    if (this.#waiting === 0 || this.#nodes.size === 0) return placed
    const done = new Set<Shape<T>>()
    let reserved: Node | null = null
    let isReserved = false
    for (;;) {
      const first = this.#firstShape(done)
      if (first === null) break
      const { shape, rival } = first
      const node = this.#findNode(shape, reserved)
      if (node === null) {
        done.add(shape)
        if (shape.isDefault || isReserved) continue
        isReserved = true
        reserved = this.#reserveFor(shape)
      } else this.#place(shape, node, rival, jobsAt(placed, node))
    }
    if (!isReserved) this.#changeReservation(null)
    return placed
  }

  /**
   * Names of what is asked for by jobs that no node of this cluster could run, whatever else it
   * runs; with the nodes that have what it takes, but do not allow it.
   */
  unplaceable(): Map<string, readonly string[]> {
    const nodes = [...this.#nodes.values()]
    const found = new Map<string, readonly string[]>()
    for (const shape of this.#shapes.values()) {
      if (nodes.some((node) => couldTake(node, shape))) continue
      const refusing = nodes.filter(({ facts }) => couldRun(facts, shape.request))
      found.set(
        shape.key,
        refusing.map(({ name }) => name),
      )
    }
    return found
  }

  /** Takes the jobs that this node must not get. */
  takeExcluding(name: string): T[] {
    const shapes = [...this.#shapes.values()]
    return shapes
      .filter(({ excluded }) => excluded?.agents.has(name) === true)
      .flatMap((shape) => this.#takeAllOf(shape))
  }

  /** Takes the jobs of such a name. */
  takeUnplaceable(key: string): T[] {
    const shape = this.#shapes.get(key)
    return shape === undefined ? [] : this.#takeAllOf(shape)
  }

  /** Idle cores that could run whatever waits elsewhere. */
  get freeCores(): number {
    const nodes = this.#idle.items.filter(isUnrestricted)
    return nodes.reduce((sum, node) => sum + freeCores(node), 0)
  }

  /** How many jobs wait at a node, by what it offers. */
  waitingAt(name: string): number {
    const node = this.#nodes.get(name)
    return node === undefined ? 0 : Math.max(0, node.cores - node.offer.cores)
  }

  /** Takes everything that waits. */
  takeAll(): T[] {
    return [...this.#shapes.values()].flatMap((shape) => this.#takeAllOf(shape))
  }

  #takeAllOf(shape: Shape<T>): T[] {
    const jobs: T[] = []
    for (let job = shape.queue.take(); job !== undefined; job = shape.queue.take()) jobs.push(job)
    this.#waiting -= jobs.length
    this.#forgetEmpty(shape)
    return jobs
  }

  #shapeOf({ spec, avoid, excluded }: T): Shape<T> {
    const request = spec.resources
    const kind = kindOf(spec)
    const isDefault = isDefaultRequest(request)
    let key = isDefault ? '' : shapeKey(request)
    if (kind === 'programs') key += '\0programs'
    // A job that must not run everywhere waits apart: it must not hold back the others.
    if (avoid !== null) key += `\0avoid ${avoid}`
    if (excluded !== null) key += `\0not ${excluded.key}`
    let shape = this.#shapes.get(key)
    if (shape === undefined) {
      const wanted = { request, kind, avoid, excluded, isDefault }
      shape = { key, ...wanted, queue: new JobQueue<T>(), changed: null }
      this.#shapes.set(key, shape)
    }
    return shape
  }

  #forgetEmpty(shape: Shape<T>): void {
    if (shape.queue.length > 0) return
    this.#shapes.delete(shape.key)
    this.#stuck.delete(shape)
  }

  /** The shape whose first job is before those of all others, and the first job of the others. */
  #firstShape(done: ReadonlySet<Shape<T>>): { shape: Shape<T>; rival: T | undefined } | null {
    let first: Shape<T> | null = null
    let head: T | undefined
    let rival: T | undefined
    for (const shape of this.#shapes.values()) {
      if (done.has(shape)) continue
      const candidate = shape.queue.peek()
      if (candidate === undefined) continue
      if (head === undefined || isBefore(candidate, head)) {
        rival = head
        first = shape
        head = candidate
      } else if (rival === undefined || isBefore(candidate, rival)) rival = candidate
    }
    return first === null ? null : { shape: first, rival }
  }

  /** The next node in turn where it could begin at once, else where it may wait. */
  #findNode(shape: Shape<T>, reserved: Node | null): Node | null {
    const accepts = (node: Node): boolean =>
      node !== reserved && node.name !== shape.avoid && hasRoom(node, shape)
    if (shape.changed === null) {
      // A job that is alone runs where the last one ran: the code and the worker are warm there.
      const last = this.#waiting === 1 ? this.#last : null
      if (last?.ring === this.#idle && last.cores === 0 && accepts(last)) return last
      const found = this.#idle.next(accepts) ?? (shape.isDefault ? this.#busy.next(accepts) : null)
      if (found !== null) return found
      shape.changed = new Set()
      this.#stuck.add(shape)
    } else {
      for (const node of shape.changed) {
        if (accepts(node)) return node
        shape.changed.delete(node)
      }
    }
    return this.#avoidedNode(shape, reserved)
  }

  /** Waiting for another node could take for ever where there is no other. */
  #avoidedNode(shape: Shape<T>, reserved: Node | null): Node | null {
    const node = shape.avoid === null ? undefined : this.#nodes.get(shape.avoid)
    if (node === undefined || node === reserved || !hasRoom(node, shape)) return null
    for (const other of this.#nodes.values()) {
      if (other !== node && other.isUsable && couldTake(other, shape)) return null
    }
    return node
  }

  #place(shape: Shape<T>, node: Node, rival: T | undefined, jobs: T[]): void {
    this.#last = node
    const share = Math.ceil(shape.queue.length / this.#nodes.size)
    const room = freeCores(node) > 0 ? freeCores(node) : roomOf(node)
    const most = shape.isDefault ? Math.min(room, largestShare, share) : 1
    for (let count = 0; count < most; count++) {
      const job = shape.queue.peek()
      if (job === undefined || (rival !== undefined && !isBefore(job, rival))) break
      shape.queue.take()
      this.#waiting--
      use(node, shape.request, 1)
      jobs.push(job)
    }
    this.#sort(node)
    this.#forgetEmpty(shape)
  }

  #use(node: Node, request: ResourceRequest): void {
    use(node, request, 1)
    this.#sort(node)
  }

  /** It may have more room than before. */
  #gained(node: Node): void {
    this.#sort(node)
    if (node.ring !== null) for (const { changed } of this.#stuck) changed?.add(node)
  }

  /** It takes nothing: whoever avoids another node, or waits for this one, looks again. */
  #lostOne(node: Node): void {
    this.#sort(node)
    if (this.#reserved?.node === node) this.#reserved = null
    this.#lookAgain()
  }

  /** Into the ring where it belongs. */
  #sort(node: Node): void {
    const isOpen = node.isUsable && roomOf(node) > 0
    const ring = freeCores(node) > 0 ? this.#idle : isOpen ? this.#busy : null
    if (node.ring === ring) return
    if (node.ring !== null) (node.ring === this.#idle ? this.#idle : this.#busy).delete(node)
    ring?.add(node)
  }

  #lookAgain(): void {
    for (const shape of this.#stuck) shape.changed = null
    this.#stuck.clear()
  }

  #reserveFor(shape: Shape<T>): Node | null {
    if (this.#reserved?.shape !== shape) {
      this.#changeReservation({ shape, node: this.#largestFree(shape) })
    }
    return this.#reserved?.node ?? null
  }

  #changeReservation(reserved: Reservation<T> | null): void {
    const hadNode = this.#reserved !== null && this.#reserved.node !== null
    this.#reserved = reserved
    if (!hadNode) return
    // The node that was kept free may be used by all again.
    for (const shape of this.#stuck) if (shape !== reserved?.shape) shape.changed = null
    for (const shape of this.#stuck) if (shape.changed === null) this.#stuck.delete(shape)
  }

  #largestFree(shape: Shape<T>): Node | null {
    let best: Node | null = null
    for (const node of this.#nodes.values()) {
      if (!node.isUsable || node.name === shape.avoid || !couldTake(node, shape)) continue
      if (best === null || node.facts.cores - node.cores > best.facts.cores - best.cores)
        best = node
    }
    return best
  }
}

function jobsAt<T>(placed: Map<string, T[]>, { name }: Node): T[] {
  const known = placed.get(name)
  if (known !== undefined) return known
  const added: T[] = []
  placed.set(name, added)
  return added
}

const shapeKey = (request: ResourceRequest): string =>
  JSON.stringify([
    request.cores,
    request.gpus,
    request.memoryMb,
    Object.entries(labelsOf(request)).toSorted(([a], [b]) => (a < b ? -1 : 1)),
  ])

function isBefore(a: PlacedJob, b: PlacedJob): boolean {
  if (a.spec.priority !== b.spec.priority) return a.spec.priority > b.spec.priority
  return a.isRetry === b.isRetry ? a.sequence < b.sequence : a.isRetry
}

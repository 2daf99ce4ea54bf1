/**
 * Decides which node gets which job, by priority, age, resources and what the nodes offer. Pure
 * data: it sends nothing and knows no time.
 */

import { JobQueue, type WaitingJob } from '../../backends/local/job-queue.ts'
import { isDefaultRequest, type ResourceRequest } from '../../tasks/resources.ts'
import type { NodeFacts, Offer } from '../wire/messages.ts'

export interface PlacedJob extends WaitingJob {
  readonly spec: { readonly priority: number; readonly resources: ResourceRequest }
  /** A node that should not get it while there is another: an attempt failed there. */
  readonly avoid: string | null
}

/** What a node has, and what of it this session uses. */
interface Node {
  readonly name: string
  readonly facts: NodeFacts
  offer: Offer
  cores: number
  gpus: number
  memoryMb: number
  /** It gets nothing while it is silent. */
  isUsable: boolean
}

/** Jobs that ask for the same. */
interface Shape<T extends PlacedJob> {
  readonly request: ResourceRequest
  readonly isDefault: boolean
  readonly queue: JobQueue<T>
}

/** The most jobs that one node gets before the next one's turn. */
const largestShare = 256

export class Placement<T extends PlacedJob> {
  readonly #nodes = new Map<string, Node>()
  /** In turn; rebuilt when nodes come and go. */
  #inTurn: Node[] = []
  #next = 0
  readonly #shapes = new Map<string, Shape<T>>()
  #waiting = 0

  /** Jobs that wait for a node. */
  get waiting(): number {
    return this.#waiting
  }

  addNode(name: string, facts: NodeFacts, offer: Offer): void {
    const node = { name, facts, offer, cores: 0, gpus: 0, memoryMb: 0, isUsable: true }
    this.#nodes.set(name, node)
    this.#inTurn = [...this.#nodes.values()]
  }

  /** What was placed there has to be put back, or has ended. */
  removeNode(name: string): void {
    this.#nodes.delete(name)
    this.#inTurn = [...this.#nodes.values()]
  }

  setOffer(name: string, offer: Offer): void {
    const node = this.#nodes.get(name)
    if (node !== undefined) node.offer = offer
  }

  setAhead(name: string, ahead: number): void {
    const node = this.#nodes.get(name)
    if (node !== undefined) node.offer = { ...node.offer, ahead }
  }

  setUsable(name: string, isUsable: boolean): void {
    const node = this.#nodes.get(name)
    if (node !== undefined) node.isUsable = isUsable
  }

  push(job: T): void {
    this.#shapeOf(job.spec.resources).queue.push(job)
    this.#waiting++
  }

  /** Back to where they were: before all that came after them. */
  putBack(jobs: readonly T[]): void {
    for (const job of jobs) this.#shapeOf(job.spec.resources).queue.putBack([job])
    this.#waiting += jobs.length
  }

  /** Forgets a job that waits. */
  remove(job: T): void {
    this.#shapeOf(job.spec.resources).queue.remove(job)
    this.#waiting--
  }

  /** Books a job that runs there already. */
  book(name: string, { spec }: T): void {
    const node = this.#nodes.get(name)
    if (node !== undefined) use(node, spec.resources, 1)
  }

  /** A job that was placed there has ended or is put back. */
  release(name: string, { spec }: T): void {
    const node = this.#nodes.get(name)
    if (node !== undefined) use(node, spec.resources, -1)
  }

  /** Places what can be placed now: the jobs of each node, in order. */
  assign(): Map<string, T[]> {
    const placed = new Map<string, T[]>()
    if (this.#waiting === 0 || this.#inTurn.length === 0) return placed
    /** Shapes for which no node has room now. */
    const stuck = new Set<Shape<T>>()
    /** A node that is kept free for the first job that did not fit: small ones cannot starve it. */
    let reserved: Node | null = null
    for (;;) {
      const shape = this.#firstShape(stuck)
      if (shape === undefined) return placed
      const node = this.#findNode(shape, reserved)
      if (node === null) {
        stuck.add(shape)
        reserved ??= shape.isDefault ? null : this.#largestFree(shape.request)
        continue
      }
      this.#place(shape, node, placed)
    }
  }

  /** Jobs that no node of this cluster could run, whatever else it runs. */
  unplaceable(): T[] {
    const jobs: T[] = []
    for (const { request, queue } of this.#shapes.values()) {
      if (queue.length === 0) continue
      if (this.#inTurn.some(({ facts }) => couldRun(facts, request))) continue
      for (let job = queue.take(); job !== undefined; job = queue.take()) jobs.push(job)
    }
    this.#waiting -= jobs.length
    return jobs
  }

  /** Whether a job waits that no node could run. */
  get hasUnplaceable(): boolean {
    return [...this.#shapes.values()].some(
      ({ request, queue }) =>
        queue.length > 0 && !this.#inTurn.some(({ facts }) => couldRun(facts, request)),
    )
  }

  /** Cores that are idle, while jobs wait elsewhere. */
  get freeCores(): number {
    return this.#inTurn.reduce((sum, node) => sum + freeCores(node), 0)
  }

  /** How many jobs wait at a node, by what it offers. */
  waitingAt(name: string): number {
    const node = this.#nodes.get(name)
    return node === undefined ? 0 : Math.max(0, node.cores - node.offer.cores)
  }

  /** Takes everything that waits. */
  takeAll(): T[] {
    const jobs: T[] = []
    for (const { queue } of this.#shapes.values()) {
      for (let job = queue.take(); job !== undefined; job = queue.take()) jobs.push(job)
    }
    this.#waiting = 0
    return jobs
  }

  #shapeOf(request: ResourceRequest): Shape<T> {
    const isDefault = isDefaultRequest(request)
    const key = isDefault ? '' : shapeKey(request)
    let shape = this.#shapes.get(key)
    if (shape === undefined) {
      shape = { request, isDefault, queue: new JobQueue<T>() }
      this.#shapes.set(key, shape)
    }
    return shape
  }

  /** The shape whose first job is before the first jobs of all others. */
  #firstShape(stuck: ReadonlySet<Shape<T>>): Shape<T> | undefined {
    let first: Shape<T> | undefined
    let head: T | undefined
    for (const shape of this.#shapes.values()) {
      if (shape.queue.length === 0 || stuck.has(shape)) continue
      const candidate = shape.queue.peek()
      if (candidate === undefined || (head !== undefined && !isBefore(candidate, head))) continue
      first = shape
      head = candidate
    }
    return first
  }

  /** The next node in turn where it could begin at once, else where it may wait. */
  #findNode({ request, isDefault, queue }: Shape<T>, reserved: Node | null): Node | null {
    const count = this.#inTurn.length
    const avoid = queue.peek()?.avoid ?? null
    let second: number | null = null
    let avoided: Node | null = null
    for (let step = 0; step < count; step++) {
      const node = this.#inTurn[(this.#next + step) % count]
      if (node === undefined || node === reserved || !node.isUsable) continue
      if (isDefault ? roomOf(node) <= 0 : !fits(node, request)) continue
      if (node.name === avoid) avoided = node
      else if (!isDefault || freeCores(node) > 0) return this.#takeTurn(step)
      else second ??= step
    }
    if (second !== null) return this.#takeTurn(second)
    // Waiting for another node could take for ever; with one node there is no other.
    return count === 1 ? avoided : null
  }

  #takeTurn(step: number): Node | null {
    const at = (this.#next + step) % this.#inTurn.length
    this.#next = (at + 1) % this.#inTurn.length
    return this.#inTurn[at] ?? null
  }

  #place(shape: Shape<T>, node: Node, placed: Map<string, T[]>): void {
    let jobs = placed.get(node.name)
    if (jobs === undefined) placed.set(node.name, (jobs = []))
    const share = Math.ceil(shape.queue.length / this.#inTurn.length)
    const room = freeCores(node) > 0 ? freeCores(node) : roomOf(node)
    const most = shape.isDefault ? Math.min(room, largestShare, share) : 1
    for (let count = 0; count < most; count++) {
      const job = shape.queue.peek()
      if (job === undefined || (count > 0 && job.avoid === node.name)) return
      shape.queue.take()
      this.#waiting--
      use(node, shape.request, 1)
      jobs.push(job)
    }
  }

  #largestFree(request: ResourceRequest): Node | null {
    let best: Node | null = null
    for (const node of this.#inTurn) {
      if (!node.isUsable || !couldRun(node.facts, request)) continue
      if (best === null || node.facts.cores - node.cores > best.facts.cores - best.cores)
        best = node
    }
    return best
  }
}

function use(node: Node, request: ResourceRequest, sign: 1 | -1): void {
  node.cores += sign * request.cores
  node.gpus += sign * request.gpus
  node.memoryMb += sign * request.memoryMb
}

/** Cores of the session's share that are idle. */
const freeCores = ({ offer, cores, isUsable }: Node): number =>
  isUsable ? Math.max(0, offer.cores - cores) : 0

/** How many jobs of one core it takes: those that it runs, and some that wait there. */
const roomOf = ({ offer, cores }: Node): number => offer.cores + offer.ahead - cores

/** Larger requests do not wait there: they would hold back what is behind them. */
function fits(node: Node, request: ResourceRequest): boolean {
  const { offer, facts } = node
  if (!couldRun(facts, request)) return false
  const isFree = node.cores === 0 && offer.cores > 0
  return (
    (node.cores + request.cores <= offer.cores || isFree) &&
    node.gpus + request.gpus <= facts.gpus &&
    node.memoryMb + request.memoryMb <= facts.memoryMb
  )
}

/** Whether a node has what is asked for, when it is idle. */
export function couldRun(facts: NodeFacts, request: ResourceRequest): boolean {
  if (request.cores > facts.cores || request.gpus > facts.gpus) return false
  if (request.memoryMb > facts.memoryMb || request.ranks > 1) return false
  return Object.entries(labelsOf(request)).every(([key, value]) => facts.labels[key] === value)
}

const noLabels: Readonly<Record<string, string>> = Object.freeze({})

const labelsOf = (request: ResourceRequest): Readonly<Record<string, string>> =>
  (request as { labels?: Readonly<Record<string, string>> }).labels ?? noLabels

const shapeKey = (request: ResourceRequest): string =>
  JSON.stringify([
    request.cores,
    request.gpus,
    request.memoryMb,
    Object.entries(labelsOf(request)).toSorted(([a], [b]) => (a < b ? -1 : 1)),
  ])

const isBefore = (a: PlacedJob, b: PlacedJob): boolean =>
  a.spec.priority === b.spec.priority ? a.sequence < b.sequence : a.spec.priority > b.spec.priority

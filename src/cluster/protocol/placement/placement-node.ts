/** The nodes for jobs: their resources, their usage, and the order in which they get jobs. */

import { type Amounts, canRun, fitsInto } from '../../../tasks/resource-fit.ts'
import type { ResourceRequest } from '../../../tasks/resources.ts'
import type { AgentRules, NodeFacts, Offer } from '../../wire/messages.ts'
import type { HeldView } from './held-nodes.ts'

export interface Node {
  readonly name: string
  readonly whole: NodeFacts
  /** The node's resources, without those that services hold. */
  facts: NodeFacts
  readonly rules: AgentRules
  offer: Offer
  cores: number
  gpus: number
  memoryMb: number
  placedJobs: number
  /** Whether the node gets jobs. `false` while it is silent or draining. */
  isUsable: boolean
  /** Whether jobs have ended on the node or were taken back since the node was last examined. */
  hasReleased: boolean
  /** The ring that contains the node at `ringIndex`. Written only by `NodeRing`. */
  ring: NodeRing | null
  ringIndex: number
}

export const newNode = (
  own: Pick<Node, 'name' | 'whole' | 'rules' | 'offer'>,
  held: HeldView,
): Node => ({
  ...own,
  facts: held.without(own.name, own.whole),
  cores: 0,
  gpus: 0,
  memoryMb: 0,
  placedJobs: 0,
  isUsable: true,
  hasReleased: false,
  ring: null,
  ringIndex: -1,
})

/** Nodes that get jobs in turn. Adding and removing a node take constant time. */
export class NodeRing {
  readonly #items: Node[] = []
  #next = 0

  get items(): readonly Node[] {
    return this.#items
  }

  add(node: Node): void {
    node.ring = this
    node.ringIndex = this.#items.push(node) - 1
  }

  delete(node: Node): void {
    const last = this.#items.pop()
    if (last !== undefined && last !== node) {
      this.#items[node.ringIndex] = last
      last.ringIndex = node.ringIndex
    }
    node.ring = null
    node.ringIndex = -1
  }

  next(accepts: (node: Node) => boolean): Node | null {
    const { length } = this.#items
    for (let step = 0; step < length; step++) {
      const at = (this.#next + step) % length
      const node = this.#items[at]
      if (node === undefined || !accepts(node)) continue
      this.#next = at + 1
      return node
    }
    return null
  }
}

/** Nodes on which jobs have ended or were taken back. Each of them is returned once. */
export class ReleasedNodes {
  readonly #nodes: Node[] = []

  add(node: Node): void {
    if (node.hasReleased) return
    node.hasReleased = true
    this.#nodes.push(node)
  }

  takeAll(): readonly Node[] {
    const nodes = this.#nodes.splice(0)
    for (const node of nodes) node.hasReleased = false
    return nodes
  }
}

/** Returns the list of jobs that are placed on a node. Creates the list if necessary. */
export function getPlacedJobs<T>(placed: Map<string, T[]>, { name }: Node): T[] {
  const known = placed.get(name)
  if (known !== undefined) return known
  const added: T[] = []
  placed.set(name, added)
  return added
}

export function changeUsage(node: Node, request: ResourceRequest, sign: 1 | -1): void {
  node.cores += sign * request.cores
  node.gpus += sign * request.gpus
  node.memoryMb += sign * request.memoryMb
  if (sign === 1) node.placedJobs++
}

/** Whether the node accepts any task. Such a node can run jobs that wait at other nodes. */
export const isUnrestricted = ({ rules }: Node): boolean =>
  rules.only === null && rules.allow === null

export const freeCores = ({ offer, cores, isUsable }: Node): number =>
  isUsable ? Math.max(0, offer.cores - cores) : 0

/** Returns how many more one-core jobs the node takes, including those that would wait there. */
export const countQueueRoom = ({ offer, cores, isUsable }: Node): number =>
  isUsable ? offer.cores + offer.ahead - cores : 0

/** With fewer nodes than this, each message contains many jobs anyway. */
const manyNodes = 8

/**
 * The minimum room in a node's queue for the node to get jobs. With many nodes, it is half of the
 * queue.
 */
export const minQueueRoom = ({ offer }: Node, nodes: number): number =>
  nodes < manyNodes ? 1 : Math.max(1, offer.ahead >> 1)

export interface Exclusion {
  /** Identifies the set of agents. Equal sets have the same key. */
  readonly key: string
  readonly agents: ReadonlySet<string>
}

/** What all jobs of a shape require of a node. */
export interface JobRequirements {
  readonly request: ResourceRequest
  readonly kind: 'functions' | 'programs'
  readonly exclusion: Exclusion | null
  readonly node: string | null
  readonly isDefault: boolean
}

const allows = ({ name, rules }: Node, { kind, exclusion, node }: JobRequirements): boolean =>
  (rules.only === null || rules.only === kind) &&
  exclusion?.agents.has(name) !== true &&
  (node === null || node === name)

/** Whether the node could run such a job if it were idle. */
export const couldRunJob = (node: Node, wanted: JobRequirements): boolean =>
  canRun(node.facts, wanted.request) && allows(node, wanted)

/** Whether the node has room for one more such job now. */
export const hasRoom = (node: Node, wanted: JobRequirements): boolean =>
  node.isUsable &&
  (wanted.isDefault ? countQueueRoom(node) > 0 : fits(node, wanted.request)) &&
  allows(node, wanted)

/** Only jobs with default resources wait at a node: a larger one would block the jobs behind it. */
const fits = (node: Node, request: ResourceRequest): boolean =>
  canRun(node.facts, request) && fitsInto(freeAmounts(node), request)

/** On an idle node, a session may use all resources, even beyond its share. */
export function freeAmounts({ facts, offer, cores, gpus, memoryMb }: Node): Amounts {
  const isIdle = cores === 0 && offer.cores > 0
  return {
    cores: isIdle ? facts.cores : offer.cores - cores,
    gpus: facts.gpus - gpus,
    memoryMb: facts.memoryMb - memoryMb,
  }
}

/** A node as placement sees it: resources, usage, and the order in which nodes get jobs. */

import { type Amounts, couldRun, fitsInto } from '../../../tasks/resource-fit.ts'
import type { ResourceRequest } from '../../../tasks/resources.ts'
import type { AgentRules, NodeFacts, Offer } from '../../wire/messages.ts'
import type { HeldView } from './held-nodes.ts'

/** The resources of a node, and how much of them this session uses. */
export interface Node {
  readonly name: string
  readonly whole: NodeFacts
  /** The resources without those that services hold. */
  facts: NodeFacts
  readonly rules: AgentRules
  offer: Offer
  cores: number
  gpus: number
  memoryMb: number
  /** The number of jobs that were placed on the node so far. */
  taken: number
  /** `false` while the node is silent or draining. It gets no jobs then. */
  isUsable: boolean
  /** Whether jobs have left the node since it was last examined. */
  hasReleased: boolean
  /** The ring that contains the node, and its index there. Written only by `NodeRing`. */
  ring: NodeRing | null
  ringIndex: number
}

/** Creates a node without usage. */
export const newNode = (
  own: Pick<Node, 'name' | 'whole' | 'rules' | 'offer'>,
  held: HeldView,
): Node => ({
  ...own,
  facts: held.without(own.name, own.whole),
  cores: 0,
  gpus: 0,
  memoryMb: 0,
  taken: 0,
  isUsable: true,
  hasReleased: false,
  ring: null,
  ringIndex: -1,
})

/** Nodes that get jobs in turn. Adding and removing take constant time. */
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

  /** Returns the next node in turn that is accepted. */
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

/** Nodes that jobs have left. Each is examined once, regardless of how many jobs left it. */
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

/** The list of jobs that are placed on a node; created if necessary. */
export function jobsAt<T>(placed: Map<string, T[]>, { name }: Node): T[] {
  const known = placed.get(name)
  if (known !== undefined) return known
  const added: T[] = []
  placed.set(name, added)
  return added
}

export function use(node: Node, request: ResourceRequest, sign: 1 | -1): void {
  node.cores += sign * request.cores
  node.gpus += sign * request.gpus
  node.memoryMb += sign * request.memoryMb
  if (sign === 1) node.taken++
}

/** Whether the node accepts any task, so that it could run jobs that wait elsewhere. */
export const isUnrestricted = ({ rules }: Node): boolean =>
  rules.only === null && rules.allow === null

/** Idle cores of the session's share. */
export const freeCores = ({ offer, cores, isUsable }: Node): number =>
  isUsable ? Math.max(0, offer.cores - cores) : 0

/** The number of further one-core jobs that the node takes, including some that wait there. */
export const roomOf = ({ offer, cores, isUsable }: Node): number =>
  isUsable ? offer.cores + offer.ahead - cores : 0

/** With fewer nodes, messages contain many jobs anyway. */
const manyNodes = 8

/**
 * With many nodes, a busy node gets more jobs only when half of its queue has begun, because a
 * message costs as much as several jobs.
 */
export const minRoomOf = ({ offer }: Node, nodes: number): number =>
  nodes < manyNodes ? 1 : Math.max(1, offer.ahead >> 1)

/** Agents that do not allow a task. */
export interface Exclusion {
  /** Equal for equal sets of agents. */
  readonly key: string
  readonly agents: ReadonlySet<string>
}

/** The common request of jobs that are placed alike. */
export interface Wanted {
  readonly request: ResourceRequest
  readonly kind: 'functions' | 'programs'
  readonly excluded: Exclusion | null
  /** The only node that may get the jobs; `null` for any. */
  readonly node: string | null
  readonly isDefault: boolean
}

/** Whether the node's agent allows the tasks, as far as known. */
const allows = ({ name, rules }: Node, { kind, excluded, node }: Wanted): boolean =>
  (rules.only === null || rules.only === kind) &&
  excluded?.agents.has(name) !== true &&
  (node === null || node === name)

/** Whether the node could take such a job if it were idle. */
export const couldTake = (node: Node, wanted: Wanted): boolean =>
  couldRun(node.facts, wanted.request) && allows(node, wanted)

/** Whether a node takes one more such job now. */
export const hasRoom = (node: Node, wanted: Wanted): boolean =>
  node.isUsable &&
  (wanted.isDefault ? roomOf(node) > 0 : fits(node, wanted.request)) &&
  allows(node, wanted)

/** Larger requests are not sent ahead, because they would block the jobs behind them. */
const fits = (node: Node, request: ResourceRequest): boolean =>
  couldRun(node.facts, request) && fitsInto(freeIn(node), request)

/**
 * The resources that jobs may use now. An idle node may be used completely, regardless of the
 * session's share.
 */
export function freeIn({ facts, offer, cores, gpus, memoryMb }: Node): Amounts {
  const isIdle = cores === 0 && offer.cores > 0
  return {
    cores: isIdle ? facts.cores : offer.cores - cores,
    gpus: facts.gpus - gpus,
    memoryMb: facts.memoryMb - memoryMb,
  }
}

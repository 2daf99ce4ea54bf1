/** A node as placement sees it: what it has, what of it is used, and whose turn it is. */

import type { ResourceRequest } from '../../../tasks/resources.ts'
import type { AgentRules, NodeFacts, Offer } from '../../wire/messages.ts'
import { labelsOf } from '../../wire/resource-words.ts'
import type { HeldView } from './held-nodes.ts'

/** What a node has, and what of it this session uses. */
export interface Node {
  readonly name: string
  /** All of it. */
  readonly whole: NodeFacts
  /** Without what services hold. */
  facts: NodeFacts
  readonly rules: AgentRules
  offer: Offer
  cores: number
  gpus: number
  memoryMb: number
  /** How many jobs it has got so far. */
  taken: number
  /** It gets nothing while it is silent. */
  isUsable: boolean
  /** Jobs have left it since it was looked at. */
  hasReleased: boolean
  /** Written by rings alone: the one that has it, and its place there. */
  ring: NodeRing | null
  ringIndex: number
}

/** Nothing of it is used yet. */
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

/** Nodes that take their turns; each comes and goes at the same cost, however many there are. */
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

  /** The next one in turn that is accepted. */
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

/** Nodes that jobs have left: each is looked at once, however many have. */
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

/** The jobs of a node among those that are placed. */
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

/** Whether it takes any task: what waits elsewhere could begin there. */
export const isUnrestricted = ({ rules }: Node): boolean =>
  rules.only === null && rules.allow === null

/** Cores of the session's share that are idle. */
export const freeCores = ({ offer, cores, isUsable }: Node): number =>
  isUsable ? Math.max(0, offer.cores - cores) : 0

/** How many jobs of one core it takes: those that it runs, and some that wait there. */
export const roomOf = ({ offer, cores }: Node): number => offer.cores + offer.ahead - cores

/** With fewer nodes messages are large by themselves. */
const manyNodes = 8

/**
 * Of many nodes, one where jobs wait gets more when half of what may wait there is gone: each
 * message costs as much as several jobs.
 */
export const leastRoomOf = ({ offer }: Node, nodes: number): number =>
  nodes < manyNodes ? 1 : Math.max(1, offer.ahead >> 1)

/** Agents that do not allow a task. */
export interface Exclusion {
  /** The same for the same agents. */
  readonly key: string
  readonly agents: ReadonlySet<string>
}

/** What jobs ask for that are placed alike. */
export interface Wanted {
  readonly request: ResourceRequest
  readonly kind: 'functions' | 'programs'
  readonly excluded: Exclusion | null
  /** The only node that may get them; `null` for any. */
  readonly node: string | null
  readonly isDefault: boolean
}

/** Whether the node's agent allows the tasks, as far as that is known. */
const allows = ({ name, rules }: Node, { kind, excluded, node }: Wanted): boolean =>
  (rules.only === null || rules.only === kind) &&
  excluded?.agents.has(name) !== true &&
  (node === null || node === name)

/** Whether a node could take a job of this kind, when it is idle. */
export const couldTake = (node: Node, wanted: Wanted): boolean =>
  couldRun(node.facts, wanted.request) && allows(node, wanted)

/** Whether a node takes one more job of this kind now. */
export const hasRoom = (node: Node, wanted: Wanted): boolean =>
  node.isUsable &&
  (wanted.isDefault ? roomOf(node) > 0 : fits(node, wanted.request)) &&
  allows(node, wanted)

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

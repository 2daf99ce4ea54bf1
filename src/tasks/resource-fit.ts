/** Decides whether requests fit into the resources of a node, and names what is missing. Pure. */

import type { ResourceRequest } from './resources.ts'

/** Amounts of resources that a node has, that are free on it, or that a request asks for. */
export type Amounts = Pick<ResourceRequest, 'cores' | 'gpus' | 'memoryMb'>

type Labels = Readonly<Record<string, string>>

export interface NodeResources extends Amounts {
  readonly labels?: Labels
}

/** How many times the requested amount fits into the free amount; `Infinity` for a request of 0. */
export const countFits = (free: number, requested: number): number =>
  requested === 0 ? Infinity : Math.max(0, Math.floor(free / requested))

/** How many of these requests fit into the free amounts at the same time. */
export const maxRequests = (free: Amounts, requested: Amounts): number =>
  Math.min(
    countFits(free.cores, requested.cores),
    countFits(free.gpus, requested.gpus),
    countFits(free.memoryMb, requested.memoryMb),
  )

export const fitsInto = (free: Amounts, requested: Amounts): boolean =>
  requested.cores <= free.cores &&
  requested.gpus <= free.gpus &&
  requested.memoryMb <= free.memoryMb

export function hasLabels(
  { labels: own = noLabels }: { readonly labels?: Labels },
  { labels: requested }: { readonly labels?: Labels },
): boolean {
  if (requested === undefined) return true
  return Object.entries(requested).every(([name, value]) => own[name] === value)
}

const noLabels: Labels = Object.freeze({})

/** Whether an idle node could run the request. Always `false` for requests of several ranks. */
export const canRun = (node: NodeResources, request: ResourceRequest): boolean =>
  request.ranks === 1 && fitsInto(node, request) && hasLabels(node, request)

/**
 * How many ranks an idle node can run. If `ranksPerNode` is given, the result is that number or 0.
 */
export function maxRanks(node: NodeResources, request: ResourceRequest): number {
  if (!hasLabels(node, request)) return 0
  const room = maxRequests(node, request)
  const { ranksPerNode = room } = request
  return room >= ranksPerNode ? ranksPerNode : 0
}

/** Returns the first resource of which the node has too little; `null` if it has enough of each. */
export function findShortage(node: Amounts, requested: Amounts): keyof Amounts | null {
  if (requested.cores > node.cores) return 'cores'
  if (requested.gpus > node.gpus) return 'gpus'
  return requested.memoryMb > node.memoryMb ? 'memoryMb' : null
}

/** Describes why the node cannot run the request, such as `has 2 cores`; `null` if it can. */
export function missingResource(node: NodeResources, request: ResourceRequest): string | null {
  const lack = findShortage(node, request)
  if (lack !== null) return `has ${describeAmount(lack, node[lack])}`
  const missing = Object.entries(request.labels ?? noLabels).find(
    ([name, value]) => node.labels?.[name] !== value,
  )
  return missing === undefined ? null : `does not have the label ${missing.join('=')}`
}

/** Returns text such as `2 cores` or `4000 MB of memory`. */
export function describeAmount(kind: keyof Amounts, amount: number): string {
  if (kind === 'memoryMb') return `${amount} MB of memory`
  return `${amount} ${kind === 'gpus' ? 'GPU' : 'core'}${amount === 1 ? '' : 's'}`
}

/** Returns text such as `4 cores, 1 GPU and the label disk=ssd`. */
export function describeRequest({ cores, gpus, memoryMb, labels }: ResourceRequest): string {
  return joinList([
    describeAmount('cores', cores),
    ...(gpus > 0 ? [describeAmount('gpus', gpus)] : []),
    ...(memoryMb > 0 ? [describeAmount('memoryMb', memoryMb)] : []),
    ...describeLabels(labels),
  ])
}

/** Returns text such as `4 cores, 0 GPUs and 4000 MB of memory`. */
export const describeNode = ({ cores, gpus, memoryMb, labels }: NodeResources): string =>
  joinList([
    describeAmount('cores', cores),
    describeAmount('gpus', gpus),
    describeAmount('memoryMb', memoryMb),
    ...describeLabels(labels),
  ])

function describeLabels(labels: Labels = noLabels): string[] {
  const texts = Object.entries(labels).map((pair) => pair.join('='))
  if (texts.length === 0) return []
  return [`the label${texts.length === 1 ? '' : 's'} ${texts.join(', ')}`]
}

const joinList = (parts: readonly string[]): string =>
  parts.length < 2 ? parts.join('') : `${parts.slice(0, -1).join(', ')} and ${parts.at(-1)}`

/**
 * Returns the error message for a request that no agent can run: neither a present agent nor a new
 * one as large as `largestNode`.
 */
export function describeShortage(
  request: ResourceRequest,
  agents: readonly { readonly name: string; readonly facts: NodeResources }[],
  largestNode: NodeResources | 'none' | null,
): string {
  const gpusOf = ({ facts }: { readonly facts: NodeResources }): number =>
    Math.min(facts.gpus, request.gpus)
  const [largest] = agents.toSorted(
    (a, b) =>
      gpusOf(b) - gpusOf(a) ||
      b.facts.cores - a.facts.cores ||
      b.facts.gpus - a.facts.gpus ||
      b.facts.memoryMb - a.facts.memoryMb,
  )
  const text = `no agent has ${describeRequest(request)}`
  const largestText =
    largest && `the largest of them, "${largest.name}", has ${describeNode(largest.facts)}`
  const hint =
    largestNode === null
      ? 'if a larger one may come later, describe it in `largestNode` of the backend'
      : largestNode === 'none'
        ? undefined
        : `\`largestNode\` of the backend has ${describeNode(largestNode)}`
  return [text, largestText, hint].filter((part) => part !== undefined).join('; ')
}

/** Describes requested and available resources in words. */

import type { ResourceRequest } from '../../tasks/resources.ts'
import type { Announcement, NodeFacts } from './messages.ts'

const noLabels: Readonly<Record<string, string>> = Object.freeze({})

export const labelsOf = (request: ResourceRequest): Readonly<Record<string, string>> =>
  (request as { labels?: Readonly<Record<string, string>> }).labels ?? noLabels

/** A number with its unit, such as "2 cores". */
export const countUnits = (number: number, unit: string): string =>
  `${number} ${unit}${number === 1 ? '' : 's'}`

const describeLabels = (labels: Readonly<Record<string, string>>): string[] => {
  const texts = Object.entries(labels).map(([key, value]) => `${key}=${value}`)
  if (texts.length === 0) return []
  return [`the label${texts.length === 1 ? '' : 's'} ${texts.join(', ')}`]
}

const joinWords = (parts: readonly string[]): string =>
  parts.length < 2 ? parts.join('') : `${parts.slice(0, -1).join(', ')} and ${parts.at(-1)}`

/** For example `4 cores, 1 GPU and the label disk=ssd`. */
export function describeRequest(request: ResourceRequest): string {
  const { cores, gpus, memoryMb } = request
  return joinWords([
    countUnits(cores, 'core'),
    ...(gpus > 0 ? [countUnits(gpus, 'GPU')] : []),
    ...(memoryMb > 0 ? [`${memoryMb} MB of memory`] : []),
    ...describeLabels(labelsOf(request)),
  ])
}

/** For example `4 cores, 0 GPUs and 4000 MB of memory`. */
export const describeNode = ({ cores, gpus, memoryMb, labels }: NodeFacts): string =>
  joinWords([
    countUnits(cores, 'core'),
    countUnits(gpus, 'GPU'),
    `${memoryMb} MB of memory`,
    ...describeLabels(labels),
  ])

/** Says that no agent, present or described by `largestNode`, has the requested resources. */
export function describeLack(
  request: ResourceRequest,
  agents: readonly Pick<Announcement, 'name' | 'facts'>[],
  largestNode: NodeFacts | 'none' | null,
): string {
  const gpusOf = ({ facts }: Pick<Announcement, 'facts'>): number =>
    Math.min(facts.gpus, request.gpus)
  const [largest] = agents.toSorted(
    (a, b) =>
      gpusOf(b) - gpusOf(a) ||
      b.facts.cores - a.facts.cores ||
      b.facts.gpus - a.facts.gpus ||
      b.facts.memoryMb - a.facts.memoryMb,
  )
  const text = `no agent has ${describeRequest(request)}`
  const there =
    largest && `the largest of them, "${largest.name}", has ${describeNode(largest.facts)}`
  const hint =
    largestNode === null
      ? 'if a larger one may come later, describe it in `largestNode` of the backend'
      : largestNode === 'none'
        ? undefined
        : `\`largestNode\` of the backend has ${describeNode(largestNode)}`
  return [text, there, hint].filter((part) => part !== undefined).join('; ')
}

/** The first resource that the node lacks for the request; `null` if it lacks none. */
export function missingResource(facts: NodeFacts, request: ResourceRequest): string | null {
  if (request.cores > facts.cores) return `has ${countUnits(facts.cores, 'core')}`
  if (request.gpus > facts.gpus) return `has ${countUnits(facts.gpus, 'GPU')}`
  if (request.memoryMb > facts.memoryMb) return `has ${facts.memoryMb} MB of memory`
  for (const [name, value] of Object.entries(labelsOf(request))) {
    if (facts.labels[name] !== value) return `does not have the label ${name}=${value}`
  }
  return null
}

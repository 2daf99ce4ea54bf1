/** Checks whether the nodes of an allocation have room for another service. Pure. */

import type { HeldAmounts } from '../../cluster/driver/placement/held-nodes.ts'
import { ValueError } from '../../foundation/errors.ts'
import type { ServerRequest } from '../../runtime/server/node-servers.ts'

/** A node, and what other services hold on it. */
export interface ClaimedNode {
  readonly name: string
  readonly cores: number
  readonly gpus: number
  readonly held: readonly HeldAmounts[]
}

/** Throws a `ValueError` that names the field, the node and the conflicting services. */
export function expectRoomFor(request: ServerRequest, nodes: readonly ClaimedNode[]): void {
  const { service, nodeOffset, nodes: wanted } = request
  expectInside(request, nodes)
  for (const [at, { cores, gpus }] of wanted.entries()) {
    const number = nodeOffset + at
    const node = nodes[number]
    if (node === undefined) continue
    const gpuProblem = lackOf(node, 'gpus', gpus, 0)
    if (gpuProblem !== null) {
      const text = `node ${number} (${node.name}) has ${gpuProblem}`
      throw new ValueError(`hardware.num_gpus: ${text}; service "${service}" needs ${gpus} there`, {
        field: 'hardware.num_gpus',
        got: gpus,
        hint: 'Use other nodes by hardware.node_offset, or fewer GPUs by hardware.num_gpus.',
      })
    }
    // One core is left: otherwise tasks of one core would be sent there and never begin.
    const coreProblem = lackOf(node, 'cores', cores, 1)
    if (coreProblem !== null) {
      const text = `node ${number} (${node.name}) has ${coreProblem}, and one stays for tasks`
      throw new ValueError(`engine.cores: ${text}; service "${service}" needs ${cores} there`, {
        field: 'engine.cores',
        got: cores,
        hint: 'Use other nodes by hardware.node_offset, or fewer cores for each server.',
      })
    }
  }
}

function expectInside(
  { service, nodeOffset, nodes: wanted }: ServerRequest,
  nodes: readonly ClaimedNode[],
): void {
  const last = nodes.length - 1
  if (nodeOffset + wanted.length <= nodes.length) return
  if (nodes.length === 0) {
    const text = 'there are none: servers run on nodes of the launch, and of no other allocation'
    throw new ValueError(`hardware.node_offset: service "${service}" needs nodes; ${text}`, {
      field: 'hardware.node_offset',
      got: nodeOffset,
      hint: 'Ask for them: tutti launch --nodes N.',
    })
  }
  const isBehind = nodeOffset > last
  const field = isBehind ? 'hardware.node_offset' : 'hardware.num_nodes'
  const end = nodeOffset + wanted.length - 1
  const asked = end === nodeOffset ? `node ${end}` : `the nodes ${nodeOffset} to ${end}`
  const names =
    last === 0 ? `node 0 (${nodes[0]?.name})` : `the nodes 0 to ${last} (${namesOf(nodes)})`
  throw new ValueError(`${field}: service "${service}" needs ${asked}; there are ${names}`, {
    field,
    expected: isBehind ? `at most ${last}` : `at most ${nodes.length - nodeOffset}`,
    got: isBehind ? nodeOffset : wanted.length,
  })
}

const namesOf = (nodes: readonly ClaimedNode[]): string =>
  `${nodes[0]?.name} to ${nodes.at(-1)?.name}`

/** Describes what the node has if it is not enough; otherwise `null`. */
function lackOf(
  { held, ...have }: ClaimedNode,
  kind: 'cores' | 'gpus',
  wanted: number,
  spared: number,
): string | null {
  if (wanted === 0) return null
  const holders = held.filter((one) => one[kind] > 0)
  const taken = holders.reduce((sum, one) => sum + one[kind], 0)
  if (taken + wanted + spared <= have[kind]) return null
  const unit = kind === 'gpus' ? 'GPU' : 'core'
  const total = `${have[kind]} ${unit}${have[kind] === 1 ? '' : 's'}`
  const others = holders.map((one) => `service "${one.service}" holds ${one[kind]}`)
  return others.length === 0 ? total : `${total}, of which ${others.join(' and ')}`
}

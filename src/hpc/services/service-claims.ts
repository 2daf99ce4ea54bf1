/** Checks whether the nodes of an allocation have room for another service. Pure. */

import type { HeldAmounts } from '../../cluster/driver/placement/held-nodes.ts'
import { ValueError } from '../../foundation/errors.ts'
import type { ServerRequest } from '../../runtime/server/node-servers.ts'
import { describeAmount, countFits } from '../../tasks/resource-fit.ts'

/** A node and the resources that services hold on it. */
export interface ClaimedNode {
  readonly name: string
  readonly cores: number
  readonly gpus: number
  readonly held: readonly HeldAmounts[]
}

/** Throws a `ValueError` that names the field, the node and the conflicting services. */
export function expectRoomFor(request: ServerRequest, nodes: readonly ClaimedNode[]): void {
  expectNodesExist(request, nodes)
  for (const [at, wanted] of request.nodes.entries()) {
    const number = request.nodeOffset + at
    const node = nodes[number]
    if (node === undefined) continue
    for (const rule of rules) {
      const lack = describeLack(node, wanted[rule.kind], rule)
      if (lack === null) continue
      const text = `node ${number} (${node.name}) has ${lack}`
      const needs = `service "${request.service}" needs ${wanted[rule.kind]} there`
      throw new ValueError(`${rule.field}: ${text}; ${needs}`, {
        field: rule.field,
        got: wanted[rule.kind],
        hint: `Use other nodes by hardware.node_offset, or fewer ${rule.advice}.`,
      })
    }
  }
}

const rules = [
  {
    kind: 'gpus',
    field: 'hardware.num_gpus',
    reservedForTasks: 0,
    advice: 'GPUs by hardware.num_gpus',
  },
  // Leaves one core, because one-core tasks would otherwise be sent to the node and never start.
  { kind: 'cores', field: 'engine.cores', reservedForTasks: 1, advice: 'cores for each server' },
] as const

function expectNodesExist(
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
  const isBeyondLast = nodeOffset > last
  const field = isBeyondLast ? 'hardware.node_offset' : 'hardware.num_nodes'
  const end = nodeOffset + wanted.length - 1
  const requested = end === nodeOffset ? `node ${end}` : `the nodes ${nodeOffset} to ${end}`
  const names =
    last === 0 ? `node 0 (${nodes[0]?.name})` : `the nodes 0 to ${last} (${joinNames(nodes)})`
  throw new ValueError(`${field}: service "${service}" needs ${requested}; there are ${names}`, {
    field,
    expected: isBeyondLast ? `at most ${last}` : `at most ${nodes.length - nodeOffset}`,
    got: isBeyondLast ? nodeOffset : wanted.length,
  })
}

const joinNames = (nodes: readonly ClaimedNode[]): string =>
  `${nodes[0]?.name} to ${nodes.at(-1)?.name}`

function describeLack(
  { held, ...have }: ClaimedNode,
  wanted: number,
  { kind, reservedForTasks }: (typeof rules)[number],
): string | null {
  const holders = held.filter((one) => one[kind] > 0)
  const free = holders.reduce((left, one) => left - one[kind], have[kind] - reservedForTasks)
  if (countFits(free, wanted) > 0) return null
  const others = holders.map((one) => `service "${one.service}" holds ${one[kind]}`)
  const whole = describeAmount(kind, have[kind])
  const parts = others.length === 0 ? whole : `${whole}, of which ${others.join(' and ')}`
  return reservedForTasks === 0 ? parts : `${parts}, and one stays for tasks`
}

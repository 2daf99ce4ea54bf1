/** What waits and cannot be placed on any node that is there. Pure. */

import { couldHold } from './job-group.ts'
import { couldRun, type Node } from './placement-node.ts'
import type { PlacedJob, Shape } from './shapes.ts'

/** The part of a placement that is asked. */
export interface PlacementState {
  readonly nodes: readonly Node[]
  readonly shapes: readonly Omit<Shape<PlacedJob>, 'queue'>[]
}

/**
 * Names of what is asked for by jobs that no node of this cluster could run, whatever else it runs;
 * with the nodes that have what it takes, but do not allow it.
 */
export function findUnplaceable({ nodes, shapes }: PlacementState): Map<string, string[]> {
  const found = new Map<string, string[]>()
  for (const shape of shapes) {
    if (couldHold(nodes, shape)) continue
    // Other nodes do not refuse what is for one of them alone.
    const asked = shape.node === null ? nodes : nodes.filter(({ name }) => name === shape.node)
    const refusing = asked.filter(({ facts }) => couldRun(facts, shape.request))
    found.set(
      shape.key,
      refusing.map(({ name }) => name),
    )
  }
  return found
}

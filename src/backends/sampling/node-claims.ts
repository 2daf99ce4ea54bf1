/** Which backend's samples of a node count, where several backends have it. Pure data. */

import type { SampledNode } from '../backend.ts'

/** A backend's node. */
export interface NodeClaim {
  readonly backend: string
  readonly node: SampledNode
}

/**
 * A node belongs to the backend with the highest `samplingPriority`, and among equals to the one
 * that the session has had for longest.
 */
export class NodeClaims {
  /** In the session's order. */
  readonly #backends: string[] = []
  readonly #claims = new Map<string, NodeClaim[]>()

  /** Whether no backend has a node. */
  get isEmpty(): boolean {
    return this.#claims.size === 0
  }

  /** Call in the session's order, also for backends without nodes. */
  addBackend(backend: string): void {
    if (!this.#backends.includes(backend)) this.#backends.push(backend)
  }

  /** False when the backend had the node before: nothing changes then. */
  add(claim: NodeClaim): boolean {
    const { nodeId } = claim.node
    const claims = this.#claims.get(nodeId) ?? []
    if (claims.some(({ backend }) => backend === claim.backend)) return false
    this.addBackend(claim.backend)
    const sorted = [...claims, claim].toSorted(
      (a, b) =>
        priorityOf(b) - priorityOf(a) ||
        this.#backends.indexOf(a.backend) - this.#backends.indexOf(b.backend),
    )
    this.#claims.set(nodeId, sorted)
    return true
  }

  /** False when the backend did not have the node. */
  remove(backend: string, nodeId: string): boolean {
    const claims = this.#claims.get(nodeId) ?? []
    const left = claims.filter((claim) => claim.backend !== backend)
    if (left.length > 0) this.#claims.set(nodeId, left)
    else this.#claims.delete(nodeId)
    return left.length < claims.length
  }

  /** The claim whose samples are recorded. */
  ownerOf(nodeId: string): NodeClaim | undefined {
    return this.#claims.get(nodeId)?.[0]
  }
}

const priorityOf = ({ node }: NodeClaim): number => node.samplingPriority ?? 0

/** Decides which backend's samples of a node are recorded if several backends have the node. */

import type { SampledNode } from '../backend.ts'

/** A node, and a backend that has it. */
export interface NodeClaim {
  readonly backend: string
  readonly node: SampledNode
}

/**
 * A node belongs to the backend with the highest `samplingPriority`; of equal ones, to the backend
 * that the session has had for the longest time.
 */
export class NodeClaims {
  /** Names of backends in the session's order. */
  readonly #backends: string[] = []
  readonly #claims = new Map<string, NodeClaim[]>()

  /** Whether no backend has a node. */
  get isEmpty(): boolean {
    return this.#claims.size === 0
  }

  /** Must be called in the session's order, also for backends without nodes. */
  addBackend(backend: string): void {
    if (!this.#backends.includes(backend)) this.#backends.push(backend)
  }

  /** `false` if the backend already had the node; nothing changes then. */
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

  /** `false` if the backend did not have the node. */
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

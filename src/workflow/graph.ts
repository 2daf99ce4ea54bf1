/** Tracks which tasks wait for which others. Contains only tasks that have not ended. */

/** A node that can never become ready, and the dependency that prevents it. */
export interface FailedDependent<N> {
  readonly node: N
  readonly via: N
}

interface Waiting<N> {
  /** How many of `needs` have not ended. */
  left: number
  readonly needs: readonly N[]
}

/** Only the graph writes these fields. They are on the node to avoid a lookup table. */
export interface GraphNode<N> {
  /** The dependencies that the node waits for; `null` if it does not wait. */
  waiting: Waiting<N> | null
  /** Nodes that wait for this node. Nodes that no longer wait may remain and are skipped. */
  dependents: N[] | null
}

const none: readonly never[] = Object.freeze([])

/** The algorithms are iterative, because a chain can be longer than the call stack. */
export class Graph<N extends GraphNode<N>> {
  #size = 0

  /** The number of nodes that wait. */
  get size(): number {
    return this.#size
  }

  /**
   * Makes a node wait for others, each listed once and not ended. A node that has become ready can
   * be added again.
   */
  add(node: N, needs: readonly N[]): void {
    node.waiting = { left: needs.length, needs }
    this.#size++
    for (const needed of needs) {
      if (needed.dependents === null) needed.dependents = [node]
      else needed.dependents.push(node)
    }
  }

  /** Called when a node has succeeded. Returns the nodes that became ready, in order of `add`. */
  end(node: N): readonly N[] {
    if (node.dependents === null) return none
    const ready: N[] = []
    for (const dependent of takeDependents(node)) {
      const { waiting } = dependent
      if (waiting === null) continue
      waiting.left--
      if (waiting.left === 0 && this.#stopWaiting(dependent)) ready.push(dependent)
    }
    return ready
  }

  /** Called when a node did not succeed. Removes and returns its direct and indirect dependents. */
  failDependents(node: N): FailedDependent<N>[] {
    this.#stopWaiting(node)
    const failed: FailedDependent<N>[] = []
    for (let via: N | undefined = node, at = 0; via !== undefined; via = failed[at++]?.node) {
      for (const dependent of takeDependents(via)) {
        if (this.#stopWaiting(dependent)) failed.push({ node: dependent, via })
      }
    }
    return failed
  }

  /** A path of dependencies from `from` to `to`, both included; `null` when there is none. */
  path(from: N, to: N): N[] | null {
    const cameFrom = new Map<N, N | null>([[from, null]])
    const open: N[] = [from]
    for (let node = open.pop(); node !== undefined; node = open.pop()) {
      if (node === to) return pathTo(node, cameFrom)
      for (const next of node.waiting?.needs ?? none) {
        if (cameFrom.has(next)) continue
        cameFrom.set(next, node)
        open.push(next)
      }
    }
    return null
  }

  /** Returns `false` if the node did not wait. */
  #stopWaiting(node: N): boolean {
    if (node.waiting === null) return false
    node.waiting = null
    this.#size--
    return true
  }
}

function takeDependents<N extends GraphNode<N>>(node: N): readonly N[] {
  const { dependents } = node
  node.dependents = null
  return dependents ?? none
}

function pathTo<N>(end: N, cameFrom: ReadonlyMap<N, N | null>): N[] {
  const path: N[] = []
  for (let node: N | null = end; node !== null; node = cameFrom.get(node) ?? null) path.push(node)
  return path.toReversed()
}

/** Tracks which tasks wait for which other tasks. Contains only tasks that have not ended. */

/** A node that can never become ready, and the dependency that prevents it. */
export interface FailedDependent<N> {
  readonly node: N
  readonly dependency: N
}

interface WaitState<N> {
  openCount: number
  readonly dependencies: readonly N[]
}

/** Only the graph writes these fields. They are on the node to avoid a lookup table. */
export interface GraphNode<N> {
  waiting: WaitState<N> | null
  /** Nodes that wait for this node. Nodes that no longer wait may remain and are skipped. */
  dependents: N[] | null
}

const emptyList: readonly never[] = Object.freeze([])

/** The algorithms are iterative, because a chain can be longer than the call stack. */
export class Graph<N extends GraphNode<N>> {
  /**
   * Makes a node wait for nodes that have not ended, each listed once. A node that has become ready
   * can be added again.
   */
  add(node: N, dependencies: readonly N[]): void {
    node.waiting = { openCount: dependencies.length, dependencies }
    for (const dependency of dependencies) {
      ;(dependency.dependents ??= []).push(node)
    }
  }

  /**
   * Must be called when a node has succeeded. Returns the nodes that became ready, in order of
   * `add`.
   */
  complete(node: N): readonly N[] {
    if (node.dependents === null) return emptyList
    const ready: N[] = []
    for (const dependent of removeDependents(node)) {
      const { waiting } = dependent
      if (waiting === null) continue
      waiting.openCount--
      if (waiting.openCount === 0 && this.#stopWaiting(dependent)) ready.push(dependent)
    }
    return ready
  }

  /**
   * Must be called when a node did not succeed. Removes and returns its direct and indirect
   * dependents.
   */
  failDependents(node: N): FailedDependent<N>[] {
    this.#stopWaiting(node)
    const failed: FailedDependent<N>[] = []
    for (
      let dependency: N | undefined = node, at = 0;
      dependency !== undefined;
      dependency = failed[at++]?.node
    ) {
      for (const dependent of removeDependents(dependency)) {
        if (this.#stopWaiting(dependent)) failed.push({ node: dependent, dependency })
      }
    }
    return failed
  }

  /** A path of dependencies from `from` to `to`, both included; `null` if there is none. */
  findPath(from: N, to: N): N[] | null {
    const cameFrom = new Map<N, N | null>([[from, null]])
    const open: N[] = [from]
    for (let node = open.pop(); node !== undefined; node = open.pop()) {
      if (node === to) return tracePath(node, cameFrom)
      for (const next of node.waiting?.dependencies ?? emptyList) {
        if (cameFrom.has(next)) continue
        cameFrom.set(next, node)
        open.push(next)
      }
    }
    return null
  }

  #stopWaiting(node: N): boolean {
    if (node.waiting === null) return false
    node.waiting = null
    return true
  }
}

function removeDependents<N extends GraphNode<N>>(node: N): readonly N[] {
  const { dependents } = node
  node.dependents = null
  return dependents ?? emptyList
}

function tracePath<N>(last: N, cameFrom: ReadonlyMap<N, N | null>): N[] {
  const path: N[] = []
  for (let node: N | null = last; node !== null; node = cameFrom.get(node) ?? null) path.push(node)
  return path.toReversed()
}

/** What waits for what. A pure structure: it holds only what has not ended, and runs nothing. */

/** A node that cannot be had any more, and the one that it waited for. */
export interface Doomed<N> {
  readonly node: N
  readonly via: N
}

interface Waiting<N> {
  /** How many of them have not ended. */
  left: number
  readonly needs: readonly N[]
}

/** Both fields are the graph's alone. They lie here so that nothing has to be looked up. */
export interface GraphNode<N> {
  /** What it waits for; `null` when for nothing. */
  waiting: Waiting<N> | null
  /** Those that were doomed stay here until what they waited for has ended. */
  dependents: N[] | null
}

const none: readonly never[] = Object.freeze([])

/** Never recursive: chains may be as long as memory. */
export class Graph<N extends GraphNode<N>> {
  #size = 0

  /** Nodes that wait. */
  get size(): number {
    return this.#size
  }

  /**
   * Lets a node wait for others: each is named once and has not ended. When it was ready, it may
   * wait again.
   */
  add(node: N, needs: readonly N[]): void {
    node.waiting = { left: needs.length, needs }
    this.#size++
    for (const needed of needs) {
      if (needed.dependents === null) needed.dependents = [node]
      else needed.dependents.push(node)
    }
  }

  /** A node has ended well: those that waited for it alone are ready, in the order of waiting. */
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

  /** A node has ended badly: all that waited for it, directly or not, nearest first. */
  doom(node: N): Doomed<N>[] {
    this.#stopWaiting(node)
    const doomed: Doomed<N>[] = []
    for (let via: N | undefined = node, at = 0; via !== undefined; via = doomed[at++]?.node) {
      for (const dependent of takeDependents(via)) {
        if (this.#stopWaiting(dependent)) doomed.push({ node: dependent, via })
      }
    }
    return doomed
  }

  /** A way from `from` to `to` along what nodes wait for, both included; `null` without one. */
  path(from: N, to: N): N[] | null {
    const cameFrom = new Map<N, N | null>([[from, null]])
    const open: N[] = [from]
    for (let node = open.pop(); node !== undefined; node = open.pop()) {
      if (node === to) return wayTo(node, cameFrom)
      for (const next of node.waiting?.needs ?? none) {
        if (cameFrom.has(next)) continue
        cameFrom.set(next, node)
        open.push(next)
      }
    }
    return null
  }

  /** `false` when it did not wait. */
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

function wayTo<N>(end: N, cameFrom: ReadonlyMap<N, N | null>): N[] {
  const way: N[] = []
  for (let node: N | null = end; node !== null; node = cameFrom.get(node) ?? null) way.push(node)
  return way.toReversed()
}

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

/** Never recursive: chains may be as long as memory. */
export class Graph<N> {
  readonly #waiting = new Map<N, Waiting<N>>()
  /** Those that were doomed stay here until what they waited for has ended. */
  readonly #dependents = new Map<N, N[]>()

  /** Nodes that wait. */
  get size(): number {
    return this.#waiting.size
  }

  /**
   * Lets a node wait for others: each is named once and has not ended. When it was ready, it may
   * wait again.
   */
  add(node: N, needs: readonly N[]): void {
    this.#waiting.set(node, { left: needs.length, needs })
    for (const needed of needs) {
      const dependents = this.#dependents.get(needed)
      if (dependents === undefined) this.#dependents.set(needed, [node])
      else dependents.push(node)
    }
  }

  /** A node has ended well: those that waited for it alone are ready, in the order of waiting. */
  end(node: N): N[] {
    const ready: N[] = []
    for (const dependent of this.#takeDependents(node)) {
      const waiting = this.#waiting.get(dependent)
      if (waiting === undefined) continue
      waiting.left--
      if (waiting.left > 0) continue
      this.#waiting.delete(dependent)
      ready.push(dependent)
    }
    return ready
  }

  /** A node has ended badly: all that waited for it, directly or not, nearest first. */
  doom(node: N): Doomed<N>[] {
    this.#waiting.delete(node)
    const doomed: Doomed<N>[] = []
    for (let via: N | undefined = node, at = 0; via !== undefined; via = doomed[at++]?.node) {
      for (const dependent of this.#takeDependents(via)) {
        if (this.#waiting.delete(dependent)) doomed.push({ node: dependent, via })
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
      for (const next of this.#waiting.get(node)?.needs ?? []) {
        if (cameFrom.has(next)) continue
        cameFrom.set(next, node)
        open.push(next)
      }
    }
    return null
  }

  #takeDependents(node: N): readonly N[] {
    const dependents = this.#dependents.get(node)
    if (dependents === undefined) return []
    this.#dependents.delete(node)
    return dependents
  }
}

function wayTo<N>(end: N, cameFrom: ReadonlyMap<N, N | null>): N[] {
  const way: N[] = []
  for (let node: N | null = end; node !== null; node = cameFrom.get(node) ?? null) way.push(node)
  return way.toReversed()
}

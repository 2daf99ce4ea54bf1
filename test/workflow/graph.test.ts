import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { Graph, type GraphNode } from '../../src/workflow/graph.ts'
import { assertProperty } from '../property.ts'

class Node<K> implements GraphNode<Node<K>> {
  waiting: GraphNode<Node<K>>['waiting'] = null
  dependents: Node<K>[] | null = null
  readonly key: K

  constructor(key: K) {
    this.key = key
  }
}

/** A graph with one node per key. */
class KeyedGraph<K> {
  readonly #graph = new Graph<Node<K>>()
  readonly #nodes = new Map<K, Node<K>>()

  get waiting(): K[] {
    return [...this.#nodes.values()].filter(({ waiting }) => waiting !== null).map(({ key }) => key)
  }

  add(key: K, needs: readonly K[]): void {
    const nodes = needs.map((needed) => this.#nodeOf(needed))
    this.#graph.add(this.#nodeOf(key), nodes)
  }

  end(key: K): K[] {
    return this.#graph.complete(this.#nodeOf(key)).map((node) => node.key)
  }

  failDependents(key: K): { readonly node: K; readonly via: K }[] {
    const failed = this.#graph.failDependents(this.#nodeOf(key))
    return failed.map(({ node, dependency }) => ({ node: node.key, via: dependency.key }))
  }

  path(from: K, to: K): K[] | null {
    return this.#graph.findPath(this.#nodeOf(from), this.#nodeOf(to))?.map(({ key }) => key) ?? null
  }

  #nodeOf(key: K): Node<K> {
    const node = this.#nodes.get(key) ?? new Node(key)
    this.#nodes.set(key, node)
    return node
  }
}

/** Node `n` waits for some of the nodes before it. */
const dag = fc
  .integer({ min: 1, max: 25 })
  .chain((size) =>
    fc.tuple(
      ...Array.from({ length: size }, (_, node) =>
        node === 0 ? fc.constant([]) : fc.uniqueArray(fc.nat(node - 1), { maxLength: 4 }),
      ),
    ),
  )

describe('graph', () => {
  it('graph: every node of any acyclic graph is ready once, after all its dependencies', () => {
    assertProperty(
      fc.property(dag, fc.infiniteStream(fc.nat()), (dependencies, choices) => {
        const graph = new KeyedGraph<number>()
        const ready: number[] = []
        for (const [node, needs] of dependencies.entries()) {
          if (needs.length > 0) graph.add(node, needs)
          else ready.push(node)
        }
        const ended = new Set<number>()
        while (ready.length > 0) {
          const [node = -1] = ready.splice((choices.next().value ?? 0) % ready.length, 1)
          for (const needed of dependencies[node] ?? []) expect(ended).toContain(needed)
          expect(ended).not.toContain(node)
          ended.add(node)
          ready.push(...graph.end(node))
        }
        expect(ended.size).toBe(dependencies.length)
        expect(graph.waiting).toEqual([])
      }),
    )
  })

  it('graph: failDependents returns all direct and indirect dependents, nearest first', () => {
    assertProperty(
      fc.property(dag, fc.nat(), (dependencies, choice) => {
        const graph = new KeyedGraph<number>()
        for (const [node, needs] of dependencies.entries()) {
          if (needs.length > 0) graph.add(node, needs)
        }
        const failed = choice % dependencies.length
        const lost = new Set([failed])
        for (const [node, needs] of dependencies.entries()) {
          if (needs.some((needed) => lost.has(needed))) lost.add(node)
        }
        const dependents = graph.failDependents(failed)
        expect(new Set([failed, ...dependents.map(({ node }) => node)])).toEqual(lost)
        expect(dependents.length).toBe(lost.size - 1)
        const known = new Set([failed])
        for (const { node, via } of dependents) {
          expect(known).toContain(via)
          expect(dependencies[node]).toContain(via)
          known.add(node)
        }
        expect(graph.failDependents(failed)).toEqual([])
      }),
    )
  })

  it('row 32: a chain of 100,000 ends and fails without recursion, and nothing is left', () => {
    const length = 100_000
    const chain = (): KeyedGraph<number> => {
      const graph = new KeyedGraph<number>()
      for (let node = 1; node < length; node++) graph.add(node, [node - 1])
      return graph
    }
    const good = chain()
    let ended = 0
    for (let next = [0]; next.length > 0; next = good.end(next[0] ?? -1)) ended++
    expect([ended, good.waiting]).toEqual([length, []])
    const bad = chain()
    expect(bad.path(length - 1, 0)).toHaveLength(length)
    expect(bad.failDependents(0)).toHaveLength(length - 1)
    expect(bad.waiting).toEqual([])
  })

  it('graph: path follows dependencies, and is null where there is none', () => {
    const graph = new KeyedGraph<string>()
    graph.add('c', ['b', 'x'])
    graph.add('b', ['a'])
    expect(graph.path('c', 'a')).toEqual(['c', 'b', 'a'])
    expect(graph.path('a', 'a')).toEqual(['a'])
    expect(graph.path('a', 'c')).toBe(null)
  })

  it('graph: a node that was ready can wait again for more', () => {
    const graph = new KeyedGraph<string>()
    graph.add('c', ['a'])
    expect(graph.end('a')).toEqual(['c'])
    graph.add('c', ['b'])
    expect([graph.end('a'), graph.end('b')]).toEqual([[], ['c']])
  })
})

/** Reads grammars. Rejects left recursion, whose evaluation would never end. Pure. */

import { type Grammar, type GrammarElement, type GrammarRules, parseGrammar } from './gbnf.ts'

export function readGrammar(text: string): Grammar {
  const grammar = parseGrammar(text)
  checkRecursion(grammar.rules)
  return grammar
}

interface LeftEdge {
  readonly rule: number
  readonly isFirst: boolean
  readonly isLast: boolean
}

/**
 * Throws for left recursion. Allows `("a"*)*`, whose evaluation returns to an earlier state instead
 * of growing.
 */
function checkRecursion(rules: GrammarRules): void {
  const empty = findEmptyRules(rules)
  const edges = rules.map((alternatives) =>
    alternatives.flatMap((sequence) => findLeftEdges(sequence, empty)),
  )
  for (const component of findComponents(edges.map((some) => some.map(({ rule }) => rule)))) {
    const inside = new Set(component)
    const isRecursive = component.some((rule) =>
      edges[rule]?.some((edge) => inside.has(edge.rule) && (edge.isFirst || !edge.isLast)),
    )
    if (isRecursive) throw new Error('the grammar is left-recursive')
  }
}

function findLeftEdges(
  sequence: readonly GrammarElement[],
  empty: ReadonlySet<number>,
): LeftEdge[] {
  const edges: LeftEdge[] = []
  for (const [at, element] of sequence.entries()) {
    if (element.kind !== 'rule') break
    edges.push({ rule: element.rule, isFirst: at === 0, isLast: at === sequence.length - 1 })
    if (!empty.has(element.rule)) break
  }
  return edges
}

function findEmptyRules(rules: GrammarRules): ReadonlySet<number> {
  const empty = new Set<number>()
  /** For each rule, the sequences of rules that contain it, once per occurrence. */
  const users = new Map<number, { readonly rule: number; notEmpty: number }[]>()
  const waiting: number[] = []
  for (const [rule, alternatives] of rules.entries()) {
    for (const sequence of alternatives) {
      if (sequence.length === 0) waiting.push(rule)
      if (sequence.some(({ kind }) => kind !== 'rule')) continue
      const user = { rule, notEmpty: sequence.length }
      for (const element of sequence) {
        if (element.kind !== 'rule') continue
        const known = users.get(element.rule)
        if (known === undefined) users.set(element.rule, [user])
        else known.push(user)
      }
    }
  }
  for (let rule = waiting.pop(); rule !== undefined; rule = waiting.pop()) {
    if (empty.has(rule)) continue
    empty.add(rule)
    for (const user of users.get(rule) ?? []) if (--user.notEmpty === 0) waiting.push(user.rule)
  }
  return empty
}

/** Strongly connected components (Tarjan) in reverse topological order. Not recursive. */
function findComponents(edges: readonly (readonly number[])[]): readonly (readonly number[])[] {
  const found: number[][] = []
  const order = new Int32Array(edges.length)
  const low = new Int32Array(edges.length)
  const isOpen = new Uint8Array(edges.length)
  const open: number[] = []
  let count = 0
  const enter = (node: number): { node: number; next: number } => {
    order[node] = low[node] = ++count
    isOpen[node] = 1
    open.push(node)
    return { node, next: 0 }
  }
  for (const start of edges.keys()) {
    if (order[start] !== 0) continue
    const path = [enter(start)]
    for (let top = path.at(-1); top !== undefined; top = path.at(-1)) {
      const { node } = top
      const next = edges[node]?.[top.next++]
      if (next === undefined) {
        path.pop()
        const parentNode = path.at(-1)?.node
        if (parentNode !== undefined)
          low[parentNode] = Math.min(low[parentNode] ?? 0, low[node] ?? 0)
        if (low[node] === order[node]) found.push(closeComponent(open, isOpen, node))
      } else if (order[next] === 0) {
        path.push(enter(next))
      } else if (isOpen[next] === 1) {
        low[node] = Math.min(low[node] ?? 0, order[next] ?? 0)
      }
    }
  }
  return found
}

function closeComponent(open: number[], isOpen: Uint8Array, node: number): number[] {
  const component = open.splice(open.lastIndexOf(node))
  for (const one of component) isOpen[one] = 0
  return component
}

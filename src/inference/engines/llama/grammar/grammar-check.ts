/**
 * Refuses grammars that would occupy llama.cpp for minutes or for ever: its evaluation cannot be
 * interrupted, and all other requests wait. Pure.
 *
 * llama.cpp keeps a stack for each way to read the text so far, compares every new stack with all
 * others, and tries a token with all of them, without joining stacks that become equal. The check
 * follows the character with the most ways, for a few characters from the beginning of each rule.
 */

import { type Grammar, type GrammarElement, type GrammarRules, parseGrammar } from './gbnf.ts'
import { GrammarStacks, rangesOf, type Stack, type Steps } from './grammar-stacks.ts'

/** The maximum number of different ways to read one text. */
const maxStacks = 1024
/** The maximum number of ways to read a few characters, including ways that become equal. */
const maxWays = 100_000
const followedCharacters = 4
/** The maximum cost of the check itself. */
const maxSteps = 1_000_000
/** The maximum for the left-recursion check of llama.cpp, which follows all ways. */
const maxLeftWays = 1_000_000

/** The maximum number of edges between a rule and the rules that it can begin with. */
const maxEdges = 200_000

/** How many grammars are cached, because clients send the same ones again. */
const maxKnown = 64
const maxKnownLength = 16_384

/** Caches the last valid grammars. */
export class KnownGrammars {
  readonly #read: (text: string) => Grammar
  readonly #known = new Map<string, Grammar>()

  constructor(read: (text: string) => Grammar) {
    this.#read = read
  }

  /** Throws an `Error` that describes the problem. */
  read(text: string): Grammar {
    const known = this.#known.get(text)
    if (known !== undefined) return known
    const grammar = this.#read(text)
    if (text.length > maxKnownLength) return grammar
    const [oldest] = this.#known.keys()
    if (this.#known.size >= maxKnown && oldest !== undefined) this.#known.delete(oldest)
    this.#known.set(text, grammar)
    return grammar
  }
}

/**
 * Reads a grammar that is evaluated in this package. Throws an `Error` that describes the problem.
 */
export function readGrammar(text: string): Grammar {
  const grammar = parseGrammar(text)
  checkRecursion(grammar.rules)
  return grammar
}

/** Reads a grammar that llama.cpp evaluates. Throws an `Error` that describes the problem. */
export function checkGrammar(text: string): Grammar {
  const grammar = readGrammar(text)
  const walker = new GrammarWalker(grammar.rules)
  for (const rule of grammar.rules.keys()) walker.follow(rule)
  return grammar
}

/** A rule that another rule can begin with. */
interface LeftEdge {
  readonly rule: number
  /** Whether no element precedes the rule, not even one that may be empty. */
  readonly isFirst: boolean
  readonly isLast: boolean
}

/**
 * A rule that begins with itself, directly or after elements that may be empty, grows for ever and
 * is refused. It is harmless only at the end of a sequence after such elements, as in `("a"*)*`:
 * then it returns to an earlier state.
 */
function checkRecursion(rules: GrammarRules): void {
  const empty = emptyRules(rules)
  let left = maxEdges
  const edges = rules.map((alternatives) => {
    const ofRule = alternatives.flatMap((sequence) => leftEdges(sequence, empty))
    left -= ofRule.length
    if (left < 0) throw tooManyWays()
    return ofRule
  })
  const ways = new Float64Array(rules.length)
  const ofComponent = components(edges.map((some) => some.map(({ rule }) => rule)))
  for (const component of ofComponent) {
    const inside = new Set(component)
    for (const rule of component) {
      for (const edge of edges[rule] ?? []) {
        const isHarmless = !inside.has(edge.rule) || (edge.isLast && !edge.isFirst)
        if (!isHarmless) throw new Error('the grammar is left-recursive')
        ways[rule] = (ways[rule] ?? 0) + (inside.has(edge.rule) ? 1 : (ways[edge.rule] ?? 0))
      }
      ways[rule] = 1 + (ways[rule] ?? 0)
    }
  }
  if (ways.some((count) => count > maxLeftWays)) throw tooManyWays()
}

function leftEdges(sequence: readonly GrammarElement[], empty: ReadonlySet<number>): LeftEdge[] {
  const edges: LeftEdge[] = []
  for (const [at, element] of sequence.entries()) {
    if (element.kind !== 'rule') break
    edges.push({ rule: element.rule, isFirst: at === 0, isLast: at === sequence.length - 1 })
    if (!empty.has(element.rule)) break
  }
  return edges
}

/** The rules that match the empty text. */
function emptyRules(rules: GrammarRules): ReadonlySet<number> {
  const empty = new Set<number>()
  /** For each rule, the sequences of rules alone that contain it, once per occurrence. */
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

/** Strongly connected components (Tarjan), each after those that it leads to. Not recursive. */
function components(edges: readonly (readonly number[])[]): readonly (readonly number[])[] {
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
        const above = path.at(-1)?.node
        if (above !== undefined) low[above] = Math.min(low[above] ?? 0, low[node] ?? 0)
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

class GrammarWalker implements Steps {
  readonly #stacks: GrammarStacks
  #steps = 0

  constructor(rules: GrammarRules) {
    this.#stacks = new GrammarStacks(rules)
  }

  /** Follows the texts of a rule. */
  follow(rule: number): void {
    let ways = new Map<Stack, number>()
    for (const stack of this.#stacks.begin(rule, this)) this.#addWays(ways, stack, 1)
    this.#expectFew(ways)
    for (let count = 0; count < followedCharacters && ways.size > 0; count++) {
      ways = this.#after(ways)
      this.#expectFew(ways)
    }
  }

  /** The ways after the character by which most ways continue. */
  #after(ways: ReadonlyMap<Stack, number>): Map<Stack, number> {
    const character = this.#widest(ways)
    const next = new Map<Stack, number>()
    for (const [stack, count] of ways) {
      if (!rangesOf(stack).some(([from, to]) => from <= character && character <= to)) continue
      this.#addWays(next, this.#stacks.next(stack), count)
    }
    return next
  }

  #widest(ways: ReadonlyMap<Stack, number>): number {
    const changes = new Map<number, number>()
    const change = (at: number, by: number): void =>
      void changes.set(at, (changes.get(at) ?? 0) + by)
    for (const [stack, count] of ways) {
      const following = this.#stacks.reach(this.#stacks.next(stack), this)
      const weight = count * (1 + following.stacks.length)
      for (const [from, to] of rangesOf(stack)) {
        change(from, weight)
        change(to + 1, -weight)
      }
    }
    let [widest, max, now] = [0, 0, 0]
    for (const [at, by] of [...changes].toSorted(([one], [other]) => one - other)) {
      now += by
      if (now > max) [widest, max] = [at, now]
    }
    return widest
  }

  #addWays(ways: Map<Stack, number>, stack: Stack | null, count: number): void {
    const { stacks } = this.#stacks.reach(stack, this)
    for (const one of stacks) ways.set(one, (ways.get(one) ?? 0) + count)
  }

  #expectFew(ways: ReadonlyMap<Stack, number>): void {
    this.spend(ways.size)
    let all = 0
    for (const count of ways.values()) all += count
    if (ways.size > maxStacks || all > maxWays) throw tooManyWays()
  }

  spend(count: number): void {
    this.#steps += count
    if (this.#steps > maxSteps) throw new Error('the grammar has too many parts')
  }
}

const tooManyWays = (): Error =>
  new Error('there are too many ways to read the same text: make the choices distinct')

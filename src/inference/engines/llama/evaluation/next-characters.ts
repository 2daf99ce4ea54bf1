/**
 * Which characters a grammar allows next. llama.cpp tells only whether one token is allowed, and
 * asking for every first character takes as long as a small model takes for a token. Pure.
 */

import type { CharacterSet, GrammarPart, GrammarRules, GrammarSequence } from '../grammar/gbnf.ts'

/** Grammars with more parts are not followed, nor answers that can be read in more ways. */
const mostNodes = 100_000
const mostReadings = 10_000

type Choices = readonly GrammarSequence[]

/** What comes next within a rule. */
type Node =
  | { readonly kind: 'characters'; readonly set: AllowedSet; readonly next: Node }
  | { readonly kind: 'call'; readonly choices: Choices; readonly next: Node }
  | { readonly kind: 'choice'; readonly of: readonly Node[] }
  | { readonly kind: 'return' }

type CharactersNode = Extract<Node, { readonly kind: 'characters' }>

const end: Node = { kind: 'return' }

/** Where a rule goes on that has called another one; the same object for the same place. */
class Frame {
  readonly next: Node
  readonly caller: Frame | null
  readonly #calls = new Map<Node, Frame>()

  constructor(next: Node, caller: Frame | null) {
    this.next = next
    this.caller = caller
  }

  call(next: Node): Frame {
    // A rule that ends with a call leaves nothing to return to.
    if (next.kind === 'return') return this
    const known = this.#calls.get(next)
    if (known !== undefined) return known
    const frame = new Frame(next, this)
    this.#calls.set(next, frame)
    return frame
  }
}

/** A way to read the answer so far. */
interface Reading<Kind extends Node = Node> {
  readonly node: Kind
  readonly frame: Frame
}

class TooLargeError extends Error {}

/** The rules of a grammar as a graph, whose parts are created when an answer reaches them. */
export class GrammarGraph {
  readonly #rules: GrammarRules
  readonly #nodes = new Map<Choices, Node>()
  readonly #sets = new Map<string, AllowedSet>()
  #count = 0

  constructor(rules: GrammarRules) {
    this.#rules = rules
  }

  /** Throws where the grammar is too large. */
  get root(): Node {
    return this.nodeOf(this.#rules.get('root') ?? [])
  }

  nodeOf(choices: Choices): Node {
    const known = this.#nodes.get(choices)
    if (known !== undefined) return known
    const node = this.#choiceOf(choices, end)
    this.#nodes.set(choices, node)
    return node
  }

  #choiceOf(choices: Choices, next: Node): Node {
    const of = choices.map((parts) =>
      parts.reduceRight((rest, one) => this.#nodeFor(one, rest), next),
    )
    return of.length === 1 && of[0] !== undefined ? of[0] : this.#add({ kind: 'choice', of })
  }

  #nodeFor(part: GrammarPart, next: Node): Node {
    if (part.kind === 'repeated') return this.#repeat(part, next)
    if (part.kind === 'group') return this.#choiceOf(part.choices, next)
    if (part.kind === 'characters') {
      return this.#add({ kind: 'characters', set: this.#setOf(part.set), next })
    }
    return this.#add({ kind: 'call', choices: this.#rules.get(part.name) ?? [], next })
  }

  /** What is repeated is a rule of its own, so that each time is one node. */
  #repeat({ part, least, most }: GrammarPart & { kind: 'repeated' }, next: Node): Node {
    const choices = [[part]]
    const once = (rest: Node): Node =>
      part.kind === 'characters'
        ? this.#nodeFor(part, rest)
        : this.#add({ kind: 'call', choices, next: rest })
    let node = next
    if (most === Infinity) {
      const of: Node[] = []
      node = this.#add({ kind: 'choice', of })
      of.push(once(node), next)
    } else {
      for (let at = least; at < most; at++) {
        node = this.#add({ kind: 'choice', of: [once(node), next] })
      }
    }
    for (let at = 0; at < least; at++) node = once(node)
    return node
  }

  #setOf(set: CharacterSet): AllowedSet {
    const key = JSON.stringify(set)
    const known = this.#sets.get(key)
    if (known !== undefined) return known
    const allowed = new AllowedSet(set)
    this.#sets.set(key, allowed)
    return allowed
  }

  #add(node: Node): Node {
    if (++this.#count > mostNodes) throw new TooLargeError()
    return node
  }
}

class AllowedSet {
  readonly #set: CharacterSet
  /** By first byte in UTF-8, whether a character that begins with it is in the set. */
  #firstBytes: readonly boolean[] | null = null

  constructor({ ranges, isNegated }: CharacterSet) {
    this.#set = { ranges: ranges.toSorted(([one], [other]) => one - other), isNegated }
  }

  has(code: number): boolean {
    const { ranges, isNegated } = this.#set
    return ranges.some(([low, high]) => low <= code && code <= high) !== isNegated
  }

  hasFirstByte(byte: number): boolean {
    this.#firstBytes ??= Array.from({ length: 256 }, (_, first) => this.hasBeginning([first]))
    return this.#firstBytes[byte] ?? false
  }

  /** Whether it has a character whose UTF-8 begins with these bytes. */
  hasBeginning(bytes: readonly number[]): boolean {
    const range = rangeOf(bytes)
    return range !== null && this.#hasAny(...range)
  }

  #hasAny(low: number, high: number): boolean {
    const { ranges, isNegated } = this.#set
    if (!isNegated) return ranges.some(([from, to]) => from <= high && to >= low)
    let rest = low
    for (const [from, to] of ranges) {
      if (from > rest) break
      rest = Math.max(rest, to + 1)
    }
    return rest <= high
  }
}

/** The lowest character of two, three and four bytes. */
const lowest = [0x80, 0x800, 0x1_0000]

/** The characters whose UTF-8 begins with these bytes; `null` if there are none. */
function rangeOf([first = 0, ...later]: readonly number[]): readonly [number, number] | null {
  if (first < 0x80) return [first, first]
  if (first < 0xc2 || first > 0xf4 || later.some((byte) => byte >> 6 !== 0b10)) return null
  const count = first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3
  const given = later.reduce((sum, byte) => sum * 64 + (byte & 0x3f), first & (0x3f >> count))
  const size = 64 ** (count - later.length)
  const low = Math.max(given * size, lowest[count - 1] ?? 0)
  const high = (given + 1) * size - 1
  return low <= high ? [low, high] : null
}

/** After a part of an answer. Does not change. */
export class NextCharacters {
  readonly #graph: GrammarGraph
  readonly #readings: readonly Reading<CharactersNode>[]
  /** Whether the answer may end here. */
  readonly isComplete: boolean

  private constructor(graph: GrammarGraph, reached: readonly Reading[]) {
    const { readings, isComplete } = expand(graph, reached)
    this.#graph = graph
    this.#readings = readings
    this.isComplete = isComplete
  }

  /** At the beginning of an answer; `null` if the grammar is too large to be followed. */
  static start(graph: GrammarGraph): NextCharacters | null {
    return NextCharacters.#open(graph, () => [{ node: graph.root, frame: new Frame(end, null) }])
  }

  /** After one more character; `null` if it is not allowed, or cannot be followed. */
  after(code: number): NextCharacters | null {
    const read = this.#readings.filter(({ node }) => node.set.has(code))
    if (read.length === 0) return null
    return NextCharacters.#open(this.#graph, () =>
      read.map(({ node, frame }) => ({ node: node.next, frame })),
    )
  }

  allowsFirstByte(byte: number): boolean {
    return this.#readings.some(({ node }) => node.set.hasFirstByte(byte))
  }

  /** Whether a character may be next whose UTF-8 begins with these bytes. */
  allowsBeginning(bytes: readonly number[]): boolean {
    return this.#readings.some(({ node }) => node.set.hasBeginning(bytes))
  }

  static #open(graph: GrammarGraph, reach: () => readonly Reading[]): NextCharacters | null {
    try {
      return new NextCharacters(graph, reach())
    } catch (error) {
      if (error instanceof TooLargeError) return null
      throw error
    }
  }
}

/** All that are reached without another character; each has one next. */
function expand(
  graph: GrammarGraph,
  reached: readonly Reading[],
): { readings: readonly Reading<CharactersNode>[]; isComplete: boolean } {
  const waiting = [...reached]
  const seen = new Map<Node, Set<Frame>>()
  const readings: Reading<CharactersNode>[] = []
  let isComplete = false
  let count = 0
  for (let reading = waiting.pop(); reading !== undefined; reading = waiting.pop()) {
    const { node, frame } = reading
    const frames = seen.get(node) ?? new Set()
    if (frames.has(frame)) continue
    seen.set(node, frames.add(frame))
    if (++count > mostReadings) throw new TooLargeError()
    if (node.kind === 'characters') readings.push({ node, frame })
    else if (node.kind === 'choice') for (const one of node.of) waiting.push({ node: one, frame })
    else if (node.kind === 'call') {
      waiting.push({ node: graph.nodeOf(node.choices), frame: frame.call(node.next) })
    } else if (frame.caller === null) isComplete = true
    else waiting.push({ node: frame.next, frame: frame.caller })
  }
  return { readings, isComplete }
}

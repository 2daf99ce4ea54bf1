/**
 * Finds the characters that a grammar allows next. llama.cpp compares each way to parse an answer
 * with all others and cannot be interrupted, so grammars are evaluated here: equal ways are joined,
 * results are reused, and the cost is limited. Pure.
 */

import type { CharacterRange, Grammar, GrammarElement } from './gbnf.ts'
import { readGrammar } from './grammar-check.ts'
import {
  AnswerSteps,
  elementOf,
  GrammarStacks,
  rangesOf,
  type Reached,
  type Stack,
} from './grammar-stacks.ts'

/** The maximum number of cached stacks, states and list entries per grammar. */
const maxKept = 100_000
/** The maximum number of cached grammars, each with up to some megabytes of results. */
const maxGrammars = 8

/** The state at the beginning of an answer. */
export interface AnswerStart {
  readonly next: NextCharacters
  readonly steps: AnswerSteps
}

/** The most recently used grammars, because clients send the same grammars repeatedly. */
export class GrammarCache {
  readonly #known = new Map<string, FollowedGrammar>()

  /** Throws an `Error` that describes the problem in the grammar. */
  open(text: string): FollowedGrammar {
    const followed = this.#known.get(text) ?? new FollowedGrammar(readGrammar(text))
    this.#known.delete(text)
    this.#known.set(text, followed)
    const [oldest] = this.#known.keys()
    if (this.#known.size > maxGrammars && oldest !== undefined) this.#known.delete(oldest)
    return followed
  }
}

/** A grammar with a cache that all its answers share. */
export class FollowedGrammar {
  readonly stacks: GrammarStacks
  readonly #root: number
  readonly #states = new Map<string, NextCharacters>()
  #size = 0

  constructor({ rules, root }: Grammar) {
    this.stacks = new GrammarStacks(rules)
    this.#root = root
  }

  /** Begins an answer. This call and the returned state may throw `TooManyWaysError`. */
  begin(): AnswerStart {
    const steps = new AnswerSteps()
    return { next: this.reach(this.stacks.begin(this.#root, steps), steps), steps }
  }

  keep(size: number): void {
    this.#size += size
  }

  /**
   * The state for the stacks that are reachable from `starts`. Equal states are the same object.
   */
  reach(starts: Iterable<Stack | null>, steps: AnswerSteps): NextCharacters {
    const stacks = new Set<Stack>()
    let isEnd = false
    for (const start of new Set(starts)) {
      const reached = this.stacks.reach(start, steps)
      steps.spend(1 + reached.stacks.length)
      for (const stack of reached.stacks) stacks.add(stack)
      isEnd ||= reached.isEnd
    }
    const ids = Float64Array.from(stacks, ({ id }) => id).toSorted()
    return this.#state(`${isEnd} ${ids.join()}`, { stacks: [...stacks], isEnd })
  }

  /** Returns an equal state. Clears the cache first if it is too large. */
  renew({ key, stacks, isComplete }: NextCharacters): NextCharacters {
    if (this.#size + this.stacks.size >= maxKept) {
      this.stacks.forget()
      this.#states.clear()
      this.#size = 0
    }
    return this.#state(key, { stacks, isEnd: isComplete })
  }

  #state(key: string, reached: Reached): NextCharacters {
    const known = this.#states.get(key)
    if (known !== undefined) return known
    const state = new NextCharacters(this, key, reached)
    this.#states.set(key, state)
    this.keep(1 + reached.stacks.length)
    return state
  }
}

/** The state after a part of an answer. */
export class NextCharacters {
  readonly #grammar: FollowedGrammar
  /** Identifies equal states. */
  readonly key: string
  readonly stacks: readonly Stack[]
  readonly #after = new Map<number, NextCharacters | null>()
  /** The next states, by the character classes that contain a character. */
  readonly #afterClasses = new Map<string, NextCharacters>()
  #classes: readonly CharacterClass[] | null = null
  #firstBytes: Uint8Array | null = null
  /** Whether the answer may end here. */
  readonly isComplete: boolean
  /** Whether the grammar names a token here, regardless of characters. */
  readonly namesToken: boolean

  constructor(grammar: FollowedGrammar, key: string, { stacks, isEnd }: Reached) {
    this.#grammar = grammar
    this.key = key
    this.stacks = stacks
    this.isComplete = isEnd
    this.namesToken = stacks.some((stack) => elementOf(stack)?.kind === 'token')
  }

  /** The state after one more character; `null` if the character is not allowed. */
  after(code: number, steps: AnswerSteps): NextCharacters | null {
    const known = this.#after.get(code)
    if (known !== undefined) return known
    const next = this.#find(code, steps)
    this.#after.set(code, next)
    this.#grammar.keep(1)
    return next
  }

  /**
   * The state after a token that the grammar names; `null` if the grammar does not name this token.
   */
  afterToken(token: number, steps: AnswerSteps): NextCharacters | null {
    if (!this.namesToken) return null
    return this.#reach(
      this.stacks.filter((stack) => isNamed(elementOf(stack), token)),
      steps,
    )
  }

  /** The state of a text that can be parsed in the ways of both states. */
  or(other: NextCharacters, steps: AnswerSteps): NextCharacters {
    const isEnd = this.isComplete || other.isComplete
    const both = [...this.stacks, ...other.stacks, ...(isEnd ? [null] : [])]
    return this.#grammar.reach(both, steps)
  }

  /** Called when a token was chosen. Returns an equal state. */
  renewed(steps: AnswerSteps): NextCharacters {
    steps.add()
    return this.#grammar.renew(this)
  }

  allowsFirstByte(byte: number): boolean {
    this.#firstBytes ??= this.#findFirstBytes()
    return this.#firstBytes[byte] === 1
  }

  /** Whether a character whose UTF-8 encoding begins with these bytes may be next. */
  allowsBeginning(bytes: readonly number[]): boolean {
    const range = rangeOfBytes(bytes)
    this.#classes ??= this.#findClasses()
    return range !== null && this.#classes.some(({ ranges }) => hasAny(ranges, ...range))
  }

  /** Uses classes, because many characters are in the same classes. */
  #find(code: number, steps: AnswerSteps): NextCharacters | null {
    this.#classes ??= this.#findClasses()
    steps.spend(this.#classes.length)
    const found = this.#classes.filter(({ ranges }) => hasAny(ranges, code, code))
    if (found.length === 0) return null
    const key = found.map(({ at }) => at).join()
    const known = this.#afterClasses.get(key)
    if (known !== undefined) return known
    const read = found.flatMap(({ stacks }) => stacks)
    const next = this.#reach(read, steps)
    if (next !== null) this.#afterClasses.set(key, next)
    return next
  }

  #reach(read: readonly Stack[], steps: AnswerSteps): NextCharacters | null {
    const { stacks } = this.#grammar
    steps.spend(read.length)
    if (read.length === 0) return null
    return this.#grammar.reach(
      read.map((stack) => stacks.next(stack)),
      steps,
    )
  }

  #findClasses(): readonly CharacterClass[] {
    const classes = Map.groupBy(this.stacks, rangesOf)
    return [...classes].map(([ranges, stacks], at) => ({ at, ranges, stacks }))
  }

  #findFirstBytes(): Uint8Array {
    const allowed = new Uint8Array(256)
    this.#classes ??= this.#findClasses()
    for (const { ranges } of this.#classes) {
      for (const byte of firstBytesOf(ranges)) allowed[byte] = 1
    }
    return allowed
  }
}

/** The stacks that allow equal character ranges next. */
interface CharacterClass {
  readonly at: number
  readonly ranges: readonly CharacterRange[]
  readonly stacks: readonly Stack[]
}

const isNamed = (element: GrammarElement | undefined, token: number): boolean =>
  element?.kind === 'token' && (element.token === token) !== element.isNegated

/** Whether a range overlaps `low` to `high`. The ranges are ascending, with gaps between them. */
function hasAny(ranges: readonly CharacterRange[], low: number, high: number): boolean {
  let [from, to] = [0, ranges.length]
  while (from < to) {
    const middle = (from + to) >> 1
    const range = ranges[middle]
    if (range !== undefined && range[1] < low) from = middle + 1
    else to = middle
  }
  const found = ranges[from]
  return found !== undefined && found[0] <= high
}

/** Caches the first UTF-8 bytes of the characters in ranges. */
const firstBytes = new WeakMap<readonly CharacterRange[], readonly number[]>()

function firstBytesOf(ranges: readonly CharacterRange[]): readonly number[] {
  const known = firstBytes.get(ranges)
  if (known !== undefined) return known
  const found = Array.from({ length: 256 }, (_, byte) => byte).filter((byte) => {
    const range = rangeOfBytes([byte])
    return range !== null && hasAny(ranges, ...range)
  })
  firstBytes.set(ranges, found)
  return found
}

/** The lowest characters that take two, three and four bytes. */
const lowest = [0x80, 0x800, 0x1_0000]

/** The characters whose UTF-8 encoding begins with these bytes; `null` if there are none. */
function rangeOfBytes([first = 0, ...later]: readonly number[]): CharacterRange | null {
  if (first < 0x80) return [first, first]
  if (first < 0xc2 || first > 0xf4 || later.some((byte) => byte >> 6 !== 0b10)) return null
  const count = first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3
  const given = later.reduce((sum, byte) => sum * 64 + (byte & 0x3f), first & (0x3f >> count))
  const size = 64 ** (count - later.length)
  const low = Math.max(given * size, lowest[count - 1] ?? 0)
  const high = (given + 1) * size - 1
  return low <= high ? [low, high] : null
}

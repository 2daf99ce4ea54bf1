/**
 * Finds the characters that a grammar allows next. Equal ways to parse an answer are joined,
 * results are reused, and the cost is limited. llama.cpp, by contrast, compares each way with all
 * others, and cannot be interrupted. Pure.
 */

import type { CharacterRange, Grammar, GrammarElement } from './gbnf.ts'
import { readGrammar } from './grammar-check.ts'
import {
  StepBudget,
  nextElement,
  GrammarStacks,
  nextRanges,
  type ReachableStacks,
  type Stack,
} from './grammar-stacks.ts'

const maxCacheSize = 100_000
/** The maximum number of cached grammars. Each may hold some megabytes of results. */
const maxGrammars = 8

export interface GrammarStart {
  readonly next: NextCharacters
  readonly steps: StepBudget
}

export class GrammarCache {
  readonly #grammars = new Map<string, CachedGrammar>()

  open(text: string): CachedGrammar {
    const followed = this.#grammars.get(text) ?? new CachedGrammar(readGrammar(text))
    this.#grammars.delete(text)
    this.#grammars.set(text, followed)
    const [oldest] = this.#grammars.keys()
    if (this.#grammars.size > maxGrammars && oldest !== undefined) this.#grammars.delete(oldest)
    return followed
  }
}

export class CachedGrammar {
  readonly stacks: GrammarStacks
  readonly #root: number
  readonly #states = new Map<string, NextCharacters>()
  #size = 0

  constructor({ rules, root }: Grammar) {
    this.stacks = new GrammarStacks(rules)
    this.#root = root
  }

  /** This call and the returned state may throw `AmbiguousGrammarError`. */
  begin(): GrammarStart {
    const steps = new StepBudget()
    return { next: this.toState(this.stacks.begin(this.#root, steps), steps), steps }
  }

  growCache(size: number): void {
    this.#size += size
  }

  /** Returns the state that the stacks lead to. Equal states are the same object. */
  toState(starts: Iterable<Stack | null>, steps: StepBudget): NextCharacters {
    const stacks = new Set<Stack>()
    let canEnd = false
    for (const start of new Set(starts)) {
      const reached = this.stacks.findReachable(start, steps)
      steps.spend(1 + reached.stacks.length)
      for (const stack of reached.stacks) stacks.add(stack)
      canEnd ||= reached.canEnd
    }
    const ids = Float64Array.from(stacks, ({ id }) => id).toSorted()
    return this.#getState(`${canEnd} ${ids.join()}`, { stacks: [...stacks], canEnd })
  }

  /** Clears the cache if it is too large. Returns a state that is equal to the given one. */
  refresh({ key, stacks, isComplete }: NextCharacters): NextCharacters {
    if (this.#size + this.stacks.size >= maxCacheSize) {
      this.stacks.clearCache()
      this.#states.clear()
      this.#size = 0
    }
    return this.#getState(key, { stacks, canEnd: isComplete })
  }

  #getState(key: string, reached: ReachableStacks): NextCharacters {
    const known = this.#states.get(key)
    if (known !== undefined) return known
    const state = new NextCharacters(this, key, reached)
    this.#states.set(key, state)
    this.growCache(1 + reached.stacks.length)
    return state
  }
}

export class NextCharacters {
  readonly #grammar: CachedGrammar
  readonly key: string
  readonly stacks: readonly Stack[]
  readonly #nextByCode = new Map<number, NextCharacters | null>()
  /** The next states, by the indexes of the classes that contain the character. */
  readonly #afterClasses = new Map<string, NextCharacters>()
  #classes: readonly CharacterClass[] | null = null
  #firstBytes: Uint8Array | null = null
  readonly isComplete: boolean
  /** Whether the grammar allows a whole token here, regardless of its characters. */
  readonly namesToken: boolean

  constructor(grammar: CachedGrammar, key: string, { stacks, canEnd }: ReachableStacks) {
    this.#grammar = grammar
    this.key = key
    this.stacks = stacks
    this.isComplete = canEnd
    this.namesToken = stacks.some((stack) => nextElement(stack)?.kind === 'token')
  }

  after(code: number, steps: StepBudget): NextCharacters | null {
    const known = this.#nextByCode.get(code)
    if (known !== undefined) return known
    const next = this.#findNext(code, steps)
    this.#nextByCode.set(code, next)
    this.#grammar.growCache(1)
    return next
  }

  afterToken(token: number, steps: StepBudget): NextCharacters | null {
    if (!this.namesToken) return null
    return this.#toNextState(
      this.stacks.filter((stack) => matchesToken(nextElement(stack), token)),
      steps,
    )
  }

  mergeWith(other: NextCharacters, steps: StepBudget): NextCharacters {
    const canEnd = this.isComplete || other.isComplete
    const allStacks = [...this.stacks, ...other.stacks, ...(canEnd ? [null] : [])]
    return this.#grammar.toState(allStacks, steps)
  }

  /** Refills the step budget and returns an equal state. Call this for each chosen token. */
  afterChoice(steps: StepBudget): NextCharacters {
    steps.refill()
    return this.#grammar.refresh(this)
  }

  allowsFirstByte(byte: number): boolean {
    this.#firstBytes ??= this.#findFirstBytes()
    return this.#firstBytes[byte] === 1
  }

  /** Whether the next character may have a UTF-8 encoding that begins with these bytes. */
  allowsBytes(bytes: readonly number[]): boolean {
    const range = toCharacterRange(bytes)
    this.#classes ??= this.#findClasses()
    return range !== null && this.#classes.some(({ ranges }) => overlaps(ranges, ...range))
  }

  /** Results are cached by classes, because many characters are in the same classes. */
  #findNext(code: number, steps: StepBudget): NextCharacters | null {
    this.#classes ??= this.#findClasses()
    steps.spend(this.#classes.length)
    const found = this.#classes.filter(({ ranges }) => overlaps(ranges, code, code))
    if (found.length === 0) return null
    const key = found.map(({ at }) => at).join()
    const known = this.#afterClasses.get(key)
    if (known !== undefined) return known
    const read = found.flatMap(({ stacks }) => stacks)
    const next = this.#toNextState(read, steps)
    if (next !== null) this.#afterClasses.set(key, next)
    return next
  }

  #toNextState(read: readonly Stack[], steps: StepBudget): NextCharacters | null {
    const { stacks } = this.#grammar
    steps.spend(read.length)
    if (read.length === 0) return null
    return this.#grammar.toState(
      read.map((stack) => stacks.next(stack)),
      steps,
    )
  }

  #findClasses(): readonly CharacterClass[] {
    const classes = Map.groupBy(this.stacks, nextRanges)
    return [...classes].map(([ranges, stacks], at) => ({ at, ranges, stacks }))
  }

  #findFirstBytes(): Uint8Array {
    const allowed = new Uint8Array(256)
    this.#classes ??= this.#findClasses()
    for (const { ranges } of this.#classes) {
      for (const byte of findFirstBytes(ranges)) allowed[byte] = 1
    }
    return allowed
  }
}

interface CharacterClass {
  readonly at: number
  readonly ranges: readonly CharacterRange[]
  readonly stacks: readonly Stack[]
}

const matchesToken = (element: GrammarElement | undefined, token: number): boolean =>
  element?.kind === 'token' && (element.token === token) !== element.isNegated

function overlaps(ranges: readonly CharacterRange[], low: number, high: number): boolean {
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

const firstByteCache = new WeakMap<readonly CharacterRange[], readonly number[]>()

function findFirstBytes(ranges: readonly CharacterRange[]): readonly number[] {
  const known = firstByteCache.get(ranges)
  if (known !== undefined) return known
  const found = Array.from({ length: 256 }, (_, byte) => byte).filter((byte) => {
    const range = toCharacterRange([byte])
    return range !== null && overlaps(ranges, ...range)
  })
  firstByteCache.set(ranges, found)
  return found
}

/** The lowest characters that take two, three and four bytes. */
const lowestByLength = [0x80, 0x800, 0x1_0000]

/**
 * Returns the range of the characters whose UTF-8 encoding begins with these bytes; `null` if there
 * are none.
 */
function toCharacterRange([first = 0, ...later]: readonly number[]): CharacterRange | null {
  if (first < 0x80) return [first, first]
  if (first < 0xc2 || first > 0xf4 || later.some((byte) => byte >> 6 !== 0b10)) return null
  const count = first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3
  const given = later.reduce((sum, byte) => sum * 64 + (byte & 0x3f), first & (0x3f >> count))
  const size = 64 ** (count - later.length)
  const low = Math.max(given * size, lowestByLength[count - 1] ?? 0)
  const high = (given + 1) * size - 1
  return low <= high ? [low, high] : null
}

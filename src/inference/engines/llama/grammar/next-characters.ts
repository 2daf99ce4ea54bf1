/**
 * Which characters a grammar allows next. llama.cpp tells only whether one token is allowed, and
 * asking for every first character takes as long as a small model takes for a token. Pure.
 */

import type { CharacterRange, Grammar } from './gbnf.ts'
import { GrammarStacks, rangesOf, type Reached, type Stack } from './grammar-stacks.ts'

/** Answers that can be read in more ways are not followed. */
const mostSteps = 10_000

class TooManyWaysError extends Error {}

/** The rules of a grammar, and what one character of an answer may cost. */
class FollowedGrammar {
  readonly stacks: GrammarStacks
  #steps = 0

  constructor({ rules }: Grammar) {
    this.stacks = new GrammarStacks(rules, (steps) => {
      this.#steps += steps
      if (this.#steps > mostSteps) throw new TooManyWaysError()
    })
  }

  reach(starts: readonly (Stack | null)[]): Reached {
    this.#steps = 0
    const reached = starts.map((stack) => this.stacks.reach(stack))
    const stacks = new Set(reached.flatMap((one) => one.stacks))
    return { stacks: [...stacks], isEnd: reached.some(({ isEnd }) => isEnd) }
  }
}

/** After a part of an answer. Does not change. */
export class NextCharacters {
  readonly #grammar: FollowedGrammar
  readonly #stacks: readonly Stack[]
  /** Whether the answer may end here. */
  readonly isComplete: boolean

  private constructor(grammar: FollowedGrammar, { stacks, isEnd }: Reached) {
    this.#grammar = grammar
    this.#stacks = stacks
    this.isComplete = isEnd
  }

  /** At the beginning of an answer; `null` if the grammar cannot be followed by characters. */
  static start(grammar: Grammar): NextCharacters | null {
    const followed = new FollowedGrammar(grammar)
    return NextCharacters.#reach(followed, followed.stacks.begin(grammar.root))
  }

  /** After one more character; `null` if it is not allowed, or cannot be followed. */
  after(code: number): NextCharacters | null {
    const { stacks } = this.#grammar
    const read = this.#stacks.filter((stack) => hasAny(rangesOf(stack), code, code))
    if (read.length === 0) return null
    return NextCharacters.#reach(
      this.#grammar,
      read.map((stack) => stacks.next(stack)),
    )
  }

  allowsFirstByte(byte: number): boolean {
    return this.#stacks.some((stack) => firstBytesOf(rangesOf(stack))[byte] === true)
  }

  /** Whether a character may be next whose UTF-8 begins with these bytes. */
  allowsBeginning(bytes: readonly number[]): boolean {
    const range = rangeOfBytes(bytes)
    return range !== null && this.#stacks.some((stack) => hasAny(rangesOf(stack), ...range))
  }

  static #reach(
    grammar: FollowedGrammar,
    starts: readonly (Stack | null)[],
  ): NextCharacters | null {
    try {
      const reached = grammar.reach(starts)
      return reached.stacks.some(isAtToken) ? null : new NextCharacters(grammar, reached)
    } catch (error) {
      if (error instanceof TooManyWaysError) return null
      throw error
    }
  }
}

/** A token that the grammar names is compared as a whole. */
const isAtToken = ({ sequence, at }: Stack): boolean => sequence[at]?.kind === 'token'

const hasAny = (ranges: readonly CharacterRange[], low: number, high: number): boolean =>
  ranges.some(([from, to]) => from <= high && to >= low)

/** By first byte in UTF-8, whether a character that begins with it is in the ranges. */
const firstBytes = new WeakMap<readonly CharacterRange[], readonly boolean[]>()

function firstBytesOf(ranges: readonly CharacterRange[]): readonly boolean[] {
  const known = firstBytes.get(ranges)
  if (known !== undefined) return known
  const found = Array.from({ length: 256 }, (_, byte) => {
    const range = rangeOfBytes([byte])
    return range !== null && hasAny(ranges, ...range)
  })
  firstBytes.set(ranges, found)
  return found
}

/** The lowest character of two, three and four bytes. */
const lowest = [0x80, 0x800, 0x1_0000]

/** The characters whose UTF-8 begins with these bytes; `null` if there are none. */
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

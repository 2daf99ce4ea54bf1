/** The positions in a grammar's rules after a text, for all ways to parse it. Pure. */

import type { CharacterRange, GrammarElement, GrammarRules } from './gbnf.ts'

/** A position in a rule. */
interface RulePosition {
  readonly sequence: readonly GrammarElement[]
  readonly at: number
  readonly id: number
  /** `null` at the end of the sequence, `undefined` if not computed yet. */
  next: RulePosition | null | undefined
}

/**
 * A position in a rule, and the stack to continue with after the rule. Equal stacks are the same
 * object.
 */
export interface Stack {
  readonly id: number
  readonly place: RulePosition
  readonly below: Stack | null
  reached: Reached | null
}

/** The stacks that can be reached without reading another character. */
export interface Reached {
  /** Each stack is at characters or at a token. */
  readonly stacks: readonly Stack[]
  /** Whether the text may end here. */
  readonly isEnd: boolean
}

/** The maximum number of consecutive steps, which take some hundredths of a second. */
const maxSteps = 80_000
/** The number of steps that each token adds to the remaining steps. */
const stepsOfToken = 20_000

/**
 * Thrown if an answer can be parsed in so many ways that evaluating the grammar would delay others.
 */
export class TooManyWaysError extends Error {
  constructor() {
    super('the grammar has too many ways to read the same text: make its choices distinct')
  }
}

/** The remaining steps of one answer. */
export class AnswerSteps {
  #left = maxSteps

  spend(count: number): void {
    this.#left -= count
    if (this.#left < 0) throw new TooManyWaysError()
  }

  /** Called when a token was chosen. */
  add(): void {
    this.#left = Math.min(maxSteps, this.#left + stepsOfToken)
  }
}

/** A factor for the keys of stacks, larger than the number of positions in any grammar. */
const keysOfStack = 2 ** 21

export class GrammarStacks {
  readonly #rules: GrammarRules
  /** The first position of each sequence. */
  readonly #places = new Map<readonly GrammarElement[], RulePosition>()
  readonly #stacks = new Map<number, Stack>()
  #placeCount = 0
  #lastId = 0
  #size = 0

  constructor(rules: GrammarRules) {
    this.#rules = rules
  }

  /** The number of cached stacks and of their entries in lists. */
  get size(): number {
    return this.#size
  }

  /** The stacks at the beginning of a rule's text. */
  begin(rule: number, steps: AnswerSteps): readonly (Stack | null)[] {
    return this.#enter(rule, null, steps)
  }

  /** The stack at the next position; `null` at the end of the whole text. */
  next({ place, below }: Stack): Stack | null {
    const next = this.#after(place)
    return next === null ? below : this.#stack(next, below)
  }

  /** Enters and leaves rules until characters or tokens are reached. */
  reach(stack: Stack | null, steps: AnswerSteps): Reached {
    if (stack === null) return atEnd
    if (stack.reached !== null) return stack.reached
    const [stacks, seen] = [new Set<Stack>(), new Set<Stack | null>()]
    const waiting: (Stack | null)[] = [stack]
    for (let top = waiting.pop(); top !== undefined; top = waiting.pop()) {
      if (seen.has(top)) continue
      seen.add(top)
      steps.spend(1)
      if (top === null) continue
      const element = elementOf(top)
      if (element?.kind !== 'rule') stacks.add(top)
      else for (const one of this.#enter(element.rule, this.next(top), steps)) waiting.push(one)
    }
    const reached = { stacks: [...stacks], isEnd: seen.has(null) }
    this.#size += stacks.size
    stack.reached = reached
    return reached
  }

  /**
   * Clears the cache. Stacks in use stay valid. A stack that is created again is not the same
   * object as one in use, so some equal ways may be followed twice.
   */
  forget(): void {
    this.#stacks.clear()
    this.#size = 0
  }

  #enter(rule: number, after: Stack | null, steps: AnswerSteps): readonly (Stack | null)[] {
    const sequences = this.#rules[rule] ?? []
    // Charged for every sequence, including sequences that were seen before.
    steps.spend(sequences.length)
    return sequences.map((one) => (one.length > 0 ? this.#stack(this.#start(one), after) : after))
  }

  #start(sequence: readonly GrammarElement[]): RulePosition {
    const place = this.#places.get(sequence) ?? this.#createPosition(sequence, 0)
    this.#places.set(sequence, place)
    return place
  }

  #after(place: RulePosition): RulePosition | null {
    const { sequence, at } = place
    place.next ??= at + 1 < sequence.length ? this.#createPosition(sequence, at + 1) : null
    return place.next
  }

  #createPosition(sequence: readonly GrammarElement[], at: number): RulePosition {
    return { sequence, at, id: this.#placeCount++, next: undefined }
  }

  #stack(place: RulePosition, below: Stack | null): Stack {
    const key = (below === null ? 0 : below.id) * keysOfStack + place.id
    const known = this.#stacks.get(key)
    if (known !== undefined) return known
    const stack = { id: ++this.#lastId, place, below, reached: null }
    this.#stacks.set(key, stack)
    this.#size++
    return stack
  }
}

const atEnd: Reached = { stacks: [], isEnd: true }

export const elementOf = ({ place }: Stack): GrammarElement | undefined => place.sequence[place.at]

/** The ranges of the characters at the stack's position; empty at a token. */
export function rangesOf(stack: Stack): readonly CharacterRange[] {
  const element = elementOf(stack)
  return element?.kind === 'characters' ? element.ranges : noRanges
}

const noRanges: readonly CharacterRange[] = []

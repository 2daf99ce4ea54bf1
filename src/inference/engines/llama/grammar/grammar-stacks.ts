/**
 * Finds the positions in a grammar's rules that a text leads to, in all ways to parse it. Pure.
 */

import type { CharacterRange, GrammarElement, GrammarRules } from './gbnf.ts'

interface RulePosition {
  readonly sequence: readonly GrammarElement[]
  readonly at: number
  readonly id: number
  /** The next position; `null` at the end of the sequence, and `undefined` until it is computed. */
  next: RulePosition | null | undefined
}

/** A position in a rule, and the stack that follows the rule. Equal stacks are the same object. */
export interface Stack {
  readonly id: number
  readonly position: RulePosition
  readonly parent: Stack | null
  reachable: ReachableStacks | null
}

export interface ReachableStacks {
  /** The next element of each stack is a character or a token. */
  readonly stacks: readonly Stack[]
  readonly canEnd: boolean
}

/** The maximum number of steps in a budget. They take a few hundredths of a second. */
const maxSteps = 80_000
const stepsPerToken = 20_000

/** Thrown if following all ways to read an answer would delay other requests. */
export class AmbiguousGrammarError extends Error {
  constructor() {
    super('the grammar has too many ways to read the same text: make its choices distinct')
  }
}

export class StepBudget {
  #stepsLeft = maxSteps

  spend(count: number): void {
    this.#stepsLeft -= count
    if (this.#stepsLeft < 0) throw new AmbiguousGrammarError()
  }

  refill(): void {
    this.#stepsLeft = Math.min(maxSteps, this.#stepsLeft + stepsPerToken)
  }
}

/** A number above the number of positions in any grammar, so that the keys of stacks are unique. */
const maxPositions = 2 ** 21

export class GrammarStacks {
  readonly #rules: GrammarRules
  readonly #firstPositions = new Map<readonly GrammarElement[], RulePosition>()
  readonly #stacks = new Map<number, Stack>()
  #positionCount = 0
  #lastId = 0
  size = 0

  constructor(rules: GrammarRules) {
    this.#rules = rules
  }

  begin(rule: number, steps: StepBudget): readonly (Stack | null)[] {
    return this.#enterRule(rule, null, steps)
  }

  /** Returns the stack at the next position, or `null` at the end of the whole text. */
  next({ position, parent }: Stack): Stack | null {
    const next = this.#nextPosition(position)
    return next === null ? parent : this.#getStack(next, parent)
  }

  findReachable(stack: Stack | null, steps: StepBudget): ReachableStacks {
    if (stack === null) return endOfText
    if (stack.reachable !== null) return stack.reachable
    const [stacks, seen] = [new Set<Stack>(), new Set<Stack | null>()]
    const waiting: (Stack | null)[] = [stack]
    for (let top = waiting.pop(); top !== undefined; top = waiting.pop()) {
      if (seen.has(top)) continue
      seen.add(top)
      steps.spend(1)
      if (top === null) continue
      const element = nextElement(top)
      if (element?.kind !== 'rule') stacks.add(top)
      else for (const one of this.#enterRule(element.rule, this.next(top), steps)) waiting.push(one)
    }
    const reachable = { stacks: [...stacks], canEnd: seen.has(null) }
    this.size += stacks.size
    stack.reachable = reachable
    return reachable
  }

  /**
   * Clears the cache. Stacks that are created later differ from equal older ones, so some ways to
   * parse a text may be followed twice.
   */
  clearCache(): void {
    this.#stacks.clear()
    this.size = 0
  }

  #enterRule(rule: number, after: Stack | null, steps: StepBudget): readonly (Stack | null)[] {
    const sequences = this.#rules[rule] ?? []
    // Every sequence costs a step, even if it was seen before.
    steps.spend(sequences.length)
    return sequences.map((one) =>
      one.length > 0 ? this.#getStack(this.#firstPosition(one), after) : after,
    )
  }

  #firstPosition(sequence: readonly GrammarElement[]): RulePosition {
    const position = this.#firstPositions.get(sequence) ?? this.#createPosition(sequence, 0)
    this.#firstPositions.set(sequence, position)
    return position
  }

  #nextPosition(position: RulePosition): RulePosition | null {
    const { sequence, at } = position
    position.next ??= at + 1 < sequence.length ? this.#createPosition(sequence, at + 1) : null
    return position.next
  }

  #createPosition(sequence: readonly GrammarElement[], at: number): RulePosition {
    return { sequence, at, id: this.#positionCount++, next: undefined }
  }

  #getStack(position: RulePosition, parent: Stack | null): Stack {
    const key = (parent === null ? 0 : parent.id) * maxPositions + position.id
    const known = this.#stacks.get(key)
    if (known !== undefined) return known
    const stack = { id: ++this.#lastId, position, parent, reachable: null }
    this.#stacks.set(key, stack)
    this.size++
    return stack
  }
}

const endOfText: ReachableStacks = { stacks: [], canEnd: true }

export const nextElement = ({ position }: Stack): GrammarElement | undefined =>
  position.sequence[position.at]

export function nextRanges(stack: Stack): readonly CharacterRange[] {
  const element = nextElement(stack)
  return element?.kind === 'characters' ? element.ranges : noRanges
}

const noRanges: readonly CharacterRange[] = []

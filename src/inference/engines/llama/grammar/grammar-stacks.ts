/** Where a text stands in the rules of a grammar, in all ways to read it. Pure. */

import type { CharacterRange, GrammarElement, GrammarRules } from './gbnf.ts'

/** A place in a rule. */
interface RulePosition {
  readonly sequence: readonly GrammarElement[]
  readonly at: number
  readonly id: number
  /** `null` at the end of the sequence, `undefined` before it was asked for. */
  next: RulePosition | null | undefined
}

/** A place in a rule, and where reading goes on after the rule. Equal ones are the same object. */
export interface Stack {
  readonly id: number
  readonly place: RulePosition
  readonly below: Stack | null
  reached: Reached | null
}

/** What can be reached without another character. */
export interface Reached {
  /** Each stands at characters or at a token. */
  readonly stacks: readonly Stack[]
  /** Whether the text may end. */
  readonly isEnd: boolean
}

/** Limits what is computed. */
export interface Steps {
  /** May throw. */
  spend(count: number): void
}

/** More than a grammar has places. */
const keysOfStack = 2 ** 21

export class GrammarStacks {
  readonly #rules: GrammarRules
  /** The first of each sequence. */
  readonly #places = new Map<readonly GrammarElement[], RulePosition>()
  readonly #stacks = new Map<number, Stack>()
  #placeCount = 0
  #size = 0

  constructor(rules: GrammarRules) {
    this.#rules = rules
  }

  /** How much it remembers. */
  get size(): number {
    return this.#size
  }

  /** At the beginning of a text of one rule. */
  begin(rule: number, steps: Steps): readonly (Stack | null)[] {
    return this.#enter(rule, null, steps)
  }

  /** The place after this one; `null` at the end of all. */
  next({ place, below }: Stack): Stack | null {
    const next = this.#after(place)
    return next === null ? below : this.#stack(next, below)
  }

  /** After all rules that a text may enter or leave there. */
  reach(stack: Stack | null, steps: Steps): Reached {
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

  /** The same stacks as others have, of which nothing else is remembered here. */
  adopt(stacks: readonly Stack[], steps: Steps): readonly Stack[] {
    const adopted = new Map<Stack | null, Stack>()
    return stacks.map((stack) => {
      const chain: Stack[] = []
      let one: Stack | null = stack
      for (; one !== null && !adopted.has(one); one = one.below) chain.push(one)
      let below = adopted.get(one) ?? null
      for (const part of chain.toReversed()) {
        steps.spend(1)
        below = this.#stack(this.#place(part.place.sequence, part.place.at), below)
        adopted.set(part, below)
      }
      return below ?? stack
    })
  }

  #enter(rule: number, after: Stack | null, steps: Steps): readonly (Stack | null)[] {
    const sequences = this.#rules[rule] ?? []
    // Each is a step, also one that was seen before.
    steps.spend(sequences.length)
    return sequences.map((one) =>
      one.length > 0 ? this.#stack(this.#place(one, 0), after) : after,
    )
  }

  #place(sequence: readonly GrammarElement[], at: number): RulePosition {
    let place = this.#places.get(sequence) ?? this.#createPosition(sequence, 0)
    this.#places.set(sequence, place)
    while (place.at < at) place = this.#after(place) ?? place
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
    const stack = { id: this.#stacks.size + 1, place, below, reached: null }
    this.#stacks.set(key, stack)
    this.#size++
    return stack
  }
}

const atEnd: Reached = { stacks: [], isEnd: true }

export const elementOf = ({ place }: Stack): GrammarElement | undefined => place.sequence[place.at]

/** Of the characters at which it stands. */
export function rangesOf(stack: Stack): readonly CharacterRange[] {
  const element = elementOf(stack)
  return element?.kind === 'characters' ? element.ranges : noRanges
}

const noRanges: readonly CharacterRange[] = []

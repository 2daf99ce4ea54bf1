/** Where a text stands in the rules of a grammar, in all ways to read it. Pure. */

import type { CharacterRange, GrammarElement, GrammarRules } from './gbnf.ts'

/** A place in a rule, and where reading goes on after the rule. Equal ones are the same object. */
export interface Stack {
  readonly sequence: readonly GrammarElement[]
  readonly at: number
  readonly below: Stack | null
  readonly above: Map<readonly GrammarElement[], Map<number, Stack>>
}

/** What can be reached without another character. */
export interface Reached {
  /** Each stands at characters or at a token. */
  readonly stacks: readonly Stack[]
  /** Whether the text may end. */
  readonly isEnd: boolean
}

export class GrammarStacks {
  readonly #rules: GrammarRules
  /** Called with the number of steps that were taken; may throw. */
  readonly #spend: (steps: number) => void
  readonly #bottom: Stack['above'] = new Map()
  readonly #reached = new Map<Stack, Reached>()

  constructor(rules: GrammarRules, spend: (steps: number) => void) {
    this.#rules = rules
    this.#spend = spend
  }

  /** At the beginning of a text of one rule. */
  begin(rule: number): readonly (Stack | null)[] {
    return this.#enter(rule, null)
  }

  /** The place after this one; `null` at the end of all. */
  next({ sequence, at, below }: Stack): Stack | null {
    return at + 1 < sequence.length ? this.#stack(sequence, at + 1, below) : below
  }

  /** After all rules that a text may enter or leave there. */
  reach(stack: Stack | null): Reached {
    if (stack === null) return atEnd
    const known = this.#reached.get(stack)
    if (known !== undefined) return known
    const [stacks, seen] = [new Set<Stack>(), new Set<Stack | null>()]
    const waiting: (Stack | null)[] = [stack]
    for (let top = waiting.pop(); top !== undefined; top = waiting.pop()) {
      if (seen.has(top)) continue
      seen.add(top)
      this.#spend(1)
      const element = top?.sequence[top.at]
      if (top === null || element === undefined) continue
      if (element.kind !== 'rule') stacks.add(top)
      else for (const one of this.#enter(element.rule, this.next(top))) waiting.push(one)
    }
    const reached = { stacks: [...stacks], isEnd: seen.has(null) }
    this.#reached.set(stack, reached)
    return reached
  }

  #enter(rule: number, after: Stack | null): readonly (Stack | null)[] {
    const sequences = this.#rules[rule] ?? []
    return sequences.map((one) => (one.length > 0 ? this.#stack(one, 0, after) : after))
  }

  #stack(sequence: readonly GrammarElement[], at: number, below: Stack | null): Stack {
    const all = below === null ? this.#bottom : below.above
    const ofSequence = all.get(sequence) ?? new Map<number, Stack>()
    all.set(sequence, ofSequence)
    const stack = ofSequence.get(at) ?? { sequence, at, below, above: new Map() }
    ofSequence.set(at, stack)
    return stack
  }
}

const atEnd: Reached = { stacks: [], isEnd: true }

/** Of the characters at which it stands. */
export function rangesOf({ sequence, at }: Stack): readonly CharacterRange[] {
  const element = sequence[at]
  return element?.kind === 'characters' ? element.ranges : []
}

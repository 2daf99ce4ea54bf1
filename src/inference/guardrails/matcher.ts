/** What the search for matches of rules promises, whatever the rules look for. */

import type { Steps } from '../../runtime/turn-budget.ts'
import type { GuardAction } from './rules.ts'

/**
 * Characters after a match's first one that a search is sure to see: the longest match that is
 * certain to be found whole, and by how much an answer is held back.
 */
export const reach = 256
/** Characters before the matches that a search can see, for words and exceptions across borders. */
export const lookBack = 160

/** A part of a text, with what stands around it. */
export interface Stretch {
  /** From up to `lookBack` before `begin` to `reach` after `end`, or to the end of the text. */
  readonly text: string
  /** Matches that begin from here on and before `end` belong to the stretch. */
  readonly begin: number
  readonly end: number
  /** Whether the text ends where `text` does. */
  readonly isLast: boolean
}

export interface Match {
  readonly rule: string
  readonly action: GuardAction
  /** Of the rule in the configuration: decides between matches that begin together. */
  readonly order: number
  readonly start: number
  readonly end: number
  /** A global expression that finds the end of a match whose length is unknown. */
  readonly until: RegExp | null
}

export interface Matcher {
  /** Whether it finds at least the same in a text that stands between line breaks. */
  readonly isLocal: boolean
  /**
   * The matches that belong to a stretch; none is empty. Of a rule that does not redact, the first
   * one is enough; rules in `reported` are left out. Each step takes a few milliseconds at most.
   */
  find(stretch: Stretch, reported: ReadonlySet<string>): Steps<readonly Match[]>
}

/** The rules of the guardrails as data, and the port of the matchers that search for them. */

import type { Steps } from '../../runtime/turn-budget.ts'

/** Whether a rule reads prompts, answers or both. */
export type GuardStage = 'input' | 'output' | 'both'

/** What follows from a match: the text is rejected, the match is replaced, or it is reported. */
export type GuardAction = 'reject' | 'redact' | 'flag'

export const builtInRules = ['injection', 'secrets', 'personal_data', 'limits'] as const

export type BuiltInRule = (typeof builtInRules)[number]

interface RuleBase {
  readonly id: string
  readonly stage: GuardStage
  readonly action: GuardAction
}

/** A built-in rule. `injection` and `limits` apply to input only. */
export interface NamedRule extends RuleBase {
  readonly kind: 'built-in'
  readonly id: BuiltInRule
}

/** Words of the user, whole, in any case. Matches that an `unless` phrase overlaps are ignored. */
export interface KeywordRule extends RuleBase {
  readonly kind: 'keywords'
  readonly keywords: readonly string[]
  readonly unless: readonly string[]
}

/** A regular expression of the user, in any case; `findPatternProblem` has accepted it. */
export interface PatternRule extends RuleBase {
  readonly kind: 'pattern'
  readonly pattern: string
  readonly unless: readonly string[]
}

/** A rule of the section `guardrails`. */
export type GuardRule = NamedRule | KeywordRule | PatternRule

/** The section `guardrails`. */
export interface GuardrailConfig {
  readonly isOn: boolean
  /** Of the injection rule, 0 to 1: at 0 everything passes, at 1 the weakest sign is enough. */
  readonly sensitivity: number
  /** In the order in which hits are reported. */
  readonly rules: readonly GuardRule[]
  readonly maxPromptChars: number | null
  /** The default of rules. */
  readonly action: GuardAction
  /** Whether a blocked prompt or answer is an error or a fixed sentence. */
  readonly onBlock: 'error' | 'refusal'
}

/** A rule that a text matched. The matched words are not reported. */
export interface GuardHit {
  readonly rule: string
  readonly action: GuardAction
  /** What the client is told besides the rule. */
  readonly reason?: string
}

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

/** The guardrail rules as data, and the port of the matchers that search for them. */

import type { Steps } from '../../runtime/turn-budget.ts'

/** Whether a rule judges prompts, answers or both. */
export type GuardStage = 'input' | 'output' | 'both'

/** The effect of a match: the text is rejected, the match is replaced, or it is only reported. */
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

/** Whole words of the user, in any case. Matches that an `unless` phrase overlaps are ignored. */
export interface KeywordRule extends RuleBase {
  readonly kind: 'keywords'
  readonly keywords: readonly string[]
  readonly unless: readonly string[]
}

/** A regular expression of the user, which ignores case; `findPatternProblem` accepted it. */
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
  /**
   * The sensitivity of the injection rule, 0 to 1: at 0 everything passes, at 1 any sign is enough.
   */
  readonly sensitivity: number
  /** The rules, in the order in which hits are reported. */
  readonly rules: readonly GuardRule[]
  readonly maxPromptChars: number | null
  /** The default action of rules. */
  readonly action: GuardAction
  /** Whether blocked text is reported as an error or replaced by a fixed sentence. */
  readonly onBlock: 'error' | 'refusal'
}

/** A rule that a text matched. The matched words are not reported. */
export interface GuardHit {
  readonly rule: string
  readonly action: GuardAction
  /** An explanation for the client, besides the name of the rule. */
  readonly reason?: string
}

/**
 * The number of characters after a match's first one that a search is sure to see: longer matches
 * may be found in part. An answer is held back by this much.
 */
export const reach = 256
/**
 * The number of characters before a match that a search sees, for words and exceptions at borders.
 */
export const lookBack = 160

/** A part of a text, with the text around it. */
export interface Stretch {
  /**
   * The text from up to `lookBack` before `begin` to `reach` after `end`, or to the end of the
   * text.
   */
  readonly text: string
  /** Matches that begin from `begin` to before `end` belong to the stretch. */
  readonly begin: number
  readonly end: number
  /** Whether the whole text ends at the end of `text`. */
  readonly isLast: boolean
}

export interface Match {
  readonly rule: string
  readonly action: GuardAction
  /** The position of the rule in the configuration; decides between matches that begin together. */
  readonly order: number
  readonly start: number
  readonly end: number
  /** A global expression that finds the end of a match whose length is unknown. */
  readonly until: RegExp | null
}

export interface Matcher {
  /** Whether surrounding a text with line breaks never removes a match. */
  readonly isLocal: boolean
  /**
   * Returns the matches that belong to a stretch; none is empty. For a rule that does not redact,
   * the first match is enough; rules in `reported` are skipped. Each step takes a few milliseconds
   * at most.
   */
  find(stretch: Stretch, reported: ReadonlySet<string>): Steps<readonly Match[]>
}

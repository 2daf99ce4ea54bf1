/** The guardrail rules as data, and the interface of the matchers that apply them. */

import type { Steps } from '../../runtime/turn-budget.ts'

/** Whether a rule judges prompts, answers or both. */
export type GuardStage = 'input' | 'output' | 'both'

/** The effect of a match: the text is rejected, the match is replaced, or the match is reported. */
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

/** Whole words, in any case. Matches that overlap an `unless` phrase are ignored. */
export interface KeywordRule extends RuleBase {
  readonly kind: 'keywords'
  readonly keywords: readonly string[]
  readonly unless: readonly string[]
}

/** A case-insensitive regular expression. Matches that overlap an `unless` phrase are ignored. */
export interface PatternRule extends RuleBase {
  readonly kind: 'pattern'
  readonly pattern: string
  readonly unless: readonly string[]
}

/** A built-in rule, a list of keywords or a regular expression. */
export type GuardRule = NamedRule | KeywordRule | PatternRule

/** The rules for prompts and answers (section `guardrails`). */
export interface GuardrailConfig {
  readonly isOn: boolean
  /** The sensitivity of the injection rule, from 0 (everything passes) to 1 (any sign is a hit). */
  readonly sensitivity: number
  /** The rules, in the order in which hits are reported. */
  readonly rules: readonly GuardRule[]
  readonly maxPromptChars: number | null
  /** The default action of rules. */
  readonly action: GuardAction
  /** Whether blocked text is reported as an error or replaced by a fixed sentence. */
  readonly onBlock: 'error' | 'refusal'
}

/** A rule that matched a text. The matched text is not included. */
export interface GuardHit {
  readonly rule: string
  readonly action: GuardAction
  /** An explanation for the client, besides the name of the rule. */
  readonly reason?: string
}

/**
 * How many characters after the beginning of a match a search always sees. Longer matches may be
 * found in part. An answer is held back by this many characters.
 */
export const reach = 256
/** How many characters before a match a search sees, for word boundaries and exceptions. */
export const lookBack = 160

/** A part of a text, with the text around it. */
export interface Stretch {
  /** The part and its surroundings: up to `lookBack` characters before it and `reach` after it. */
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
  /** The index of the rule in the configuration, which orders matches that begin together. */
  readonly order: number
  readonly start: number
  readonly end: number
  /** Finds the end of a match of unknown length; `null` if `end` is the end of the match. */
  readonly until: RegExp | null
}

export interface Matcher {
  /** Whether all matches in a text stay when line breaks are put around the text. */
  readonly isLocal: boolean
  /**
   * Returns the non-empty matches that belong to a stretch. For a rule that does not redact, the
   * first match is enough. Rules in `reported` are skipped. Each step takes at most a few
   * milliseconds.
   */
  find(stretch: Stretch, reported: ReadonlySet<string>): Steps<readonly Match[]>
}

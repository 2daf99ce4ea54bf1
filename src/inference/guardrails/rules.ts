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

/**
 * A rule that finds whole words, in upper or lower case. Matches that overlap an `unless` phrase
 * are ignored.
 */
export interface KeywordRule extends RuleBase {
  readonly kind: 'keywords'
  readonly keywords: readonly string[]
  readonly unless: readonly string[]
}

/** A regular expression that ignores case. Matches that overlap an `unless` phrase are ignored. */
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
 * The number of characters from the beginning of a match that a search always sees. A longer match
 * may be found only in part. An answer is held back by this many characters.
 */
export const lookAhead = 256
/** The characters before a match that a search sees, for word boundaries and exceptions. */
export const lookBack = 160

export interface TextSegment {
  /** The part, up to `lookBack` characters before it and `lookAhead` characters after it. */
  readonly text: string
  /** A match belongs to the segment if it begins at or after `begin` and before `end`. */
  readonly begin: number
  readonly end: number
  /** Whether the whole text ends at the end of `text`. */
  readonly isLast: boolean
}

export interface Match {
  readonly rule: string
  readonly action: GuardAction
  /** The index of the rule. It orders matches that begin at the same position. */
  readonly order: number
  readonly start: number
  readonly end: number
  /** Finds the end of a match whose length is unknown; `null` if the match ends at `end`. */
  readonly endPattern: RegExp | null
}

export interface Matcher {
  /** Whether the matches of a text stay the same if line breaks are added around the text. */
  readonly isLocal: boolean
  /**
   * Returns the non-empty matches that belong to a segment. For a rule that does not redact, the
   * first match is enough. Rules in `reported` are skipped. Each step takes at most a few
   * milliseconds.
   */
  find(segment: TextSegment, reported: ReadonlySet<string>): Steps<readonly Match[]>
}

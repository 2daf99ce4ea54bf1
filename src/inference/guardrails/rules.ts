/** The rules of the guardrails as data: what may be configured, not how it is applied. */

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

export type GuardRule = NamedRule | KeywordRule | PatternRule

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
}

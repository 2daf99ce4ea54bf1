/** The guardrails' rules as data: what may be configured, not how it is judged. */

export type GuardStage = 'input' | 'output' | 'both'

/** What a match leads to: the text is refused, the match is replaced, or it is only reported. */
export type GuardAction = 'reject' | 'redact' | 'flag'

export const builtInRules = ['injection', 'secrets', 'personal_data', 'limits'] as const

export type BuiltInRule = (typeof builtInRules)[number]

interface RuleBase {
  readonly id: string
  readonly stage: GuardStage
  readonly action: GuardAction
}

/** A rule of ours. `injection` and `limits` judge input alone. */
export interface NamedRule extends RuleBase {
  readonly kind: 'built-in'
  readonly id: BuiltInRule
}

/** Own words, whole and in any case. A match that an `unless` phrase overlaps is none. */
export interface KeywordRule extends RuleBase {
  readonly kind: 'keywords'
  readonly keywords: readonly string[]
  readonly unless: readonly string[]
}

/** An own regular expression, in any case; `findDanger` in own-pattern.ts found none in it. */
export interface PatternRule extends RuleBase {
  readonly kind: 'pattern'
  readonly pattern: string
  readonly unless: readonly string[]
}

export type GuardRule = NamedRule | KeywordRule | PatternRule

export interface GuardrailConfig {
  readonly isOn: boolean
  /** 0 to 1, of the injection rule: 0 lets everything pass, 1 takes the slightest sign. */
  readonly sensitivity: number
  /** In the order in which hits are told. */
  readonly rules: readonly GuardRule[]
  readonly maxPromptChars: number | null
  /** Of rules that name none. */
  readonly action: GuardAction
  /** Whether a blocked prompt or answer is an error or a fixed sentence. */
  readonly onBlock: 'error' | 'refusal'
}

/** What happened to a text. The matched words are told to nobody. */
export interface GuardHit {
  readonly rule: string
  readonly action: GuardAction
}

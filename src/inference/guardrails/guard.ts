/** Judges prompts before they are queued and answers while they are written. Pure. */

import { findInjections } from './injection.ts'
import { createMatcher, type Matcher } from './matchers.ts'
import type { BuiltInRule, GuardAction, GuardHit, GuardrailConfig, GuardRule } from './rules.ts'
import { type OutputGuard, SlidingScan } from './sliding-scan.ts'

export type { OutputGuard } from './sliding-scan.ts'

/** A hit names a rule and never the words that it found. */
export type Verdict =
  | { readonly action: 'pass'; readonly text: string; readonly hits: readonly GuardHit[] }
  | { readonly action: 'block'; readonly hits: readonly GuardHit[] }

export interface Guard {
  /** Whether any rule looks at prompts; where none does, there is nothing to ask here. */
  readonly judgesInput: boolean
  /** Of a whole question with so many characters; a hit that rejects ends it. */
  checkLength(chars: number): readonly GuardHit[]
  /** Judged before anything is queued: the text to go on with, or that there is none. */
  checkInput(text: string): Verdict
  /** For one answer; `null` where no rule looks at answers, so that all of it may be shown. */
  openOutput(): OutputGuard | null
  /** The sentence that stands in place of what was blocked; `null` where that is an error. */
  readonly refusal: string | null
}

/** Steps of input are long: all of it is there. An answer's are short, or it would be seen late. */
const inputStep = 8192
const outputStep = 64

const refusal = 'I cannot help with this request.'

export function createGuard(config: GuardrailConfig): Guard {
  const rules = config.isOn ? config.rules : []
  const input = matchersOf(rules, 'input')
  const output = matchersOf(rules, 'output')
  return {
    judgesInput: rules.some(({ stage }) => stage !== 'output'),
    checkLength: (chars) => checkLength(chars, config, rules),
    checkInput: (text) => checkInput(text, config, rules, input),
    openOutput: () => (output.length === 0 ? null : new SlidingScan(output, outputStep)),
    refusal: config.onBlock === 'refusal' ? refusal : null,
  }
}

const matchersOf = (rules: readonly GuardRule[], stage: 'input' | 'output'): Matcher[] =>
  rules.filter((rule) => rule.stage === stage || rule.stage === 'both').flatMap(createMatcher)

const actionOf = (rules: readonly GuardRule[], id: BuiltInRule): GuardAction | undefined =>
  rules.find((rule) => rule.kind === 'built-in' && rule.id === id)?.action

function checkLength(
  chars: number,
  { maxPromptChars }: GuardrailConfig,
  rules: readonly GuardRule[],
): readonly GuardHit[] {
  const action = actionOf(rules, 'limits')
  if (action === undefined || maxPromptChars === null || chars <= maxPromptChars) return []
  // Cutting a prompt short would answer another question, so `redact` rejects as well.
  return [{ rule: 'limits', action: action === 'flag' ? 'flag' : 'reject' }]
}

/** First what looks at the whole text, then what looks at its parts. */
function checkInput(
  text: string,
  { sensitivity }: GuardrailConfig,
  rules: readonly GuardRule[],
  matchers: readonly Matcher[],
): Verdict {
  const hits: GuardHit[] = []
  let passed = text
  const injection = actionOf(rules, 'injection')
  if (injection !== undefined) {
    const found = findInjections(text, sensitivity)
    if (found.length > 0) hits.push({ rule: 'injection', action: injection })
    if (found.length > 0 && injection === 'reject') return { action: 'block', hits }
    if (injection === 'redact') passed = redact(text, found)
  }
  if (matchers.length === 0) return { action: 'pass', text: passed, hits }
  const scan = new SlidingScan(matchers, inputStep)
  const parts = [scan.push(passed), scan.finish()]
  hits.push(...parts.flatMap((part) => part.hits))
  if (parts.some(({ isBlocked }) => isBlocked)) return { action: 'block', hits }
  return { action: 'pass', text: parts.map(({ release }) => release).join(''), hits }
}

function redact(text: string, spans: readonly { start: number; end: number }[]): string {
  let [redacted, at] = ['', 0]
  for (const { start, end } of spans.toSorted((a, b) => a.start - b.start)) {
    if (start >= at) redacted += `${text.slice(at, start)}[redacted:injection]`
    at = Math.max(at, end)
  }
  return redacted + text.slice(at)
}

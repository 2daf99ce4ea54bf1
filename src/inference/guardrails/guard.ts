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
  /** Those of very many texts that need to be judged: all others pass, and hit nothing. */
  suspectsOf(texts: readonly string[]): ReadonlySet<string>
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
    suspectsOf: (texts) => suspectsOf(texts, config, rules, input),
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

/** Longer than any gap between words, with a letter that ends every phrase. */
const apart = `${'\n'.repeat(8)}x${'\n'.repeat(8)}`

/**
 * A text costs something however short it is, so short ones are looked at together, as many as fit
 * in a step. A text beyond that, or with a rule that looks around it, is always suspect.
 */
function suspectsOf(
  texts: readonly string[],
  { sensitivity }: GuardrailConfig,
  rules: readonly GuardRule[],
  matchers: readonly Matcher[],
): ReadonlySet<string> {
  if (matchers.some(({ isLocal }) => !isLocal)) return new Set(texts)
  const seeksInjection = actionOf(rules, 'injection') !== undefined
  const mayHit = (group: readonly string[]): boolean => {
    const joined = group.join(apart)
    if (joined.length > inputStep) return true
    if (seeksInjection && findInjections(joined, sensitivity).length > 0) return true
    return matchers.some(({ find }) => find(joined, 0, joined.length).length > 0)
  }
  const groups = groupsOf(new Set(texts)).filter(mayHit)
  return new Set(groups.flatMap(piecesOf).filter(mayHit).flat())
}

/** Smaller groups, so that one hit does not make many texts suspect. */
function piecesOf(group: readonly string[]): (readonly string[])[] {
  const count = Math.ceil(group.length / pieceSize)
  return Array.from({ length: count }, (_, at) => group.slice(at * pieceSize, (at + 1) * pieceSize))
}

const pieceSize = 16

/** In groups that are no longer than a step when they are joined; a longer text is alone. */
function groupsOf(texts: Iterable<string>): string[][] {
  const groups: string[][] = []
  let room = 0
  for (const text of texts) {
    room -= text.length + apart.length
    if (room < 0) {
      groups.push([])
      room = inputStep - text.length
    }
    groups.at(-1)?.push(text)
  }
  return groups
}

function redact(text: string, spans: readonly { start: number; end: number }[]): string {
  let [redacted, at] = ['', 0]
  for (const { start, end } of spans.toSorted((a, b) => a.start - b.start)) {
    if (start >= at) redacted += `${text.slice(at, start)}[redacted:injection]`
    at = Math.max(at, end)
  }
  return redacted + text.slice(at)
}

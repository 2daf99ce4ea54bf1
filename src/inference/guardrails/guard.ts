/** Checks prompts before they are queued, and answers while they are generated. Pure. */

import type { Steps } from '../../runtime/turn-budget.ts'
import { findInjections } from './injection.ts'
import {
  type BuiltInRule,
  type GuardAction,
  type GuardHit,
  type GuardrailConfig,
  type GuardRule,
  lookBack,
  type Match,
  type Matcher,
  type TextSegment,
} from './rules.ts'
import { type RulePattern, PatternSet } from './rule-patterns.ts'
import { createPhraseFinder } from './phrases.ts'
import { personalDataPatterns, secretPatterns, type DataPattern } from './sensitive-data.ts'
import {
  createMarkPattern,
  type OutputGuard,
  toRedactionMark,
  SlidingScan,
} from './sliding-scan.ts'

export type { OutputGuard } from './sliding-scan.ts'

/** The outcome of a check. A hit names its rule, never the matched text. */
export type Verdict =
  | { readonly action: 'pass'; readonly text: string; readonly hits: readonly GuardHit[] }
  | { readonly action: 'block'; readonly hits: readonly GuardHit[] }

export interface Guard {
  /** Whether any rule judges prompts. If not, the other input methods need not be called. */
  readonly hasInputRules: boolean
  /** Judges the number of characters of a whole request. A `reject` hit rejects the request. */
  checkLength(chars: number): readonly GuardHit[]
  /** Judges a text. The verdict contains the text to continue with, unless the text is blocked. */
  checkInput(text: string): Steps<Verdict>
  /** Returns the texts that `checkInput` must judge. The other texts match no rule. */
  findSuspects(texts: readonly string[]): Steps<ReadonlySet<string>>
  /** Creates the guard of one answer; `null` if no rule judges answers. */
  createOutputGuard(): OutputGuard | null
  /** The sentence that replaces blocked text; `null` if blocked text is reported as an error. */
  readonly refusal: string | null
}

/** Step lengths in characters. Steps of answers are short, so that text is released early. */
const inputStepChars = 16_384
const outputStepChars = 64

const refusalText = 'I cannot help with this request.'

export function createGuard(config: GuardrailConfig): Guard {
  const rules = config.isOn ? config.rules : []
  const input = createMatchers(rules.filter(({ stage }) => stage !== 'output'))
  const output = createMatchers(rules.filter(({ stage }) => stage !== 'input'))
  // An answer may repeat redaction marks of the prompt. These marks must not be redacted again.
  const redacting = rules.filter(({ action }) => action === 'redact').map(({ id }) => id)
  const marks = createMarkPattern(redacting)
  return {
    hasInputRules: rules.some(({ stage }) => stage !== 'output'),
    checkLength: (chars) => checkLength(chars, config, rules),
    checkInput: (text) => checkInput(text, config, rules, input),
    findSuspects: (texts) => findSuspects(texts, config, rules, input),
    createOutputGuard: () =>
      output.length === 0 ? null : new SlidingScan(output, outputStepChars, marks),
    refusal: config.onBlock === 'refusal' ? refusalText : null,
  }
}

const findAction = (rules: readonly GuardRule[], id: BuiltInRule): GuardAction | undefined =>
  rules.find((rule) => rule.kind === 'built-in' && rule.id === id)?.action

function checkLength(
  chars: number,
  { maxPromptChars }: GuardrailConfig,
  rules: readonly GuardRule[],
): readonly GuardHit[] {
  const action = findAction(rules, 'limits')
  if (action === undefined || maxPromptChars === null || chars <= maxPromptChars) return []
  // The action `redact` rejects too, because a truncated prompt would be a different request.
  const reason = `it has ${chars} characters, and ${maxPromptChars} are allowed`
  return [{ rule: 'limits', action: action === 'flag' ? 'flag' : 'reject', reason }]
}

/** Judges a text. The injection rule is applied first, because it judges the whole text. */
function* checkInput(
  text: string,
  { sensitivity }: GuardrailConfig,
  rules: readonly GuardRule[],
  matchers: readonly Matcher[],
): Steps<Verdict> {
  const hits: GuardHit[] = []
  let passed = text
  const injection = findAction(rules, 'injection')
  if (injection !== undefined) {
    const found = yield* findInjections(text, sensitivity)
    if (found.length > 0) hits.push({ rule: 'injection', action: injection })
    if (found.length > 0 && injection === 'reject') return { action: 'block', hits }
    if (injection === 'redact') passed = redact(text, found)
  }
  if (matchers.length === 0) return { action: 'pass', text: passed, hits }
  const scan = new SlidingScan(matchers, inputStepChars)
  const { text: released, isBlocked, hits: more } = yield* scan.scan(passed)
  hits.push(...more)
  return isBlocked ? { action: 'block', hits } : { action: 'pass', text: released, hits }
}

/** No phrase contains this separator, so no match spans two texts. */
const separator = `${'\n'.repeat(8)}x${'\n'.repeat(8)}`
const groupChars = 8192

/** Searches short texts in groups, because each search has a fixed cost. */
function* findSuspects(
  texts: readonly string[],
  { sensitivity }: GuardrailConfig,
  rules: readonly GuardRule[],
  matchers: readonly Matcher[],
): Steps<ReadonlySet<string>> {
  if (matchers.some(({ isLocal }) => !isLocal)) return new Set(texts)
  const seeksInjection = findAction(rules, 'injection') !== undefined
  function* mayMatch(group: readonly string[]): Steps<boolean> {
    const text = group.join(separator)
    if (text.length > groupChars) return true
    if (seeksInjection && (yield* findInjections(text, sensitivity)).length > 0) return true
    const segment = { text, begin: 0, end: text.length, isLast: true }
    for (const matcher of matchers) {
      if ((yield* matcher.find(segment, noReportedRules)).length > 0) return true
    }
    return false
  }
  const suspects = new Set<string>()
  for (const group of groupTexts(new Set(texts))) {
    yield
    if (!(yield* mayMatch(group))) continue
    for (const piece of splitGroup(group)) {
      if (yield* mayMatch(piece)) for (const text of piece) suspects.add(text)
    }
  }
  return suspects
}

const noReportedRules: ReadonlySet<string> = new Set()

/** Splits a group, so that one hit does not make many texts suspect. */
function splitGroup(group: readonly string[]): (readonly string[])[] {
  const count = Math.ceil(group.length / maxSplitTexts)
  return Array.from({ length: count }, (_, at) =>
    group.slice(at * maxSplitTexts, (at + 1) * maxSplitTexts),
  )
}

const maxSplitTexts = 16

function groupTexts(texts: Iterable<string>): string[][] {
  const groups: string[][] = []
  let room = 0
  for (const text of texts) {
    room -= text.length + separator.length
    if (room < 0) {
      groups.push([])
      room = groupChars - text.length
    }
    groups.at(-1)?.push(text)
  }
  return groups
}

function redact(text: string, spans: readonly { start: number; end: number }[]): string {
  let [redacted, at] = ['', 0]
  for (const { start, end } of spans.toSorted((a, b) => a.start - b.start)) {
    if (start >= at) redacted += text.slice(at, start) + toRedactionMark('injection')
    at = Math.max(at, end)
  }
  return redacted + text.slice(at)
}

export function createMatchers(rules: readonly GuardRule[]): Matcher[] {
  const patterns: RulePattern[] = []
  const matchers = rules.flatMap((rule, order): Matcher[] => {
    const base = { rule: rule.id, action: rule.action, order }
    if (rule.kind === 'built-in') return createBuiltInMatchers(rule.id, base)
    const filterMatches = createExceptionFilter(rule.unless)
    if (rule.kind === 'keywords') return [createKeywordMatcher(rule.keywords, base, filterMatches)]
    patterns.push({ ...base, pattern: rule.pattern, filterMatches })
    return []
  })
  return [...matchers, ...PatternSet.createAll(patterns)]
}

type MatchBase = Pick<Match, 'rule' | 'action' | 'order'>

function createBuiltInMatchers(id: BuiltInRule, base: MatchBase): Matcher[] {
  if (id === 'injection' || id === 'limits') return []
  const dataPatterns = id === 'secrets' ? secretPatterns : personalDataPatterns
  return [
    createMatcher(base, (segment) =>
      dataPatterns.flatMap((dataPattern) => findDataPattern(dataPattern, segment, base)),
    ),
  ]
}

const createMatcher = (
  { rule }: MatchBase,
  find: (segment: TextSegment) => readonly Match[],
): Matcher => ({
  isLocal: true,
  // oxlint-disable-next-line require-yield
  *find(segment, reported) {
    return reported.has(rule) ? [] : find(segment)
  },
})

function findDataPattern(
  dataPattern: DataPattern,
  { text, begin, end }: TextSegment,
  base: MatchBase,
): Match[] {
  const { pattern, matchLength, endPattern = null } = dataPattern
  const found: Match[] = []
  pattern.lastIndex = begin
  for (let match = pattern.exec(text); match !== null; match = pattern.exec(text)) {
    const { 0: candidate, index: start } = match
    if (start >= end) break
    const length = matchLength?.(candidate) ?? candidate.length
    if (length > 0) found.push({ ...base, start, end: start + length, endPattern })
    // After a rejected candidate, continues inside it, because a match may begin there.
    pattern.lastIndex = start + Math.max(1, length)
  }
  return found
}

function createKeywordMatcher(
  keywords: readonly string[],
  base: MatchBase,
  filterMatches: RulePattern['filterMatches'],
): Matcher {
  const find = createPhraseFinder(keywords)
  return createMatcher(base, (segment) => {
    const spans = find(segment.text, segment.begin, segment.end)
    const matches = spans.map((span): Match => ({ ...base, ...span, endPattern: null }))
    return filterMatches?.(matches, segment) ?? matches
  })
}

function createExceptionFilter(unless: readonly string[]): RulePattern['filterMatches'] {
  if (unless.length === 0) return null
  const find = createPhraseFinder(unless)
  return (matches, { text }) => {
    const [first, last] = [matches[0], matches.at(-1)]
    if (first === undefined || last === undefined) return matches
    const exceptions = find(text, Math.max(0, first.start - lookBack), last.end)
    // Both lists are in the order of the text, so one pass compares them.
    let at = 0
    return matches.filter(({ start, end }) => {
      while ((exceptions[at]?.end ?? Infinity) <= start) at++
      return (exceptions[at]?.start ?? Infinity) >= end
    })
  }
}

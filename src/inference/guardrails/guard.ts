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
  type Stretch,
} from './rules.ts'
import { type OwnPattern, PatternSet } from './own-patterns.ts'
import { createPhraseFinder } from './phrases.ts'
import { personalData, secretShapes, type Shape } from './sensitive-data.ts'
import { createMarkFinder, type OutputGuard, redactionMark, SlidingScan } from './sliding-scan.ts'

export type { OutputGuard } from './sliding-scan.ts'

/** The outcome of a check. A hit names its rule, never the matched text. */
export type Verdict =
  | { readonly action: 'pass'; readonly text: string; readonly hits: readonly GuardHit[] }
  | { readonly action: 'block'; readonly hits: readonly GuardHit[] }

export interface Guard {
  /** Whether any rule judges prompts. If not, the other input methods need not be called. */
  readonly judgesInput: boolean
  /** Judges the number of characters of a whole request. A `reject` hit rejects the request. */
  checkLength(chars: number): readonly GuardHit[]
  /** Judges a text. The verdict contains the text to continue with, unless the text is blocked. */
  checkInput(text: string): Steps<Verdict>
  /** Returns the texts that `checkInput` must judge. The other texts match no rule. */
  findSuspects(texts: readonly string[]): Steps<ReadonlySet<string>>
  /** Creates the guard of one answer; `null` if no rule judges answers. */
  openOutput(): OutputGuard | null
  /** The sentence that replaces blocked text; `null` if blocked text is reported as an error. */
  readonly refusal: string | null
}

/** The step sizes in characters. Answers need short steps, so that text is released early. */
const inputStep = 16_384
const outputStep = 64

const refusal = 'I cannot help with this request.'

export function createGuard(config: GuardrailConfig): Guard {
  const rules = config.isOn ? config.rules : []
  const input = createMatchers(rules.filter(({ stage }) => stage !== 'output'))
  const output = createMatchers(rules.filter(({ stage }) => stage !== 'input'))
  // An answer may repeat redaction marks of the prompt, and these must not be redacted again.
  const redacting = rules.filter(({ action }) => action === 'redact').map(({ id }) => id)
  const marks = createMarkFinder(redacting)
  return {
    judgesInput: rules.some(({ stage }) => stage !== 'output'),
    checkLength: (chars) => checkLength(chars, config, rules),
    checkInput: (text) => checkInput(text, config, rules, input),
    findSuspects: (texts) => findSuspects(texts, config, rules, input),
    openOutput: () => (output.length === 0 ? null : new SlidingScan(output, outputStep, marks)),
    refusal: config.onBlock === 'refusal' ? refusal : null,
  }
}

const actionOf = (rules: readonly GuardRule[], id: BuiltInRule): GuardAction | undefined =>
  rules.find((rule) => rule.kind === 'built-in' && rule.id === id)?.action

function checkLength(
  chars: number,
  { maxPromptChars }: GuardrailConfig,
  rules: readonly GuardRule[],
): readonly GuardHit[] {
  const action = actionOf(rules, 'limits')
  if (action === undefined || maxPromptChars === null || chars <= maxPromptChars) return []
  // `redact` rejects too, because a truncated prompt would be a different request.
  const reason = `it has ${chars} characters, and ${maxPromptChars} are allowed`
  return [{ rule: 'limits', action: action === 'flag' ? 'flag' : 'reject', reason }]
}

/** Applies the injection rule first: it judges the whole text, the other rules its parts. */
function* checkInput(
  text: string,
  { sensitivity }: GuardrailConfig,
  rules: readonly GuardRule[],
  matchers: readonly Matcher[],
): Steps<Verdict> {
  const hits: GuardHit[] = []
  let passed = text
  const injection = actionOf(rules, 'injection')
  if (injection !== undefined) {
    const found = yield* findInjections(text, sensitivity)
    if (found.length > 0) hits.push({ rule: 'injection', action: injection })
    if (found.length > 0 && injection === 'reject') return { action: 'block', hits }
    if (injection === 'redact') passed = redact(text, found)
  }
  if (matchers.length === 0) return { action: 'pass', text: passed, hits }
  const scan = new SlidingScan(matchers, inputStep)
  const { release, isBlocked, hits: more } = yield* scan.scan(passed)
  hits.push(...more)
  return isBlocked ? { action: 'block', hits } : { action: 'pass', text: release, hits }
}

/** Prevents matches across texts: longer than any gap, with a letter that continues no phrase. */
const separator = `${'\n'.repeat(8)}x${'\n'.repeat(8)}`
/** The maximum total length of texts that are searched together. */
const groupChars = 8192

/**
 * Searches short texts together, because each search has a fixed cost. A text longer than a group
 * is always suspect. If a rule depends on where a text begins or ends, all texts are suspect.
 */
function* findSuspects(
  texts: readonly string[],
  { sensitivity }: GuardrailConfig,
  rules: readonly GuardRule[],
  matchers: readonly Matcher[],
): Steps<ReadonlySet<string>> {
  if (matchers.some(({ isLocal }) => !isLocal)) return new Set(texts)
  const seeksInjection = actionOf(rules, 'injection') !== undefined
  function* mayHit(group: readonly string[]): Steps<boolean> {
    const text = group.join(separator)
    if (text.length > groupChars) return true
    if (seeksInjection && (yield* findInjections(text, sensitivity)).length > 0) return true
    const stretch = { text, begin: 0, end: text.length, isLast: true }
    for (const matcher of matchers) {
      if ((yield* matcher.find(stretch, nothing)).length > 0) return true
    }
    return false
  }
  const suspects = new Set<string>()
  for (const group of groupsOf(new Set(texts))) {
    yield
    if (!(yield* mayHit(group))) continue
    for (const piece of piecesOf(group)) {
      if (yield* mayHit(piece)) for (const text of piece) suspects.add(text)
    }
  }
  return suspects
}

const nothing: ReadonlySet<string> = new Set()

/** Splits a group into smaller ones, so that one hit does not make many texts suspect. */
function piecesOf(group: readonly string[]): (readonly string[])[] {
  const count = Math.ceil(group.length / pieceSize)
  return Array.from({ length: count }, (_, at) => group.slice(at * pieceSize, (at + 1) * pieceSize))
}

const pieceSize = 16

/** Groups whose joined texts do not exceed `groupChars`; a longer text is alone in its group. */
function groupsOf(texts: Iterable<string>): string[][] {
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
    if (start >= at) redacted += text.slice(at, start) + redactionMark('injection')
    at = Math.max(at, end)
  }
  return redacted + text.slice(at)
}

export function createMatchers(rules: readonly GuardRule[]): Matcher[] {
  const patterns: OwnPattern[] = []
  const matchers = rules.flatMap((rule, order): Matcher[] => {
    const base = { rule: rule.id, action: rule.action, order }
    if (rule.kind === 'built-in') return builtInMatcher(rule.id, base)
    const select = withoutExceptions(rule.unless)
    if (rule.kind === 'keywords') return [keywordMatcher(rule.keywords, base, select)]
    patterns.push({ ...base, pattern: rule.pattern, select })
    return []
  })
  return [...matchers, ...PatternSet.group(patterns)]
}

type MatchBase = Pick<Match, 'rule' | 'action' | 'order'>

function builtInMatcher(id: BuiltInRule, base: MatchBase): Matcher[] {
  if (id === 'injection' || id === 'limits') return []
  const shapes = id === 'secrets' ? secretShapes : personalData
  return [toMatcher(base, (stretch) => shapes.flatMap((shape) => findShape(shape, stretch, base)))]
}

/** A matcher that searches a stretch in one step, for built-in expressions and phrases. */
const toMatcher = ({ rule }: MatchBase, find: (stretch: Stretch) => readonly Match[]): Matcher => ({
  isLocal: true,
  // oxlint-disable-next-line require-yield
  *find(stretch, reported) {
    return reported.has(rule) ? [] : find(stretch)
  },
})

function findShape(shape: Shape, { text, begin, end }: Stretch, base: MatchBase): Match[] {
  const { pattern, measure, until = null } = shape
  const found: Match[] = []
  pattern.lastIndex = begin
  for (let match = pattern.exec(text); match !== null; match = pattern.exec(text)) {
    const { 0: candidate, index: start } = match
    if (start >= end) break
    const length = measure?.(candidate) ?? candidate.length
    if (length > 0) found.push({ ...base, start, end: start + length, until })
    // After a rejected candidate, continues at its second character: a match may begin inside.
    pattern.lastIndex = start + Math.max(1, length)
  }
  return found
}

function keywordMatcher(
  keywords: readonly string[],
  base: MatchBase,
  select: OwnPattern['select'],
): Matcher {
  const find = createPhraseFinder(keywords)
  return toMatcher(base, (stretch) => {
    const spans = find(stretch.text, stretch.begin, stretch.end)
    const matches = spans.map((span): Match => ({ ...base, ...span, until: null }))
    return select?.(matches, stretch) ?? matches
  })
}

/** Removes matches that overlap a phrase of `unless`. */
function withoutExceptions(unless: readonly string[]): OwnPattern['select'] {
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

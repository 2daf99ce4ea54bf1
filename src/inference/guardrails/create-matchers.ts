/** Makes the matchers of rules; rules that judge a whole text (injection, limits) have none. */

import { lookBack, type Match, type Matcher, type Stretch } from './matcher.ts'
import { type OwnPattern, PatternSet } from './own-patterns.ts'
import { createPhraseFinder } from './phrases.ts'
import type { BuiltInRule, GuardRule } from './rules.ts'
import { personalData, type Shape, secretShapes } from './sensitive-data.ts'

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

/** The built-in expressions and phrases take one step for a stretch. */
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
    // A rejected candidate may begin with digits that do not belong to the real one after them.
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

/** Leaves out matches that a phrase of `unless` overlaps. */
function withoutExceptions(unless: readonly string[]): OwnPattern['select'] {
  if (unless.length === 0) return null
  const find = createPhraseFinder(unless)
  return (matches, { text }) => {
    const [first, last] = [matches[0], matches.at(-1)]
    if (first === undefined || last === undefined) return matches
    const exceptions = find(text, Math.max(0, first.start - lookBack), last.end)
    // Both are in the order of the text, so one pass compares them.
    let at = 0
    return matches.filter(({ start, end }) => {
      while ((exceptions[at]?.end ?? Infinity) <= start) at++
      return (exceptions[at]?.start ?? Infinity) >= end
    })
  }
}

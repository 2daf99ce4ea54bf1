/** What rules look for in a stretch of text. Whole-text rules (injection, limits) are not here. */

import { compilePattern, looksAround } from './own-pattern.ts'
import { createPhraseFinder, invisible, literal, unspaced } from './phrases.ts'
import type { GuardAction, GuardRule } from './rules.ts'
import { personalData, type Shape, secretShapes } from './sensitive-data.ts'

export interface Found {
  readonly start: number
  readonly end: number
  /** What has no known length goes on until this matches: a global expression. */
  readonly until: RegExp | null
}

export interface Matcher {
  readonly rule: string
  readonly action: GuardAction
  /** What it finds in a text it also finds, or more, where line breaks stand around that text. */
  readonly isLocal: boolean
  /** Matches that begin in `view` from `begin` on and before `end`; none is empty. */
  readonly find: Find
}

type Find = (view: string, begin: number, end: number) => Found[]

/** The matcher of a rule; none for a rule that judges the whole text. */
export function createMatcher(rule: GuardRule): Matcher[] {
  const { id, action } = rule
  const toMatcher = (find: Find, isLocal = true): Matcher[] => [{ rule: id, action, isLocal, find }]
  if (rule.kind === 'keywords') {
    return toMatcher(excusing(phraseFinder(rule.keywords), rule.unless))
  }
  if (rule.kind === 'pattern') {
    const isLocal = rule.unless.length === 0 && !looksAround(rule.pattern)
    return toMatcher(excusing(finderOf(compilePattern(rule.pattern)), rule.unless), isLocal)
  }
  if (rule.id === 'injection' || rule.id === 'limits') return []
  const shapes = rule.id === 'secrets' ? secretShapes : personalData
  return toMatcher((view, begin, end) => shapes.flatMap((one) => findShape(one, view, begin, end)))
}

function findShape(shape: Shape, view: string, begin: number, end: number): Found[] {
  const { pattern, measure, until = null } = shape
  const found: Found[] = []
  pattern.lastIndex = begin
  for (let match = pattern.exec(view); match !== null; match = pattern.exec(view)) {
    const { 0: text, index: start } = match
    if (start >= end) break
    const length = measure?.(text) ?? text.length
    if (length > 0) found.push({ start, end: start + length, until })
    // A false one may begin with digits that do not belong to the true one behind them.
    pattern.lastIndex = start + Math.max(1, length)
  }
  return found
}

const finderOf =
  (pattern: RegExp): Find =>
  (view, begin, end) =>
    findShape({ pattern }, view, begin, end)

/** Without what an exception overlaps. */
function excusing(find: Find, unless: readonly string[]): Find {
  if (unless.length === 0) return find
  const findExceptions = phraseFinder(unless)
  return (view, begin, end) => {
    const found = find(view, begin, end)
    if (found.length === 0) return found
    const excused = findExceptions(view, 0, view.length)
    // Both stand in the order of the text and overlap none of their own.
    let at = 0
    return found.filter((one) => {
      while ((excused[at]?.end ?? Infinity) <= one.start) at++
      return (excused[at]?.start ?? Infinity) >= one.end
    })
  }
}

function phraseFinder(list: readonly string[]): Find {
  // Of phrases with invisible letters, a text may be two at once: only trying in order tells which.
  if (list.some((phrase) => hasInvisible.test(phrase.trim()))) return finderOf(phrases(list))
  const find = createPhraseFinder(list)
  return (view, begin, end) => find(view, begin, end).map((span) => ({ ...span, until: null }))
}

const hasInvisible = /[\u00AD\u200B-\u200D\u2060\uFEFF]/

/** One expression for whole words and phrases, the longest first, in any case. */
function phrases(list: readonly string[]): RegExp {
  const longestFirst = list.toSorted((a, b) => b.length - a.length)
  return new RegExp(longestFirst.map((phrase) => toSource(phrase.trim())).join('|'), 'giu')
}

function toSource(phrase: string): string {
  const letters = Array.from(phrase.replaceAll(/\s+/g, ' '))
  const body = letters.map((one) => (one === ' ' ? String.raw`\s{1,4}` : literal(one)))
  const before = unspaced.test(letters[0] ?? '') ? '' : String.raw`(?<![\p{L}\p{N}_])`
  const after = unspaced.test(letters.at(-1) ?? '') ? '' : String.raw`(?![\p{L}\p{N}_])`
  return `${before}${body.join(invisible)}${after}`
}

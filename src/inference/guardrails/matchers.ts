/** What rules look for in a stretch of text. Whole-text rules (injection, limits) are not here. */

import { compilePattern } from './own-pattern.ts'
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
  /** Matches that begin in `view` from `begin` on and before `end`; none is empty. */
  find(view: string, begin: number, end: number): Found[]
}

/** The matcher of a rule; none for a rule that judges the whole text. */
export function createMatcher(rule: GuardRule): Matcher[] {
  const { id, action } = rule
  const toMatcher = (find: Matcher['find']): Matcher[] => [{ rule: id, action, find }]
  if (rule.kind === 'keywords') return toMatcher(finderOf(phrases(rule.keywords), rule.unless))
  if (rule.kind === 'pattern') return toMatcher(finderOf(compilePattern(rule.pattern), rule.unless))
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

function finderOf(pattern: RegExp, unless: readonly string[]): Matcher['find'] {
  const exceptions = unless.length === 0 ? null : phrases(unless)
  return (view, begin, end) => {
    const found = findShape({ pattern, measure: (text) => text.length }, view, begin, end)
    if (exceptions === null || found.length === 0) return found
    const excused = findShape({ pattern: exceptions }, view, 0, view.length)
    return found.filter((one) =>
      excused.every((other) => other.end <= one.start || other.start >= one.end),
    )
  }
}

const invisible = String.raw`[\u00AD\u200B-\u200D\u2060\uFEFF]{0,2}`
/** Scripts that put no blanks between words. */
const unspaced = /[\p{sc=Han}\p{sc=Hiragana}\p{sc=Katakana}\p{sc=Thai}\p{sc=Lao}\p{sc=Khmer}]/u

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

const literal = (character: string): string =>
  character.replace(/[\\^$.*+?()[\]{}|/]/, String.raw`\$&`)

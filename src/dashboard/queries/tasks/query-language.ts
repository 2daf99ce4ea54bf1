/**
 * The query bar: `state:running name:/^sim/ dur>2s seed`. All parts must match. A word without a
 * key is searched for in the uid, the name and the worker of a task, or in the texts of an event.
 * Patterns run in linear time. Pure.
 */

import { RE2JS, RE2JSException } from 're2js'

export type TextMatch = (text: string) => boolean

export const textKeys = ['task', 'name', 'scope', 'node', 'worker', 'state', 'type'] as const
export const numberKeys = ['dur', 'ran', 'waited'] as const
export type TextKey = (typeof textKeys)[number]
export type NumberKey = (typeof numberKeys)[number]

export interface TextCondition {
  readonly key: TextKey | null
  readonly isNegated: boolean
  readonly matches: TextMatch
}

export interface NumberCondition {
  readonly key: NumberKey
  /** Whether the value, in seconds, meets the condition. */
  readonly matches: (value: number) => boolean
}

export interface ParsedQuery {
  readonly texts: readonly TextCondition[]
  readonly numbers: readonly NumberCondition[]
  /** Why the query cannot be used, with the part that is wrong; empty if it can. */
  readonly problem: string
}

const maxQueryLength = 1000
const flags = RE2JS.CASE_INSENSITIVE
const maxPatternLength = 200
const part = /(-?)(?:([a-z]+)(:|>=|<=|>|<|=))?("[^"]*"?|\/(?:[^/\\]|\\.)*\/?|\S+)/gy

/** Never throws. */
export function parseQuery(q: string): ParsedQuery {
  const texts: TextCondition[] = []
  const numbers: NumberCondition[] = []
  let problem = q.length > maxQueryLength ? `a query has at most ${maxQueryLength} characters` : ''
  const report = (what: string): void => {
    if (problem === '') problem = what
  }
  const text = problem === '' ? q.trim() : ''
  for (let at = 0; at < text.length; at = skipSpaces(text, part.lastIndex)) {
    part.lastIndex = at
    const [whole = '', minus = '', key, sign = ':', value = ''] = part.exec(text) ?? []
    if (whole === '') break
    if (key === undefined) texts.push(toText(null, minus, value, report))
    else if (isIn(numberKeys, key)) numbers.push(...toNumber(key, sign, value, report))
    else if (isIn(textKeys, key)) texts.push(toText(key, minus, value, report))
    else report(`"${key}": the keys are ${[...textKeys, ...numberKeys].join(', ')}`)
  }
  return problem === '' ? { texts, numbers, problem } : { texts: [], numbers: [], problem }
}

const skipSpaces = (text: string, at: number): number => {
  let next = at
  while (text[next] === ' ' || text[next] === '\t') next++
  return next
}

const isIn = <Key extends string>(keys: readonly Key[], key: string): key is Key =>
  (keys as readonly string[]).includes(key)

function toText(
  key: TextKey | null,
  minus: string,
  value: string,
  report: (problem: string) => void,
): TextCondition {
  return { key, isNegated: minus === '-', matches: toMatch(value, report) }
}

/** `/…/` is a pattern. Other texts are searched for as they are. Both ignore case. */
function toMatch(value: string, report: (problem: string) => void): TextMatch {
  if (value.length > 1 && value.startsWith('/') && value.endsWith('/')) {
    const pattern = compile(value.slice(1, -1), report)
    return (text) => pattern?.matcher(text.slice(0, maxMatched)).find() === true
  }
  const plain = value.replaceAll(/^"|"$/g, '').replaceAll(/[\\^$.*+?()[\]{}|/-]/g, String.raw`\$&`)
  const literal = new RegExp(plain, 'i')
  return (text) => literal.test(text)
}

/** The maximum length of a text that is compared with a pattern. */
const maxMatched = 1000
/** The maximum size of a pattern: RE2 may execute all its instructions at every character. */
const maxInstructions = 300
/** The maximum sum of the numbers in counted repetitions, which bounds the time to compile. */
const maxRepetitions = 300

function compile(source: string, report: (problem: string) => void): RE2JS | null {
  if (source.length > maxPatternLength) {
    report(`/${source.slice(0, 20)}…/: a pattern has at most ${maxPatternLength} characters`)
    return null
  }
  const counts = source.match(/(?<=[{,])\d+(?=[,}])/g) ?? []
  const repetitions = counts.reduce((sum, count) => sum + Number(count), 0)
  try {
    const pattern = repetitions > maxRepetitions ? null : RE2JS.compile(source, flags)
    if (pattern !== null && pattern.programSize() <= maxInstructions) return pattern
    report(`/${source.slice(0, 20)}…/: a pattern with fewer repetitions is needed`)
    return null
  } catch (error) {
    if (!(error instanceof RE2JSException)) throw error
    report(`/${source}/: ${error.message}`)
    return null
  }
}

const secondsPerUnit: Readonly<Record<string, number>> = {
  ms: 1e-3,
  s: 1,
  m: 60,
  h: 3600,
  d: 86_400,
}

function toNumber(
  key: NumberKey,
  sign: string,
  value: string,
  report: (problem: string) => void,
): NumberCondition[] {
  const [, digits, unit = 's'] = /^(\d+(?:\.\d+)?)(ms|s|m|h|d)?$/.exec(value) ?? []
  if (digits === undefined || sign === ':') {
    report(`${key}${sign}${value}: write it as ${key}>2s or ${key}<=10m`)
    return []
  }
  const limit = Number(digits) * (secondsPerUnit[unit] ?? 1)
  return [{ key, matches: comparisons[sign]?.(limit) ?? (() => false) }]
}

const comparisons: Readonly<Record<string, (limit: number) => (value: number) => boolean>> = {
  '>': (limit) => (value) => value > limit,
  '>=': (limit) => (value) => value >= limit,
  '<': (limit) => (value) => value < limit,
  '<=': (limit) => (value) => value <= limit,
  '=': (limit) => (value) => Math.abs(value - limit) <= 0.005 * limit,
}

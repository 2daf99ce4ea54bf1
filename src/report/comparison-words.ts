/** Sentences about what became slower from one run to another. Pure. */

import { countText, numberText, secondsText, shortName, shortNames } from '../views/readable.ts'
import { causesOf } from './comparison-causes.ts'
import {
  compareWholes,
  isComparable,
  compareTaskSets,
  noise,
  pairsOf,
} from './comparison-verdict.ts'
import type { ReportData } from './report-data.ts'
import type { Severity } from './verdict.ts'

const maxNamed = 3

export interface ComparisonWords {
  readonly severity: Severity
  readonly verdict: string
  readonly sentences: readonly string[]
}

/** Sentences about what became slower come first. */
export function compareWords(before: ReportData, after: ReportData): ComparisonWords {
  const openEnds = [...openEnd('first', before), ...openEnd('second', after)]
  const whole = compareWholes(before, after)
  const medians = movesOf(before, after, 'p50')
  const named = new Set(medians.map(({ name }) => name))
  // If the median of a name changed, its slowest tasks changed as well.
  const slowest = movesOf(before, after, 'p95').filter(({ name }) => !named.has(name))
  const changes = [
    ...tell('slower', medians, 'median'),
    ...tell('slower', slowest, 'p95'),
    ...tell('faster', medians, 'median'),
    ...tell('faster', slowest, 'p95'),
  ]
  return {
    severity: openEnds.length > 0 ? 'warning' : whole.severity,
    verdict: [...openEnds, ...(openEnds.length > 0 ? whole.counts : [whole.verdict])].join(' '),
    sentences: [
      ...changes,
      ...(changes.length === 0 ? unmoved(before, after) : []),
      ...causesOf(before, after),
      ...onlyIn('first', before, after),
      ...onlyIn('second', after, before),
      ...failureWords(before, after),
    ],
  }
}

/** Empty if no name can be compared. */
function unmoved(before: ReportData, after: ReportData): string[] {
  const pairs = pairsOf(before, after)
  if (!pairs.some(isComparable)) return []
  const which = pairs.every(isComparable) ? 'No name' : 'No name that can be compared'
  return [`${which} became slower or faster by 5 % or more.`]
}

function onlyIn(which: string, own: ReportData, other: ReportData): string[] {
  const known = new Set(other.names.map(({ name }) => name))
  if (other.otherNames > 0) return []
  const only = own.names.filter(({ name }) => !known.has(name))
  if (only.length === 0) return []
  const shortOf = shortNames([...own.names, ...other.names].map(({ name }) => name))
  const names = only
    .slice(0, maxNamed)
    .map(({ name, total }) => `${shortOf(name)} (${countText(total, 'task')})`)
  return [`Only the ${which} run has ${names.join(', ')}${othersText(only.length)}.`]
}

/** Only if the verdict does not already contain it. */
function failureWords(before: ReportData, after: ReportData): string[] {
  const [a, b] = [before.counts, after.counts]
  if (compareTaskSets(before, after) === 'tasks') return []
  if (a.failed === b.failed && a.tasks === b.tasks) return []
  if (a.failed === 0 && b.failed === 0) return []
  const part = (of: ReportData['counts']): string =>
    `${numberText(of.failed)} of ${countText(of.tasks, 'task')}`
  return [`Failed: ${part(b)}; ${part(a)} before.`]
}

/** The length of a run without an end is not known. */
function openEnd(which: string, { facts, run }: ReportData): string[] {
  if (facts.state === 'running')
    return [`The ${which} run is in progress: its numbers are those so far.`]
  if (run.endTime !== null) return []
  return [`The ${which} run has no end: its numbers are those up to its last event.`]
}

/** A name whose tasks took longer or shorter than before. */
interface Move {
  readonly name: string
  readonly before: number
  readonly now: number
  /** Additional seconds of all its tasks together; negative if they became faster. */
  readonly lost: number
  /** A note if the number of failed tasks changed; otherwise empty. */
  readonly failed: string
}

function movesOf(before: ReportData, after: ReportData, rank: 'p50' | 'p95'): Move[] {
  return pairsOf(before, after)
    .filter(isComparable)
    .flatMap(({ name, a, b }) => {
      const [old, now] = [a?.done?.[rank] ?? 0, b?.done?.[rank] ?? 0]
      const lost = (now - old) * (b?.total ?? 0)
      const isOther = a?.failed !== b?.failed
      const failed = isOther ? `; ${a?.failed ?? 0} failed before, ${b?.failed ?? 0} now` : ''
      return old > 0 && now > 0 ? [{ name, before: old, now, lost, failed }] : []
    })
    .filter(({ before: old, now }) => Math.abs(now / old - 1) >= noise)
}

function tell(how: 'slower' | 'faster', moves: readonly Move[], rank: 'median' | 'p95'): string[] {
  const sign = how === 'slower' ? 1 : -1
  const all = moves
    .filter(({ lost }) => sign * lost > 0)
    .toSorted((a, b) => sign * (b.lost - a.lost))
  if (all.length === 0) return []
  const names = all
    .slice(0, maxNamed)
    .map(
      ({ name, before, now, failed }) =>
        `${shortName(name)} (${rank} ${secondsText(before)} before, ` +
        `${secondsText(now)} now${failed})`,
    )
  const count = all.length === 1 ? 'One name' : countText(all.length, 'name')
  const what =
    rank === 'median' ? how : `${how} in ${all.length === 1 ? 'its' : 'their'} slowest tasks`
  return [`${count} became ${what}: ${names.join(', ')}${othersText(all.length)}.`]
}

const othersText = (count: number): string =>
  count > maxNamed ? ` and ${countText(count - maxNamed, 'other')}` : ''

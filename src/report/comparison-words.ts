/** What became slower from one run to another, in sentences. Pure. */

import {
  countText,
  numberText,
  rateText,
  secondsText,
  shortName,
  shortNames,
} from '../views/readable.ts'
import type { NameReport, ReportData } from './report-data.ts'
import { durationOf } from './verdict.ts'

/** A smaller change of a median is noise. */
export const noise = 0.05
const mostNamed = 3

export interface ComparisonWords {
  readonly mood: 'good' | 'warning' | 'bad'
  readonly verdict: string
  readonly sentences: readonly string[]
}

/** What became slower comes first. */
export function compareWords(before: ReportData, after: ReportData): ComparisonWords {
  const openEnds = [...openEnd('first', before), ...openEnd('second', after)]
  const whole = isSameWork(before, after) ? byLength(before, after) : byTask(before, after)
  const medians = movesOf(before, after, 'p50')
  const named = new Set(medians.map(({ name }) => name))
  // Of a name with another median the slowest tasks differ as well.
  const slowest = movesOf(before, after, 'p95').filter(({ name }) => !named.has(name))
  const told = [
    ...tell('slower', medians, 'median'),
    ...tell('slower', slowest, 'p95'),
    ...tell('faster', medians, 'median'),
    ...tell('faster', slowest, 'p95'),
  ]
  return {
    mood: openEnds.length > 0 ? 'warning' : whole.mood,
    verdict: [...openEnds, ...(openEnds.length > 0 ? whole.counts : [whole.verdict])].join(' '),
    sentences: [
      ...told,
      ...(told.length === 0 ? ['No name became slower or faster by 5 % or more.'] : []),
      ...onlyIn('first', before, after),
      ...onlyIn('second', after, before),
      ...failureWords(before, after),
    ],
  }
}

/** The comparison of the runs as wholes; `counts`: what it says of their tasks alone. */
interface WholeWords extends Pick<ComparisonWords, 'mood' | 'verdict'> {
  readonly counts: readonly string[]
}

/** Whether the same tasks were done: else the length of a run says nothing about its speed. */
export function isSameWork(before: ReportData, after: ReportData): boolean {
  const isSame = (a: ReportData['counts'], b: ReportData['counts']): boolean =>
    a.tasks === b.tasks && a.completed === b.completed
  return (
    isSame(before.counts, after.counts) &&
    comparablePairs(before, after).every(
      ({ a, b }) => a?.total === b?.total && a?.completed === b?.completed,
    )
  )
}

/** Of a run with very many names only the largest are known. */
const comparablePairs = (before: ReportData, after: ReportData): NamePair[] =>
  pairsOf(before, after).filter(
    ({ a, b }) =>
      (a !== undefined || before.otherNames === 0) && (b !== undefined || after.otherNames === 0),
  )

function byLength(before: ReportData, after: ReportData): WholeWords {
  const [a, b] = [durationOf(before), durationOf(after)]
  const change = a > 0 ? b / a - 1 : 0
  const lengths = `${secondsText(b)} after ${secondsText(a)}`
  const verdict =
    Math.abs(change) < noise
      ? `The second run took as long as the first: ${lengths}.`
      : `The second run was ${percent(Math.abs(change))} ${change > 0 ? 'slower' : 'faster'}: ` +
        `${lengths}.`
  return { mood: change >= noise ? 'bad' : 'good', verdict, counts: [] }
}

/** Runs of different work: how many tasks each did, then how many in a second. */
function byTask(before: ReportData, after: ReportData): WholeWords {
  const [first, second] = [doneWords(before), doneWords(after)]
  const counts =
    first === second
      ? `The runs differ in their tasks: ${first} each, of other names.`
      : `The runs differ in their tasks: ${first} in the first, ${second} in the second.`
  const [a, b] = [rateOf(before), rateOf(after)]
  const lengths = `${secondsText(durationOf(before))}, then ${secondsText(durationOf(after))}`
  if (a === 0 || b === 0) {
    return { mood: 'warning', verdict: `${counts} They took ${lengths}.`, counts: [counts] }
  }
  const change = b / a - 1
  const how =
    Math.abs(change) < noise
      ? 'as many tasks a second as'
      : `${percent(Math.abs(change))} ${change > 0 ? 'more' : 'fewer'} tasks a second than`
  const verdict =
    `${counts} The second did ${how} the first: ${rateText(b)} after ${rateText(a)} ` +
    `(they took ${lengths}).`
  // Of another mix of names a rate is neither good nor bad.
  const isBad = change <= -noise && hasSameMix(before, after)
  return { mood: isBad ? 'bad' : 'warning', verdict, counts: [counts] }
}

function doneWords({ counts: { tasks, completed } }: ReportData): string {
  if (completed === tasks) return countText(tasks, 'task')
  return `${countText(tasks, 'task')} (${numberText(completed)} done)`
}

/** Tasks that were done in a second of the run. */
export function rateOf(data: ReportData, name?: NameReport): number {
  const seconds = durationOf(data)
  const { completed } = name ?? data.counts
  return seconds > 0 ? completed / seconds : 0
}

/** Whether each name has the same share of what was done in both runs. */
function hasSameMix(before: ReportData, after: ReportData): boolean {
  const share = (name: NameReport | undefined, { counts }: ReportData): number =>
    (name?.completed ?? 0) / Math.max(1, counts.completed)
  return comparablePairs(before, after).every(
    ({ a, b }) => Math.abs(share(a, before) - share(b, after)) < noise,
  )
}

function onlyIn(which: string, own: ReportData, other: ReportData): string[] {
  const known = new Set(other.names.map(({ name }) => name))
  if (other.otherNames > 0) return []
  const only = own.names.filter(({ name }) => !known.has(name))
  if (only.length === 0) return []
  const shortOf = shortNames([...own.names, ...other.names].map(({ name }) => name))
  const names = only
    .slice(0, mostNamed)
    .map(({ name, total }) => `${shortOf(name)} (${countText(total, 'task')})`)
  return [`Only the ${which} run has ${names.join(', ')}${othersText(only.length)}.`]
}

function failureWords({ counts: a }: ReportData, { counts: b }: ReportData): string[] {
  if (a.failed === b.failed && a.tasks === b.tasks) return []
  if (a.failed === 0 && b.failed === 0) return []
  const part = (of: ReportData['counts']): string =>
    `${numberText(of.failed)} of ${countText(of.tasks, 'task')}`
  return [`Failed: ${part(b)}; ${part(a)} before.`]
}

/** The length of such a run is not known. */
function openEnd(which: string, { facts, run }: ReportData): string[] {
  if (facts.state === 'running') return [`The ${which} run goes on: its numbers are those so far.`]
  if (run.endTime !== null) return []
  return [`The ${which} run has no end: its numbers are those up to its last event.`]
}

/** A name whose tasks took longer or shorter than before. */
interface Move {
  readonly name: string
  readonly before: number
  readonly now: number
  /** Seconds of all its tasks together; negative where they are won. */
  readonly lost: number
  /** Of tasks that fail sooner or later than before; else empty. */
  readonly failed: string
}

function movesOf(before: ReportData, after: ReportData, rank: 'p50' | 'p95'): Move[] {
  return pairsOf(before, after)
    .flatMap(({ name, a, b }) => {
      const [old, now] = [a?.duration?.[rank] ?? 0, b?.duration?.[rank] ?? 0]
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
    .slice(0, mostNamed)
    .map(
      ({ name, before, now, failed }) =>
        `${shortName(name)} (${rank} ${secondsText(before)} before, ` +
        `${secondsText(now)} now${failed})`,
    )
  const count = all.length === 1 ? 'One name' : countText(all.length, 'name')
  const what = rank === 'median' ? how : `${how} in its slowest tasks`
  return [`${count} became ${what}: ${names.join(', ')}${othersText(all.length)}.`]
}

const othersText = (count: number): string =>
  count > mostNamed ? ` and ${countText(count - mostNamed, 'other')}` : ''

export const percent = (share: number): string => `${Math.round(100 * share)} %`

export interface NamePair {
  readonly name: string
  readonly a: NameReport | undefined
  readonly b: NameReport | undefined
}

export function pairsOf(before: ReportData, after: ReportData): NamePair[] {
  const [first, second] = [before, after].map(
    (data) => new Map(data.names.map((name) => [name.name, name])),
  )
  const all = new Set([...(second?.keys() ?? []), ...(first?.keys() ?? [])])
  return Array.from(all, (name) => ({ name, a: first?.get(name), b: second?.get(name) }))
}

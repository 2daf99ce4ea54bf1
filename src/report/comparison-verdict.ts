/** Compares two runs as a whole, in sentences: which was faster, if they did the same. Pure. */

import { countText, numberText, percentText, rateText, secondsText } from '../views/readable.ts'
import type { NameReport, ReportData } from './report-data.ts'
import type { Severity } from './verdict.ts'

/** Smaller relative changes count as noise. */
export const noise = 0.05

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

/**
 * How similar two runs are: the same tasks with the same ends, with different ends, some common
 * names, or no common name.
 */
export type Likeness = 'work' | 'tasks' | 'names' | 'nothing'

export function compareTaskSets(before: ReportData, after: ReportData): Likeness {
  const [a, b] = [before.counts, after.counts]
  const pairs = comparablePairs(before, after)
  const isSame = (key: 'total' | 'completed' | 'reused'): boolean =>
    pairs.every(({ a: one, b: other }) => one?.[key] === other?.[key])
  if (a.tasks === b.tasks && isSame('total')) {
    const isSameEnd = a.completed === b.completed && isSame('completed')
    return isSameEnd && before.reused === after.reused && isSame('reused') ? 'work' : 'tasks'
  }
  // For a run with very many names only the largest are known.
  const hasAllNames = before.otherNames + after.otherNames === 0
  return hasAllNames && !pairs.some(hasBoth) ? 'nothing' : 'names'
}

/** Medians of fewer tasks differ by chance. */
const fewestFinished = 4

/**
 * Whether the durations of a name can be compared: they are of the same tasks, at least two, or of
 * many and most of the tasks in each run. Failed tasks end early or late, and do not count.
 */
export function isComparable({ a, b }: NamePair): boolean {
  if (a === undefined || b === undefined) return false
  const isDone = ({ completed, reused, total }: NameReport): boolean =>
    completed === total && reused === 0
  if (a.total === b.total && isDone(a) && isDone(b)) return a.total > 1
  return [a, b].every(({ completed, reused, total }) => {
    const ran = completed - reused
    return ran >= fewestFinished && 2 * ran >= total - reused
  })
}

const hasBoth = ({ a, b }: NamePair): boolean => a !== undefined && b !== undefined

/** Excludes names that may be missing only because very many names are not all known. */
const comparablePairs = (before: ReportData, after: ReportData): NamePair[] =>
  pairsOf(before, after).filter(
    ({ a, b }) =>
      (a !== undefined || before.otherNames === 0) && (b !== undefined || after.otherNames === 0),
  )

/** The comparison of the runs as a whole; `counts` are the sentences about their tasks only. */
interface WholeWords {
  readonly severity: Severity
  readonly verdict: string
  readonly counts: readonly string[]
}

/** The length of a run indicates its speed only if both runs did the same work. */
export function compareWholes(before: ReportData, after: ReportData): WholeWords {
  const likeness = compareTaskSets(before, after)
  if (likeness === 'work') return byLength(before, after)
  if (likeness === 'names' && hasSameMix(before, after)) return byRate(before, after)
  if (isReuseOnly(before, after)) return byReuse(before, after)
  const counts =
    likeness === 'tasks'
      ? `Both runs have the same ${countText(before.counts.tasks, 'task')}, which ended ` +
        `differently: ${endWords(before)} in the first; ${endWords(after)} in the second.`
      : likeness === 'names'
        ? taskWords(before, after)
        : 'The runs have no name in common, so their speeds cannot be compared: ' +
          `${doneWords(before)} in the first, ${doneWords(after)} in the second.`
  const hasMoreFailures = likeness === 'tasks' && after.counts.failed > before.counts.failed
  const verdict = `${counts} They took ${lengthsOf(before, after)}.`
  return { severity: hasMoreFailures ? 'bad' : 'warning', verdict, counts: [counts] }
}

/** Whether the same tasks had the same ends, but one run reused more results than the other. */
export function isReuseOnly(before: ReportData, after: ReportData): boolean {
  const [a, b] = [before.counts, after.counts]
  const ends = ['completed', 'failed', 'canceled', 'open'] as const
  return (
    compareTaskSets(before, after) === 'tasks' &&
    before.reused !== after.reused &&
    ends.every((end) => a[end] === b[end])
  )
}

function byReuse(before: ReportData, after: ReportData): WholeWords {
  const tasks = countText(before.counts.tasks, 'task')
  const results = ({ reused }: ReportData): string =>
    reused === 0 ? 'none' : countText(reused, 'result')
  const counts =
    `Both runs have the same ${tasks}: the first reused ${results(before)}, the second ` +
    `${results(after)}.`
  const verdict = `${counts} For that reason they took ${lengthsOf(before, after)}.`
  return { severity: 'warning', verdict, counts: [counts] }
}

const lengthsOf = (before: ReportData, after: ReportData): string =>
  `${secondsText(before.durationSeconds)}, then ${secondsText(after.durationSeconds)}`

/** The relative increase in length of the second run. */
export function lengthChange(before: ReportData, after: ReportData): number {
  const [a, b] = [before.durationSeconds, after.durationSeconds]
  return a > 0 ? b / a - 1 : 0
}

function byLength(before: ReportData, after: ReportData): WholeWords {
  const change = lengthChange(before, after)
  const [a, b] = [before.durationSeconds, after.durationSeconds]
  const lengths = `${secondsText(b)} after ${secondsText(a)}`
  const verdict =
    Math.abs(change) < noise
      ? `The second run took as long as the first: ${lengths}.`
      : `The second run was ${percentText(Math.abs(change))} ` +
        `${change > 0 ? 'slower' : 'faster'}: ${lengths}.`
  return { severity: change >= noise ? 'bad' : 'good', verdict, counts: [] }
}

/** For runs with the same mix of tasks: compares the number of tasks, then the rate. */
function byRate(before: ReportData, after: ReportData): WholeWords {
  const counts = taskWords(before, after)
  const [a, b] = [rateOf(before), rateOf(after)]
  const lengths = lengthsOf(before, after)
  if (a === 0 || b === 0) {
    return { severity: 'warning', verdict: `${counts} They took ${lengths}.`, counts: [counts] }
  }
  const change = b / a - 1
  const how =
    Math.abs(change) < noise
      ? 'as many tasks a second as'
      : `${percentText(Math.abs(change))} ${change > 0 ? 'more' : 'fewer'} tasks a second than`
  const verdict =
    `${counts} The second did ${how} the first: ${rateText(b)} after ${rateText(a)} ` +
    `(they took ${lengths}).`
  return { severity: change <= -noise ? 'bad' : 'warning', verdict, counts: [counts] }
}

function taskWords(before: ReportData, after: ReportData): string {
  const [first, second] = [doneWords(before), doneWords(after)]
  return first === second
    ? `The runs differ in their tasks: ${first} each, but not the same number of each name.`
    : `The runs differ in their tasks: ${first} in the first, ${second} in the second.`
}

function doneWords({ counts: { tasks, completed }, reused }: ReportData): string {
  const details = [
    ...(completed === tasks ? [] : [`${numberText(completed)} done`]),
    ...(reused === 0 ? [] : [`${numberText(reused)} reused`]),
  ]
  return countText(tasks, 'task') + (details.length === 0 ? '' : ` (${details.join(', ')})`)
}

function endWords({ counts, reused }: ReportData): string {
  const { tasks, completed, failed, canceled, open } = counts
  const ofThem = reused === 0 ? '' : ` (${numberText(reused)} of them reused)`
  if (completed === tasks) return `all done${ofThem}`
  const ends = [
    [completed, `done${ofThem}`],
    [failed, 'failed'],
    [canceled, 'canceled'],
    [open, 'without an end'],
  ] as const
  return ends
    .filter(([count], at) => count > 0 || at === 0)
    .map(([count, what]) => `${numberText(count)} ${what}`)
    .join(', ')
}

/** Tasks per second of the run that actually ran and were completed. */
export function rateOf(data: ReportData, name?: NameReport): number {
  const seconds = data.durationSeconds
  const done = (name ?? data.counts).completed - (name ?? data).reused
  return seconds > 0 ? done / seconds : 0
}

/** Whether each name has the same share of the tasks in both runs. */
function hasSameMix(before: ReportData, after: ReportData): boolean {
  const share = (name: NameReport | undefined, { counts }: ReportData): number =>
    (name?.total ?? 0) / Math.max(1, counts.tasks)
  return comparablePairs(before, after).every(
    ({ a, b }) => Math.abs(share(a, before) - share(b, after)) < noise,
  )
}

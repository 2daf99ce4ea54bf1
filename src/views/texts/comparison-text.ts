/** Compares two runs: which was faster, which names became slower, and why. Pure. */

import { idleReasons } from '../bounds/slots.ts'
import { countText, numberText, percentText, rateText, secondsText } from '../readable.ts'
import { shortName } from '../readable.ts'
import { idleTexts } from './idle-texts.ts'
import type { NameReport, RunOverview, Severity } from './run-overview.ts'

/** Smaller relative changes are not reported. */
export const minChange = 0.05
/** The minimum number of tasks. Medians of fewer tasks may differ by chance. */
const minFinished = 4
const maxNamed = 3

export interface NamePair {
  readonly name: string
  readonly a: NameReport | undefined
  readonly b: NameReport | undefined
}

export interface RunPair {
  readonly before: RunOverview
  readonly after: RunOverview
  readonly names: readonly NamePair[]
  /**
   * What the runs have in common: the same tasks with the same results (`work`), the same tasks
   * with other reused results (`reuse`), the same tasks, some names, or nothing.
   */
  readonly common: keyof typeof differences
  /** Whether each name has the same share of the tasks in both runs. */
  readonly hasSameMix: boolean
}

/**
 * Sentences by what the runs have in common. They contain no numbers, because the page shows the
 * numbers of both runs below them.
 */
const differences = {
  work: '',
  reuse: 'The same tasks reused different results.',
  tasks: 'The same tasks ended differently.',
  names: 'The runs differ in their tasks.',
  nothing: 'The runs have no name in common, so their speeds cannot be compared.',
}

export function pairRuns(before: RunOverview, after: RunOverview): RunPair {
  const byName = ({ names }: RunOverview) => new Map(names.map((one) => [one.name, one]))
  const [first, second] = [byName(before), byName(after)]
  const all = new Set([...second.keys(), ...first.keys()])
  const names = Array.from(all, (name) => ({ name, a: first.get(name), b: second.get(name) }))
  // A name may be missing from a run only because the run has too many names.
  const known = names.filter(
    ({ a, b }) =>
      (a !== undefined || before.otherNames === 0) && (b !== undefined || after.otherNames === 0),
  )
  const share = (name: NameReport | undefined, { counts }: RunOverview): number =>
    (name?.total ?? 0) / Math.max(1, counts.tasks)
  const hasSameMix = known.every(
    ({ a, b }) => Math.abs(share(a, before) - share(b, after)) < minChange,
  )
  return { before, after, names, common: findCommon(before, after, known), hasSameMix }
}

function findCommon(
  before: RunOverview,
  after: RunOverview,
  known: readonly NamePair[],
): RunPair['common'] {
  const isSame = (key: 'total' | 'completed' | 'reused'): boolean =>
    known.every(({ a, b }) => a?.[key] === b?.[key])
  if (before.counts.tasks === after.counts.tasks && isSame('total')) {
    const ends = ['completed', 'failed', 'canceled', 'open'] as const
    if (ends.some((end) => before.counts[end] !== after.counts[end])) return 'tasks'
    if (before.reused !== after.reused) return 'reuse'
    return isSame('completed') && isSame('reused') ? 'work' : 'tasks'
  }
  const hasAllNames = before.otherNames + after.otherNames === 0
  const hasCommon = known.some(({ a, b }) => a !== undefined && b !== undefined)
  return hasAllNames && !hasCommon ? 'nothing' : 'names'
}

/**
 * Whether the durations of a name are comparable: either all its tasks ran and completed in both
 * runs, and their numbers are equal and above 1; or at least `minFinished` of its tasks did so in
 * each run, and these are at least half of the tasks without a reused result. Failed tasks do not
 * count, because they end too early or too late.
 */
export function isComparable({ a, b }: NamePair): boolean {
  if (a === undefined || b === undefined) return false
  const isDone = ({ completed, reused, total }: NameReport): boolean =>
    completed === total && reused === 0
  if (a.total === b.total && isDone(a) && isDone(b)) return a.total > 1
  return [a, b].every(({ completed, reused, total }) => {
    const ran = completed - reused
    return ran >= minFinished && 2 * ran >= total - reused
  })
}

/** Returns the number of tasks that ran and completed per second of the run. */
export function doneRate(data: RunOverview, name?: NameReport): number {
  const seconds = data.durationSeconds
  const ranCount = (name ?? data.counts).completed - (name ?? data).reused
  return seconds > 0 ? ranCount / seconds : 0
}

interface ComparisonVerdict {
  readonly severity: Severity
  readonly verdict: string
}

export interface ComparisonText extends ComparisonVerdict {
  /** The sentences. Those about what became slower come first. */
  readonly sentences: readonly string[]
}

export function describeComparison(pair: RunPair): ComparisonText {
  const { before, after } = pair
  const openEnds = [...describeOpenEnd('first', before), ...describeOpenEnd('second', after)]
  const changes = describeChanges(pair)
  const isUnchanged = changes.length === 0 && pair.names.some(isComparable)
  return {
    ...(openEnds.length > 0
      ? { severity: 'warning', verdict: [...openEnds, differences[pair.common]].join(' ').trim() }
      : compareRuns(pair)),
    sentences: [
      ...changes,
      ...(isUnchanged ? ['No name became slower or faster by 5 % or more.'] : []),
      ...findCauses(pair),
    ],
  }
}

/** Returns how much longer the second run took, as a share of the first. */
const lengthChange = ({ before, after }: RunPair): number =>
  before.durationSeconds > 0 ? after.durationSeconds / before.durationSeconds - 1 : 0

/** Compares the lengths of two runs, which is possible only if both did the same work. */
function compareRuns(pair: RunPair): ComparisonVerdict {
  const { before, after, common } = pair
  const [first, second] = [before, after].map((one) => secondsText(one.durationSeconds))
  if (common === 'work') {
    const change = lengthChange(pair)
    const speed = `${percentText(Math.abs(change))} ${change > 0 ? 'slower' : 'faster'}`
    const changeText = Math.abs(change) < minChange ? 'took as long as the first' : `was ${speed}`
    const severity = change >= minChange ? 'bad' : 'good'
    return { severity, verdict: `The second run ${changeText}: ${second} after ${first}.` }
  }
  const difference = differences[common]
  const [a, b] = [doneRate(before), doneRate(after)]
  if (common === 'names' && pair.hasSameMix && a > 0 && b > 0) {
    const rates = `${rateText(a)} tasks per second, then ${rateText(b)}`
    const verdict = `${difference} They did ${rates}, and took ${first}, then ${second}.`
    return { severity: b / a - 1 <= -minChange ? 'bad' : 'warning', verdict }
  }
  const hasMoreFailures = common === 'tasks' && after.counts.failed > before.counts.failed
  const verdict = `${difference} They took ${first}, then ${second}.`
  return { severity: hasMoreFailures ? 'bad' : 'warning', verdict }
}

const listFirst = (texts: readonly string[]): string =>
  texts.slice(0, maxNamed).join(', ') +
  (texts.length > maxNamed ? ` and ${countText(texts.length - maxNamed, 'other')}` : '')

/** Returns a sentence about an unfinished run, whose length is unknown. */
function describeOpenEnd(which: string, { state, run }: RunOverview): string[] {
  if (state === 'running') return [`The ${which} run is in progress: its numbers are those so far.`]
  if (run.endTime !== null) return []
  return [`The ${which} run has no end: its numbers are those up to its last event.`]
}

interface NameChange {
  readonly name: string
  readonly text: string
  /** The additional seconds of all tasks of the name; negative if the tasks became faster. */
  readonly lost: number
}

function describeChanges({ names }: RunPair): string[] {
  const comparable = names.filter(isComparable)
  const medians = comparable.flatMap((pair) => findChange(pair, 'p50'))
  const named = new Set(medians.map(({ name }) => name))
  // Names whose median changed are omitted, because their slowest tasks changed as well.
  const slowest = comparable
    .filter(({ name }) => !named.has(name))
    .flatMap((pair) => findChange(pair, 'p95'))
  const list = (what: string, changes: readonly NameChange[], sign: number): string[] => {
    const all = changes
      .filter(({ lost }) => sign * lost > 0)
      .toSorted((a, b) => sign * (b.lost - a.lost))
    return all.length === 0 ? [] : [`${what}: ${listFirst(all.map(({ text }) => text))}.`]
  }
  return [
    ...list('Slower', medians, 1),
    ...list('Slower in the slowest tasks', slowest, 1),
    ...list('Faster', medians, -1),
    ...list('Faster in the slowest tasks', slowest, -1),
  ]
}

function findChange({ name, a, b }: NamePair, rank: 'p50' | 'p95'): NameChange[] {
  const [old, now] = [a?.done?.[rank] ?? 0, b?.done?.[rank] ?? 0]
  if (old <= 0 || now <= 0 || Math.abs(now / old - 1) < minChange) return []
  const failed =
    a?.failed === b?.failed ? '' : `; ${a?.failed ?? 0} failed before, ${b?.failed ?? 0} now`
  const times = `${secondsText(old)} before, ${secondsText(now)} now${failed}`
  const text = `${shortName(name)} (${rank === 'p50' ? 'median' : rank} ${times})`
  return [{ name, text, lost: (now - old) * (b?.total ?? 0) }]
}

/** Times that may explain why a run took longer, with the beginning of a sentence about each. */
const causes: readonly (readonly [
  read: (run: RunOverview) => number,
  text: (seconds: string) => string,
])[] = [
  [meanWait, (time) => `Its tasks waited ${time} on average from being ready to their start`],
  [({ bounds }) => bounds.criticalPath.seconds, (time) => `Its critical path took ${time}`],
  [
    ({ bounds }) => bounds.failedSeconds,
    (time) => `Attempts that failed or were lost took ${time} of slot time`,
  ],
]

/** Returns sentences about changes that may explain why the run became longer or shorter. */
function findCauses(pair: RunPair): string[] {
  const { before, after, common } = pair
  // The times of a run cannot be compared if the clock was changed during the run.
  const hasTimes = before.health.clockStep + after.health.clockStep === 0
  const isSame = common === 'work' || common === 'tasks'
  if (!hasTimes || !isSame || Math.abs(lengthChange(pair)) < minChange) return []
  const sign = Math.sign(lengthChange(pair))
  // Other differences follow from a different number of reused results.
  if (sign * (before.reused - after.reused) > 0) {
    const share = ({ reused, counts }: RunOverview): string =>
      reused === 0 ? 'none' : `${numberText(reused)} of ${numberText(counts.tasks)}`
    return [`The second run reused ${share(after)} results, the first ${share(before)}.`]
  }
  const [a, b] = [before.bounds.slots, after.bounds.slots]
  const slots = `The second run had ${countText(b, 'slot')}, the first ${countText(a, 'slot')}.`
  return [
    ...(sign * (a - b) > 0 ? [slots] : []),
    ...causes.flatMap(([read, text]) => {
      const [old, now] = [read(before), read(after)]
      const isCause = sign * (now - old) >= minChange * Math.max(old, now, before.durationSeconds)
      const oldText = old === 0 ? 'none' : secondsText(old)
      return isCause ? [`${text(secondsText(now))}, ${oldText} in the first run.`] : []
    }),
    ...findIdleCause(pair, sign),
  ]
}

function meanWait({ names }: RunOverview): number {
  const tasks = names.reduce((sum, { total }) => sum + total, 0)
  const seconds = names.reduce((sum, { total, meanWait: wait }) => sum + total * (wait ?? 0), 0)
  return tasks === 0 ? 0 : seconds / tasks
}

/** `sign` is 1 if the second run took longer than the first, and -1 if it was shorter. */
function findIdleCause({ before: { bounds: a }, after: { bounds: b } }: RunPair, sign: number) {
  // Idle slots are not compared in runs with models, because tasks may have waited for responses of
  // a model.
  if (a.unsized.length + b.unsized.length > 0) return []
  const changes = idleReasons.map((reason) => {
    const [old, now] = [a, b].map(({ slotSeconds, slots, seconds }) => {
      return slotSeconds[reason] / Math.max(1e-9, slots * seconds)
    }) as [number, number]
    return { reason, old, now, more: sign * (now - old) }
  })
  const [largest] = changes.toSorted((x, y) => y.more - x.more)
  if (largest === undefined || largest.more < minChange) return []
  const { reason, old, now } = largest
  const time = `For ${percentText(now)} of its slots' time`
  return [`${time} ${idleTexts[reason].state}, ${percentText(old)} in the first run.`]
}

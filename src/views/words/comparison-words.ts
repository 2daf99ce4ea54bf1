/**
 * Sentences that compare two runs: which was faster, what became slower, and why the durations of
 * the same tasks changed. Pure.
 */

import type { IdleReason } from '../bounds/slots.ts'
import { countText, numberText, percentText, rateText, secondsText } from '../readable.ts'
import { shortName, shortNames } from '../readable.ts'
import type { RunOverview } from './run-overview.ts'
import { isComparable, noise, rateOf, type RunPair } from './run-pair.ts'
import type { Severity } from './run-verdict.ts'

const maxNamed = 3

export interface ComparisonWords {
  readonly severity: Severity
  readonly verdict: string
  readonly sentences: readonly string[]
}

/** Sentences about what became slower come first. */
export function compareWords(pair: RunPair): ComparisonWords {
  const { before, after } = pair
  const openEnds = [...openEnd('first', before), ...openEnd('second', after)]
  const whole = compareWholes(pair)
  const medians = movesOf(pair, 'p50')
  const named = new Set(medians.map(({ name }) => name))
  // If the median of a name changed, its slowest tasks changed as well.
  const slowest = movesOf(pair, 'p95').filter(({ name }) => !named.has(name))
  const changes = [
    ...describeMoves('slower', medians, 'median'),
    ...describeMoves('slower', slowest, 'p95'),
    ...describeMoves('faster', medians, 'median'),
    ...describeMoves('faster', slowest, 'p95'),
  ]
  return {
    severity: openEnds.length > 0 ? 'warning' : whole.severity,
    verdict: [...openEnds, ...(openEnds.length > 0 ? whole.counts : [whole.verdict])].join(' '),
    sentences: [
      ...changes,
      ...(changes.length === 0 ? unmoved(pair) : []),
      ...causesOf(pair),
      ...onlyIn('first', before, after),
      ...onlyIn('second', after, before),
      ...failureWords(pair),
    ],
  }
}

/** The comparison of the whole runs; `counts` has only the sentences about their tasks. */
interface WholeWords {
  readonly severity: Severity
  readonly verdict: string
  readonly counts: readonly string[]
}

/** The lengths of two runs are comparable only if both did the same work. */
function compareWholes(pair: RunPair): WholeWords {
  const { before, after, common } = pair
  if (common === 'work') return byLength(pair)
  const [first, second] = [before, after].map((one) => secondsText(one.durationSeconds))
  const lengths = `${first}, then ${second}`
  if (common === 'names' && pair.hasSameMix) return byRate(pair, lengths)
  const tasks = `Both runs have the same ${countText(before.counts.tasks, 'task')}`
  if (pair.isReuseOnly) {
    const results = ({ reused }: RunOverview): string =>
      reused === 0 ? 'none' : countText(reused, 'result')
    const counts = `${tasks}: the first reused ${results(before)}, the second ${results(after)}.`
    const verdict = `${counts} For that reason they took ${lengths}.`
    return { severity: 'warning', verdict, counts: [counts] }
  }
  const counts =
    common === 'tasks'
      ? `${tasks}, which ended differently: ${endWords(before)} in the first; ` +
        `${endWords(after)} in the second.`
      : common === 'names'
        ? taskWords(pair)
        : 'The runs have no name in common, so their speeds cannot be compared: ' +
          `${doneWords(before)} in the first, ${doneWords(after)} in the second.`
  const hasMoreFailures = common === 'tasks' && after.counts.failed > before.counts.failed
  const verdict = `${counts} They took ${lengths}.`
  return { severity: hasMoreFailures ? 'bad' : 'warning', verdict, counts: [counts] }
}

function byLength({ before, after, lengthChange: change }: RunPair): WholeWords {
  const [first, second] = [before, after].map((one) => secondsText(one.durationSeconds))
  const lengths = `${second} after ${first}`
  const verdict =
    Math.abs(change) < noise
      ? `The second run took as long as the first: ${lengths}.`
      : `The second run was ${percentText(Math.abs(change))} ` +
        `${change > 0 ? 'slower' : 'faster'}: ${lengths}.`
  return { severity: change >= noise ? 'bad' : 'good', verdict, counts: [] }
}

/** For runs with the same mix of tasks: compares the numbers of tasks, then the rates. */
function byRate(pair: RunPair, lengths: string): WholeWords {
  const counts = taskWords(pair)
  const [a, b] = [rateOf(pair.before), rateOf(pair.after)]
  if (a === 0 || b === 0) {
    return { severity: 'warning', verdict: `${counts} They took ${lengths}.`, counts: [counts] }
  }
  const change = b / a - 1
  const how =
    Math.abs(change) < noise
      ? 'as many tasks per second as'
      : `${percentText(Math.abs(change))} ${change > 0 ? 'more' : 'fewer'} tasks per second than`
  const verdict =
    `${counts} The second did ${how} the first: ${rateText(b)} after ${rateText(a)} ` +
    `(they took ${lengths}).`
  return { severity: change <= -noise ? 'bad' : 'warning', verdict, counts: [counts] }
}

function taskWords({ before, after }: RunPair): string {
  const [first, second] = [doneWords(before), doneWords(after)]
  return first === second
    ? `The runs differ in their tasks: ${first} each, but not the same number of each name.`
    : `The runs differ in their tasks: ${first} in the first, ${second} in the second.`
}

function doneWords({ counts: { tasks, completed }, reused }: RunOverview): string {
  const details = [
    ...(completed === tasks ? [] : [`${numberText(completed)} done`]),
    ...(reused === 0 ? [] : [`${numberText(reused)} reused`]),
  ]
  return countText(tasks, 'task') + (details.length === 0 ? '' : ` (${details.join(', ')})`)
}

function endWords({ counts, reused }: RunOverview): string {
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

/** Empty if no name is comparable. */
function unmoved({ names }: RunPair): string[] {
  if (!names.some(isComparable)) return []
  const which = names.every(isComparable) ? 'No name' : 'No name that can be compared'
  return [`${which} became slower or faster by 5 % or more.`]
}

function onlyIn(which: string, own: RunOverview, other: RunOverview): string[] {
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

/** Returns nothing if the verdict already mentions the failures. */
function failureWords({ before, after, common }: RunPair): string[] {
  const [a, b] = [before.counts, after.counts]
  if (common === 'tasks' || (a.failed === b.failed && a.tasks === b.tasks)) return []
  if (a.failed === 0 && b.failed === 0) return []
  const part = (of: RunOverview['counts']): string =>
    `${numberText(of.failed)} of ${countText(of.tasks, 'task')}`
  return [`Failed: ${part(b)}; ${part(a)} before.`]
}

/** The length of an unfinished run is unknown. */
function openEnd(which: string, { state, run }: RunOverview): string[] {
  if (state === 'running') return [`The ${which} run is in progress: its numbers are those so far.`]
  if (run.endTime !== null) return []
  return [`The ${which} run has no end: its numbers are those up to its last event.`]
}

/** A name whose tasks became slower or faster. */
interface Move {
  readonly name: string
  readonly before: number
  readonly now: number
  /** Additional seconds of all tasks of the name; negative if they became faster. */
  readonly lost: number
  /** A note if the number of failed tasks changed; otherwise empty. */
  readonly failed: string
}

function movesOf({ names }: RunPair, rank: 'p50' | 'p95'): Move[] {
  return names.filter(isComparable).flatMap(({ name, a, b }) => {
    const [old, now] = [a?.done?.[rank] ?? 0, b?.done?.[rank] ?? 0]
    if (old <= 0 || now <= 0 || Math.abs(now / old - 1) < noise) return []
    const lost = (now - old) * (b?.total ?? 0)
    const isOther = a?.failed !== b?.failed
    const failed = isOther ? `; ${a?.failed ?? 0} failed before, ${b?.failed ?? 0} now` : ''
    return [{ name, before: old, now, lost, failed }]
  })
}

function describeMoves(
  how: 'slower' | 'faster',
  moves: readonly Move[],
  rank: 'median' | 'p95',
): string[] {
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

/** Changes in the same direction as the run's length, which may explain it. */
function causesOf(pair: RunPair): string[] {
  const { before, after, common, lengthChange } = pair
  // If a clock was changed during a run, its times cannot be compared.
  const hasTimes = before.health.clockStep + after.health.clockStep === 0
  if (!hasTimes || Math.abs(lengthChange) < noise) return []
  if (common !== 'work' && common !== 'tasks') return []
  // Tasks that did not run also change waits, the critical path and idle time.
  if (pair.isReuseOnly) return []
  const sign = Math.sign(lengthChange)
  if (sign * (before.reused - after.reused) > 0) {
    const of = ({ reused, counts }: RunOverview): string =>
      reused === 0 ? 'none' : `${numberText(reused)} of ${numberText(counts.tasks)}`
    return [`The second run reused ${of(after)} results, the first ${of(before)}.`]
  }
  return [...sizeCauses(pair, sign), ...idleCause(pair, sign)]
}

/** `sign` is 1 if the second run took longer, -1 if it was shorter. */
function sizeCauses({ before, after }: RunPair, sign: number): string[] {
  const { bounds: a } = before
  const { bounds: b } = after
  /** Whether two times differ enough to explain part of the difference between the runs. */
  const isMoved = (old: number, now: number): boolean => {
    const more = sign * (now - old)
    return more >= noise * Math.max(old, now) && more >= noise * before.durationSeconds
  }
  const [waitBefore, wait] = [meanWait(before), meanWait(after)]
  const [pathBefore, path] = [a.criticalPath.seconds, b.criticalPath.seconds]
  const causes: [boolean, string][] = [
    [
      sign * (a.slots - b.slots) > 0,
      `The second run had ${countText(b.slots, 'slot')}, the first ${countText(a.slots, 'slot')}.`,
    ],
    [
      isMoved(waitBefore, wait),
      `Its tasks waited ${secondsText(wait)} on average from being ready to their start, ` +
        `${secondsText(waitBefore)} in the first run.`,
    ],
    [
      isMoved(pathBefore, path),
      `Its critical path took ${secondsText(path)}, ${secondsText(pathBefore)} in the first run.`,
    ],
    [
      isMoved(a.failedSeconds, b.failedSeconds),
      `Attempts that failed or were lost took ${secondsText(b.failedSeconds)} of slot time, ` +
        `${a.failedSeconds === 0 ? 'none' : secondsText(a.failedSeconds)} in the first run.`,
    ],
  ]
  return causes.flatMap(([isCause, text]) => (isCause ? [text] : []))
}

function meanWait({ names }: RunOverview): number {
  const tasks = names.reduce((sum, { total }) => sum + total, 0)
  const seconds = names.reduce((sum, { total, meanWait: wait }) => sum + total * (wait ?? 0), 0)
  return tasks === 0 ? 0 : seconds / tasks
}

/** The class of idle time that changed most in the direction of `sign`. */
function idleCause({ before: { bounds: a }, after: { bounds: b } }: RunPair, sign: number) {
  // Slots may be idle because tasks wait for responses of a model.
  if (a.unsized.length + b.unsized.length > 0) return []
  const moves = Object.entries(idleTexts).map(([reason, text]) => {
    const [before, now] = [idleShare(a, reason as IdleReason), idleShare(b, reason as IdleReason)]
    return { text, before, now, more: sign * (now - before) }
  })
  const [largest] = moves.toSorted((x, y) => y.more - x.more)
  if (largest === undefined || largest.more < noise) return []
  const { text, before, now } = largest
  return [
    `For ${percentText(now)} of its slots' time ${text}, ${percentText(before)} in the first run.`,
  ]
}

function idleShare({ slotSeconds, slots, seconds }: RunOverview['bounds'], reason: IdleReason) {
  const { noSlotFitted, ...others } = slotSeconds
  return { ...others, ...noSlotFitted }[reason] / Math.max(1e-9, slots * seconds)
}

const idleTexts: Readonly<Record<IdleReason, string>> = {
  noTaskReady: 'no task was ready',
  nameLimit: 'a ready task waited for the limit of its name',
  startingWorkers: 'a ready task waited for its worker to start',
  taskOverhead: 'a ready task was just being started',
  heldBack: 'a ready task waited for the scheduler',
  nodeAway: 'a node was away',
  cores: 'free slots had too few cores for the tasks that were ready',
  gpus: 'free slots lacked gpus for the tasks that were ready',
  memory: 'free slots lacked memory for the tasks that were ready',
  workers: 'all `workers` for functions were in use',
  processes: 'all `maxProcesses` for programs were in use',
  labels: 'free slots lacked the labels of the tasks that were ready',
}

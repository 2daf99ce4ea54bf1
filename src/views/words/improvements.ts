/**
 * Sentences about changes that would shorten a run. A run with one change takes at least as long as
 * its longest chain, and as the resources that its tasks hold require: "up to" is the difference to
 * the actual time. If that is much more than the time known to be lost, there is no sentence. Pure.
 */

import { countText, numberText, percentText, secondsText } from '../readable.ts'
import { shortName } from '../readable.ts'
import type { BoundsView } from '../bounds/bounds.ts'
import type { ChangedRun } from '../bounds/changed-runs.ts'
import type { LargestName } from '../bounds/critical-path.ts'
import type { IdleReason } from '../bounds/slots.ts'
import { type Bound, type BoundFacts, classSharesOf, idleClasses } from './bound-measures.ts'
import {
  busiestModel,
  isCpuBound,
  idleLength,
  isOtherResource,
  isSlotResource,
} from './bound-measures.ts'
import type { MinTime } from './bound-measures.ts'
import { minTimesOf, maxFullSeconds, maxIdlePathShare, notYetReadyOf } from './bound-measures.ts'
import { pathBoundOf, scarcestSlots, slotTimeOf, smallestShare } from './bound-measures.ts'
import { isOneThread, promptSettings, tasksPerTask } from './bound-measures.ts'

export interface Improvement {
  /** The bound that the sentence is about; `null` if there is none. */
  readonly bound: Bound | null
  /** The number of seconds by which the run could be shorter, as far as known. */
  readonly saved: number
  readonly text: string
}

/** Returns the improvements that save the most time first. */
export function findImprovements(bounds: BoundsView, facts: BoundFacts): Improvement[] {
  const found = [
    ...(slotTimeOf(bounds) > 0 ? ofSlots(bounds, facts) : []),
    ...modelImprovements(bounds),
    ...pathImprovements(bounds, facts),
    ...failedImprovements(bounds),
    ...minSentences(bounds),
  ]
  return found.toSorted((a, b) => b.saved - a.saved)
}

const ofSlots = (bounds: BoundsView, facts: BoundFacts): Improvement[] => [
  ...idleImprovements(bounds, facts),
  ...resourceImprovements(bounds),
  ...slotImprovements(bounds, facts),
  ...backendImprovements(bounds),
  // Work of a model needs no slots.
  ...(bounds.unsized.length === 0 ? [workSentence(bounds)] : []),
]

/** The minimum time of a changed run, and how much of the actual time is known to be lost. */
interface Change {
  readonly bound: Bound | null
  readonly min: number
  readonly lost: number
}

/** The share of the possible saving that must be known to be lost. */
const minKnown = 0.5

function sentence(
  { seconds }: BoundsView,
  { bound, min, lost }: Change,
  text: (saved: string) => string,
): Improvement[] {
  const max = seconds - min
  if (max < smallestShare * seconds || lost < minKnown * max) return []
  return [{ bound, saved: Math.min(max, lost), text: text(secondsText(max)) }]
}

const longest = (path: number, times: readonly MinTime[]): number =>
  Math.max(path, ...times.map(({ seconds }) => seconds))

/** The change for shorter tasks or fewer attempts. */
function changeOf(bounds: BoundsView, bound: Bound | null, changed: ChangedRun): Change {
  const { seconds: path } = bounds.criticalPath
  const before = longest(path, minTimesOf(bounds))
  const after = longest(changed.path, minTimesOf(bounds, changed.freed))
  const lost = Math.max(before - after, path - changed.path)
  return { bound, min: Math.max(after, changed.earliestEnd), lost }
}

function pathImprovements(bounds: BoundsView, facts: BoundFacts): Improvement[] {
  const { criticalPath, stragglers } = bounds
  const bound = pathBoundOf(bounds)
  const onPath = new Set(criticalPath.tasks.map(({ task }) => task))
  const late = stragglers.filter(({ task }) => onPath.has(task)).length
  const { withoutDelays, withoutStragglers } = criticalPath
  const without = (changed: ChangedRun | null, text: string): Improvement[] =>
    changed === null
      ? []
      : sentence(
          bounds,
          changeOf(bounds, bound, changed),
          (saved) => `${text} could end up to ${saved} earlier.`,
        )
  const whom = late === 1 ? 'straggler' : countText(late, 'straggler')
  return [
    ...without(
      withoutDelays,
      'Without the delays between attempts (`delaySeconds`) on the critical path it',
    ),
    ...without(withoutStragglers, `Without the ${whom} on the critical path it`),
    ...halvedImprovements(bounds, facts),
  ]
}

/** About the name with the most time on the path or in slots, whichever saves more. */
function halvedImprovements(bounds: BoundsView, facts: BoundFacts): Improvement[] {
  const { largestName, busiestName } = bounds.criticalPath
  const half = (bound: Bound, { task, halved }: LargestName): Improvement[] =>
    sentence(bounds, changeOf(bounds, bound, halved), (saved) => {
      const name = shortName(facts.nameOf(task))
      return `If all ${name} tasks took half as long, it could end up to ${saved} earlier.`
    })
  const isFull = maxFullSeconds(bounds) >= smallestShare * bounds.seconds
  return [
    ...half(pathBoundOf(bounds), largestName),
    ...(busiestName === null || !isFull ? [] : half('slots', busiestName)),
  ]
    .toSorted((a, b) => b.saved - a.saved)
    .slice(0, 1)
}

/** The minimum time of the run with twice as much of this resource. */
function doubledSeconds(bounds: BoundsView, doubled: MinTime): number {
  const { resource, backend } = doubled
  // More slots provide more cores, and more concurrent workers and programs.
  const isDoubled = (one: MinTime): boolean =>
    one.backend === backend &&
    (one.resource === resource || (isSlotResource(resource) && isSlotResource(one.resource)))
  const others = minTimesOf(bounds).filter((one) => !isDoubled(one))
  return Math.max(longest(bounds.criticalPath.seconds, others), doubled.doubled)
}

function idleImprovements(bounds: BoundsView, facts: BoundFacts): Improvement[] {
  const { seconds, criticalPath } = bounds
  const time = slotTimeOf(bounds)
  // A long critical path, or tasks that wait for slots, would explain the idle slots.
  const isOpen =
    criticalPath.share < maxIdlePathShare &&
    maxFullSeconds(bounds) < seconds / 2 &&
    (busiestModel(bounds)?.busySeconds ?? 0) < maxIdlePathShare * seconds
  const shares = classSharesOf(bounds)
  return idleClasses(bounds)
    .filter(({ bound }) => bound !== 'slots' && (bound !== 'tasks' || isOpen))
    .flatMap(({ bound, class: own, seconds: all }) => {
      // After all tasks have become ready, idle slots do not wait for tasks.
      const idle = bound === 'tasks' ? notYetReadyOf(bounds) : all
      if (idle < smallestShare * time) return []
      const lost = lostTo(bounds, { bound, reason: own, idle })
      const others = minTimesOf(bounds).filter(({ resource }) => resource !== bound)
      const min = longest(criticalPath.seconds, others) + otherStarts(bounds, bound, idle)
      const what = bound === 'short tasks' ? inOneTask(bounds, facts) : idleNames[bound]
      const part = idle === all ? shares[own].text : percentText(idle / time)
      return sentence(
        bounds,
        { bound, min, lost },
        (saved) =>
          `${what} it could end up to ${saved} earlier: ` +
          `${part} of the slots' time was idle for that reason.`,
      )
    })
}

/** The part of the run's time that is known to be lost to one class of idle time. */
function lostTo(
  bounds: BoundsView,
  { bound, reason, idle }: { bound: Bound; reason: IdleReason; idle: number },
): number {
  const { seconds, slotSeconds } = bounds
  // A few tasks may wait for a single GPU while most slots are not needed.
  if (lackedResources.has(bound)) return idleLength(bounds, reason)
  // Tasks can use as many slots as were busy or free for them.
  if (startBounds.has(bound)) return (seconds * idle) / (startSecondsOf(bounds) + slotSeconds.ran)
  return (seconds * idle) / slotTimeOf(bounds)
}

/** The slot-seconds in which a ready task fitted a free slot. */
const startSecondsOf = ({ slotSeconds }: BoundsView): number =>
  slotSeconds.nameLimit +
  slotSeconds.startingWorkers +
  slotSeconds.taskOverhead +
  slotSeconds.heldBack

/** The remaining cost of other reasons for late starts. */
const otherStarts = (bounds: BoundsView, bound: Bound, idle: number): number =>
  startBounds.has(bound)
    ? (bounds.seconds * (startSecondsOf(bounds) - idle)) /
      (startSecondsOf(bounds) + bounds.slotSeconds.ran)
    : 0

function inOneTask(bounds: BoundsView, facts: BoundFacts): string {
  const count = tasksPerTask(bounds, facts)
  return count === 1
    ? 'If starting a task took no time,'
    : `With the work of about ${numberText(count)} tasks in one task`
}

const startBounds: ReadonlySet<Bound> = new Set([
  'limits',
  'worker start',
  'short tasks',
  'scheduler',
])
const lackedResources: ReadonlySet<Bound> = new Set(['gpus', 'memory', 'labels'])

const idleNames: Readonly<Partial<Record<Bound, string>>> = {
  limits: 'Without the limits of the session',
  'worker start': 'If workers started in no time,',
  scheduler: 'If no ready task waited for the scheduler,',
  gpus: 'With enough gpus for the tasks that are ready',
  memory: 'With enough memory for the tasks that are ready',
  labels: 'If all nodes had the labels that tasks ask for,',
  tasks: 'If tasks were ready earlier,',
  nodes: 'If the nodes were present all the time,',
}

/** A sentence with the remaining time: "it could end after … at best". */
function atBest(bounds: BoundsView, change: Change, what: string): Improvement[] {
  const [best, now] = [secondsText(change.min), secondsText(bounds.seconds)]
  return sentence(
    bounds,
    change,
    () => `${what} it could end after ${best} at best, instead of ${now}.`,
  )
}

/** About GPUs or memory, whichever is used more. */
function resourceImprovements(bounds: BoundsView): Improvement[] {
  const scarce = minTimesOf(bounds).find(isOtherResource)
  if (scarce === undefined) return []
  const { resource: bound, seconds, doubled } = scarce
  const change = { bound, min: doubledSeconds(bounds, scarce), lost: seconds - doubled }
  return atBest(bounds, change, `With twice as ${bound === 'gpus' ? 'many gpus' : 'much memory'}`)
}

/** Shorter waits are rounding errors. */
const minWaitSeconds = 1e-5

/** More slots help only if tasks waited for slots. */
function slotImprovements(bounds: BoundsView, facts: BoundFacts): Improvement[] {
  const { seconds, slotSeconds } = bounds
  const full = maxFullSeconds(bounds)
  if (full >= smallestShare * seconds) {
    if (isOneThread(bounds)) return []
    const min = doubledSeconds(bounds, scarcestSlots(bounds))
    const what = `With twice as many slots${isCpuBound(facts) ? ' and processors' : ''}`
    return atBest(bounds, { bound: 'slots', min, lost: full }, what)
  }
  // If tasks waited for labels, only slots with those labels would help.
  if (slotSeconds.noSlotFitted.labels > 0) return []
  const idle = percentText(1 - slotSeconds.ran / slotTimeOf(bounds))
  const text =
    full < minWaitSeconds
      ? `No further slot would shorten it: no task waited for one, and ${idle} of the slots' ` +
        'time was idle.'
      : `More slots would not help: tasks waited only ${secondsText(full)} for one.`
  return [{ bound: null, saved: 0, text }]
}

/** If prompts waited, assumes that the model could run twice the maximum number of this run. */
function modelImprovements(bounds: BoundsView): Improvement[] {
  const model = busiestModel(bounds)
  if (model === null || model.waitedSeconds < smallestShare * bounds.seconds) return []
  const { workSeconds, maxAtOnce, waitedSeconds: lost, isModel, backend } = model
  const doubled = workSeconds / (2 * maxAtOnce)
  const min = Math.max(longest(bounds.criticalPath.seconds, minTimesOf(bounds)), doubled)
  const [whose, setting] = isModel ? ['prompts', ` (${promptSettings})`] : ['tasks', '']
  const what = `With twice as many ${whose} of ${backend} at a time${setting}`
  return atBest(bounds, { bound: 'model', min, lost }, what)
}

/** Applies if tasks waited for slots of one backend while other backends had idle slots. */
function backendImprovements(bounds: BoundsView): Improvement[] {
  const { backends, slots, slotSeconds, criticalPath } = bounds
  if (backends.length < 2) return []
  const min = Math.max(criticalPath.seconds, slotSeconds.ran / slots)
  const change = { bound: 'slots', min, lost: maxFullSeconds(bounds) } as const
  return atBest(bounds, change, `With its tasks shared evenly by its ${backends.length} backends`)
}

function workSentence({ slotSeconds, criticalPath }: BoundsView): Improvement {
  const enough = Math.max(1, Math.ceil(slotSeconds.ran / Math.max(criticalPath.seconds, 1e-9)))
  const text =
    `The work is ${secondsText(slotSeconds.ran)} of slot time: to end with its critical path it ` +
    `needs at least ${countText(enough, 'slot')}.`
  return { bound: null, saved: -1, text }
}

/** The minimum times that no change of slots or task order can reduce. */
function minSentences(bounds: BoundsView): Improvement[] {
  const { criticalPath, seconds } = bounds
  const path =
    `However many slots it has, it takes at least ${secondsText(criticalPath.seconds)}, its ` +
    `critical path: ${percentText(criticalPath.share)} of its time.`
  const held = minTimesOf(bounds)
    .slice(0, 1)
    .map(
      ({ of, seconds: min }) =>
        `With ${of} it takes at least ${secondsText(min)}, ` +
        `${percentText(min / seconds)} of its time, in any order of its tasks.`,
    )
  return [path, ...held].map((text, at) => ({ bound: null, saved: -2 - at, text }))
}

/** Limited by the path and the slots: failures during a long task cost no time. */
function failedImprovements(bounds: BoundsView): Improvement[] {
  const { withoutFailures } = bounds.criticalPath
  if (withoutFailures === null || bounds.failedSeconds === 0) return []
  return sentence(
    bounds,
    changeOf(bounds, null, withoutFailures),
    (saved) =>
      `Attempts that failed or were lost took ${secondsText(bounds.failedSeconds)} of slot ` +
      `time: without them it could end up to ${saved} earlier.`,
  )
}

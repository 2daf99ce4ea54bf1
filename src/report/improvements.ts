/** What would shorten a run, in sentences with numbers that no other bound contradicts. Pure. */

import { countText, secondsText, shortName } from '../views/readable.ts'
import type { BoundsView } from '../views/bounds/bounds.ts'
import {
  type Bound,
  type BoundFacts,
  classSharesOf,
  idleClasses,
  isSlotResource,
} from './bound-measures.ts'
import { type LeastTime, leastTimesOf, mostFullSeconds, mostOfIdle } from './bound-measures.ts'
import { isOtherResource, pathBoundOf, percent, scarcestSlots } from './bound-measures.ts'
import { smallestShare } from './bound-measures.ts'

export interface Improvement {
  /** What it is about; `null` for none of the bounds. */
  readonly bound: Bound | null
  /** How much shorter the run could be, in seconds. */
  readonly saved: number
  readonly text: string
}

/** Every one has its number; those that save most come first. */
export function findImprovements(bounds: BoundsView, facts: BoundFacts): Improvement[] {
  const found = [
    ...pathImprovements(bounds, facts),
    ...idleImprovements(bounds),
    ...resourceImprovements(bounds),
    ...slotImprovements(bounds),
    ...backendImprovements(bounds),
    ...(bounds.failedSeconds > 0 ? [failedImprovement(bounds)] : []),
    workSentence(bounds),
  ]
  return found.toSorted((a, b) => b.saved - a.saved)
}

/** Another chain of tasks may be next: no path is shortened by more than to that one. */
function pathImprovements(bounds: BoundsView, facts: BoundFacts): Improvement[] {
  const { criticalPath, stragglers, seconds } = bounds
  const bound = pathBoundOf(bounds)
  const onPath = new Set(criticalPath.tasks.map(({ task }) => task))
  const late = stragglers.filter(({ task }) => onPath.has(task)).length
  const { delaySeconds, withoutDelays, withoutStragglers, largestName } = criticalPath
  const shorter = (path: number, text: (saved: string) => string): Improvement => {
    const saved = Math.max(0, criticalPath.seconds - path)
    return { bound, saved, text: text(secondsText(saved)) }
  }
  const found: Improvement[] = []
  if (delaySeconds >= smallestShare * seconds) {
    const what = 'Without the delays between attempts (`delaySeconds`) on the critical path'
    found.push(shorter(withoutDelays, (saved) => `${what} it could end up to ${saved} earlier.`))
  }
  if (late > 0) {
    const whom = late === 1 ? 'straggler' : countText(late, 'straggler')
    const what = `Without the ${whom} on the critical path`
    found.push(
      shorter(withoutStragglers, (saved) => `${what} it could end up to ${saved} earlier.`),
    )
  }
  const name = shortName(facts.nameOf(largestName.task))
  const share = percent(largestName.seconds / Math.max(criticalPath.seconds, 1e-9))
  const what = `${name} is ${share} of the critical path: at half its duration the run`
  found.push(shorter(largestName.halved, (saved) => `${what} could end up to ${saved} earlier.`))
  return found
}

/** The least time of the run if there were twice as much of this. */
function doubledSeconds(bounds: BoundsView, doubled: LeastTime): number {
  const { resource, backend, seconds } = doubled
  // More slots are more cores, workers and programs at a time.
  const isDoubled = (one: LeastTime): boolean =>
    one.backend === backend &&
    (one.resource === resource || (isSlotResource(resource) && isSlotResource(one.resource)))
  const others = leastTimesOf(bounds).filter((one) => !isDoubled(one))
  return Math.max(
    bounds.criticalPath.seconds,
    seconds / 2,
    ...others.map(({ seconds: least }) => least),
  )
}

/** No change of one thing makes the run shorter than the path and the other resources allow. */
const mostSaved = (bounds: BoundsView, except: Bound): number =>
  Math.max(
    0,
    bounds.seconds -
      Math.max(
        bounds.criticalPath.seconds,
        ...leastTimesOf(bounds)
          .filter(({ resource }) => resource !== except)
          .map(({ seconds }) => seconds),
      ),
  )

function idleImprovements(bounds: BoundsView): Improvement[] {
  const { slots, seconds, criticalPath } = bounds
  // Of a run with a long path, or with tasks that wait for slots, those say why slots were idle.
  const isOpen = criticalPath.share < mostOfIdle && mostFullSeconds(bounds) < seconds / 2
  const shares = classSharesOf(bounds)
  return idleClasses(bounds)
    .filter(({ bound }) => bound !== 'slots' && (bound !== 'tasks' || isOpen))
    .map(({ bound, class: own, seconds: lost }) => {
      const saved = Math.min(lost / slots, mostSaved(bounds, bound))
      const text =
        `${idleNames[bound]} it could end up to ${secondsText(saved)} earlier: ` +
        `that is ${shares[own].text} of the slots' time.`
      return { bound, saved, text }
    })
    .filter(({ saved }) => saved >= smallestShare * seconds)
}

const idleNames: Readonly<Partial<Record<Bound, string>>> = {
  dispatcher: 'If ready tasks started as soon as a slot is free,',
  gpus: 'With enough gpus for the tasks that are ready',
  memory: 'With enough memory for the tasks that are ready',
  labels: 'With more nodes that have the labels that tasks ask for,',
  tasks: 'If tasks were ready earlier,',
  nodes: 'If the nodes were there all the time,',
}

/** Of the gpus or the memory that was in use for most of the run. */
function resourceImprovements(bounds: BoundsView): Improvement[] {
  const scarce = leastTimesOf(bounds).find(isOtherResource)
  if (scarce === undefined || scarce.seconds <= 0.5 * bounds.seconds) return []
  const doubled = doubledSeconds(bounds, scarce)
  const text =
    `With twice as ${scarce.resource === 'gpus' ? 'many gpus' : 'much memory'} it could end ` +
    `after ${secondsText(doubled)} at best, instead of ${secondsText(bounds.seconds)}.`
  return [{ bound: scarce.resource, saved: bounds.seconds - doubled, text }]
}

/** More slots help for as long as a task waited for one. */
function slotImprovements(bounds: BoundsView): Improvement[] {
  const { seconds, slots, slotSeconds } = bounds
  const full = mostFullSeconds(bounds)
  if (full < smallestShare * seconds) {
    // Where tasks waited for labels, further slots with those would help.
    if (slotSeconds.noSlotFitted.labels > 0) return []
    const idle = percent(1 - slotSeconds.ran / (slots * seconds))
    const text =
      full === 0
        ? `No further slot would shorten it: no task waited for one, and ${idle} of the slots' ` +
          'time was idle.'
        : `No further slot would shorten it by more than ${secondsText(full)}: only for that ` +
          'long tasks waited for one.'
    return [{ bound: null, saved: 0, text }]
  }
  const scarce = scarcestSlots(bounds)
  const doubled = Math.max(doubledSeconds(bounds, scarce), seconds - full)
  const text =
    `With twice as many slots it could end after ${secondsText(doubled)} at best, ` +
    `instead of ${secondsText(seconds)}.`
  return [{ bound: 'slots', saved: seconds - doubled, text }]
}

/** Where tasks waited for the slots of one backend, while those of others were idle. */
function backendImprovements(bounds: BoundsView): Improvement[] {
  const { backends, slots, slotSeconds, criticalPath, seconds } = bounds
  if (backends.length < 2 || mostFullSeconds(bounds) < smallestShare * seconds) return []
  const shared = Math.max(criticalPath.seconds, slotSeconds.ran / slots)
  const text =
    `Shared evenly by its ${backends.length} backends, the tasks could end after ` +
    `${secondsText(shared)} at best.`
  return seconds - shared < smallestShare * seconds
    ? []
    : [{ bound: 'slots', saved: seconds - shared, text }]
}

function workSentence({ slotSeconds, criticalPath }: BoundsView): Improvement {
  const enough = Math.max(1, Math.ceil(slotSeconds.ran / Math.max(criticalPath.seconds, 1e-9)))
  const text =
    `The work is ${secondsText(slotSeconds.ran)} of slot time: ${countText(enough, 'slot')} ` +
    `that never ${enough === 1 ? 'waits' : 'wait'} would need no longer than the critical path.`
  return { bound: null, saved: -1, text }
}

function failedImprovement({ slots, failedSeconds }: BoundsView): Improvement {
  const saved = failedSeconds / slots
  const text =
    `Attempts that failed or were lost took ${secondsText(failedSeconds)} of slot time: ` +
    `without them it could end up to ${secondsText(saved)} earlier.`
  return { bound: null, saved, text }
}

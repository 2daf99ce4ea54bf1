/**
 * Sentences about changes that would shorten a run, such as "it could end up to 2 s earlier". These
 * 2 s are the actual time minus the minimum time: even with more slots or faster starts, a run
 * takes as long as its longest chain, and as long as its tasks need their resources. A sentence is
 * left out if the known losses explain less than half of these seconds. Sentences about tasks say
 * how much time the tasks took. Pure.
 */

import type { BoundsView } from '../bounds/bounds.ts'
import { type IdleReason, idleReasons } from '../bounds/slots.ts'
import { countText, numberText, percentText, secondsText, shortName } from '../readable.ts'
import { type Bound, type BoundFacts, busiestModel, busyShare } from './bound-measures.ts'
import { classShareTexts, findCpuUser, findMinTimes, isOneThread } from './bound-measures.ts'
import { isSlotResource, maxFullSeconds, minShare, type MinTime } from './bound-measures.ts'
import { pathBound, promptSettings, scarcestSlots, sumOf } from './bound-measures.ts'
import { tasksToCombine, totalSlotTime } from './bound-measures.ts'
import { idleTexts } from './idle-texts.ts'

export interface Improvement {
  /** The bound that the sentence is about; `null` if it is about none. */
  readonly bound: Bound | null
  /** The number of seconds by which the run could be shorter, as far as that is known. */
  readonly saved: number
  readonly text: string
}

interface Change {
  readonly bound: Bound | null
  /** The minimum time of the changed run. */
  readonly min: number
  /** The part of the actual time that is known to be lost. */
  readonly lost: number
  /** The beginning of the sentence "… it could end up to 2 s earlier". */
  readonly text: string
  /** The end of the sentence that `text` begins. */
  readonly reason?: string
}

/** Returns the improvements, largest saving first. */
export function findImprovements(bounds: BoundsView, facts: BoundFacts): Improvement[] {
  const hasSlots = totalSlotTime(bounds) > 0
  const changes = [
    ...(hasSlots ? listIdleChanges(bounds, facts) : []),
    ...(hasSlots ? listSizeChanges(bounds, facts) : []),
    ...listModelChanges(bounds),
  ]
  return [
    ...changes.flatMap((change) => toImprovement(bounds, change)),
    ...listTaskCosts(bounds, facts),
    ...listLowerBounds(bounds, hasSlots).map((text, at) => ({ bound: null, saved: -at, text })),
  ].toSorted((a, b) => b.saved - a.saved)
}

/**
 * An improvement is shown only if at least this share of the possible saving is time that is known
 * to be lost.
 */
const minKnownShare = 0.5

function toImprovement({ seconds }: BoundsView, change: Change): Improvement[] {
  const { bound, min, lost, text, reason = '' } = change
  const max = seconds - min
  if (max < minShare * seconds || lost < minKnownShare * max) return []
  const sentence = `${text} it could end up to ${secondsText(max)} earlier${reason}.`
  return [{ bound, saved: Math.min(max, lost), text: sentence }]
}

const maxSeconds = (path: number, times: readonly MinTime[]): number =>
  Math.max(path, ...times.map(({ seconds }) => seconds))

const startReasons: ReadonlySet<IdleReason> = new Set([
  'nameLimit',
  'startingWorkers',
  'taskOverhead',
  'heldBack',
])
/** Resources for which a few tasks may wait while most slots are not needed. */
const rareReasons: ReadonlySet<IdleReason> = new Set(['gpus', 'memory', 'labels'])
/** If the critical path or a model takes at least this share of the run, it explains idle slots. */
const maxUnexplainedShare = 0.3

function listIdleChanges(bounds: BoundsView, facts: BoundFacts): Change[] {
  const { seconds, slotSeconds, criticalPath, backends } = bounds
  const slotTime = totalSlotTime(bounds)
  const isUnexplained =
    criticalPath.share < maxUnexplainedShare &&
    maxFullSeconds(bounds) < seconds / 2 &&
    (busiestModel(bounds)?.busySeconds ?? 0) < maxUnexplainedShare * seconds
  const startSeconds = [...startReasons].reduce((sum, reason) => sum + slotSeconds[reason], 0)
  const shareTexts = classShareTexts(bounds)
  return idleReasons.flatMap((reason) => {
    const { bound, change } = idleTexts[reason]
    const isNotReady = reason === 'noTaskReady'
    // After all tasks have become ready, slots are not idle because of missing tasks.
    const idle = isNotReady ? sumOf(backends, (one) => one.notYetReady) : slotSeconds[reason]
    if (bound === 'slots' || idle < minShare * slotTime || (isNotReady && !isUnexplained)) return []
    const isStart = startReasons.has(reason)
    // Ready tasks that start sooner can only use slots that ran tasks or were free for ready tasks.
    const usable = isStart ? startSeconds + slotSeconds.ran : slotTime
    const lost = rareReasons.has(reason)
      ? sumOf(backends, ({ idleSeconds }) => idleSeconds[reason])
      : (seconds * idle) / usable
    const otherMinTimes = findMinTimes(bounds).filter(({ resource }) => resource !== reason)
    const otherStarts = isStart ? (seconds * (startSeconds - idle)) / usable : 0
    const min = maxSeconds(criticalPath.seconds, otherMinTimes) + otherStarts
    const count = reason === 'taskOverhead' ? tasksToCombine(bounds, facts) : 1
    const text =
      count === 1 ? change : `With the work of about ${numberText(count)} tasks in one task`
    const share = isNotReady ? percentText(idle / slotTime) : shareTexts[reason]
    const reasonText = `: ${share} of the slots' time was idle for that reason`
    return [{ bound, min, lost, text, reason: reasonText }]
  })
}

function listSizeChanges(bounds: BoundsView, facts: BoundFacts): Change[] {
  const { backends, slots, slotSeconds, criticalPath } = bounds
  const full = maxFullSeconds(bounds)
  const scarce = findMinTimes(bounds).find(({ resource }) => !isSlotResource(resource))
  const isGpus = scarce?.resource === 'gpus'
  const changes: Change[] = []
  if (scarce !== undefined) {
    const lost = scarce.seconds - scarce.doubled
    const text = `With twice as ${isGpus ? 'many gpus' : 'much memory'}`
    changes.push({ bound: isGpus ? 'gpus' : 'memory', min: doubledMin(bounds, scarce), lost, text })
  }
  const kind = scarcestSlots(bounds)
  const isFull = full >= minShare * bounds.seconds
  if (kind !== undefined && isFull && !isOneThread(bounds)) {
    const text = `With twice as many slots${findCpuUser(facts) === 'run' ? ' and processors' : ''}`
    changes.push({ bound: 'slots', min: doubledMin(bounds, kind), lost: full, text })
  }
  if (backends.length > 1) {
    const min = Math.max(criticalPath.seconds, slotSeconds.ran / slots)
    const text = `With its tasks shared evenly by its ${backends.length} backends`
    changes.push({ bound: 'slots', min, lost: full, text })
  }
  return changes
}

function doubledMin(bounds: BoundsView, { resource, backend, doubled }: MinTime): number {
  // More slots also provide more cores, and allow more concurrent workers and programs.
  const isDoubled = (one: MinTime): boolean =>
    one.backend === backend &&
    (one.resource === resource || (isSlotResource(resource) && isSlotResource(one.resource)))
  const others = findMinTimes(bounds).filter((one) => !isDoubled(one))
  return Math.max(maxSeconds(bounds.criticalPath.seconds, others), doubled)
}

/**
 * Lists changes of the busiest model. If prompts waited, assumes that the model could run twice as
 * many prompts at a time as it did.
 */
function listModelChanges(bounds: BoundsView): Change[] {
  const model = busiestModel(bounds)
  if (model === null || model.waitedSeconds < minShare * bounds.seconds) return []
  const { workSeconds, maxConcurrent, waitedSeconds: lost, isModel, backend } = model
  const doubled = workSeconds / (2 * maxConcurrent)
  const min = Math.max(maxSeconds(bounds.criticalPath.seconds, findMinTimes(bounds)), doubled)
  const [tasks, setting] = isModel ? ['prompts', ` (${promptSettings})`] : ['tasks', '']
  const text = `With twice as many ${tasks} of ${backend} at a time${setting}`
  return [{ bound: 'model', min, lost, text }]
}

/**
 * Lists sentences about the time that tasks took. Omits sentences about the critical path if a
 * resource has a longer minimum time. Neither the path nor the resources explain some part of the
 * run. Omits sentences about times shorter than this part.
 */
function listTaskCosts(bounds: BoundsView, { nameOf }: BoundFacts): Improvement[] {
  const { criticalPath, pathParts, stragglers, failedSeconds, slots, seconds } = bounds
  const path = criticalPath.seconds
  const resourceSeconds = maxSeconds(0, findMinTimes(bounds))
  const bound = pathBound(bounds)
  const excess = stragglers
    .filter(({ isOnPath }) => isOnPath)
    .reduce((sum, one) => sum + one.seconds - one.median, 0)
  const name = shortName(nameOf(pathParts.task))
  const share = percentText(pathParts.seconds / path)
  const failed = {
    bound: null,
    saved: path < resourceSeconds ? failedSeconds / Math.max(1, slots) : pathParts.failedSeconds,
    text: `Attempts that failed or were lost took ${secondsText(failedSeconds)} of slot time.`,
  }
  const ofPath = [
    {
      bound,
      saved: excess,
      text:
        `Stragglers on the critical path took ${secondsText(excess)} longer than most tasks of ` +
        'their names.',
    },
    {
      bound,
      saved: pathParts.seconds / 2,
      text: `Faster ${name} tasks would shorten it: they take ${share} of the critical path.`,
    },
  ]
  const rest = Math.max(minShare * seconds, seconds - Math.max(path, resourceSeconds))
  return [failed, ...(path < resourceSeconds ? [] : ofPath)].filter(({ saved }) => saved >= rest)
}

/** Shorter waits are rounding errors. */
const minWaitSeconds = 1e-5

/** Lists sentences about what would not help, and about the minimum time; most useful first. */
function listLowerBounds(bounds: BoundsView, hasSlots: boolean): string[] {
  const { criticalPath, seconds, slotSeconds, unsized } = bounds
  const full = maxFullSeconds(bounds)
  const needed = Math.max(1, Math.ceil(slotSeconds.ran / Math.max(criticalPath.seconds, 1e-9)))
  const noSlotHelps =
    full < minWaitSeconds
      ? `No further slot would shorten it: no task waited for one, and ` +
        `${percentText(1 - busyShare(bounds))} of the slots' time was idle.`
      : `More slots would not help: tasks waited only ${secondsText(full)} for one.`
  const work =
    `The work is ${secondsText(slotSeconds.ran)} of slot time: to take no longer than its ` +
    `critical path, the run needs at least ${countText(needed, 'slot')}.`
  const path =
    `However many slots it has, it takes at least ${secondsText(criticalPath.seconds)}, its ` +
    `critical path: ${percentText(criticalPath.share)} of its time.`
  const resourceTexts = findMinTimes(bounds)
    .slice(0, 1)
    .map(
      ({ amount, seconds: min }) =>
        `With ${amount} it takes at least ${secondsText(min)}, ` +
        `${percentText(min / seconds)} of its time, in any order of its tasks.`,
    )
  // If tasks waited for labels, more slots with those labels would help.
  const isUseless = hasSlots && full < minShare * seconds && slotSeconds.labels === 0
  // The work of a model uses no slots.
  const hasWork = hasSlots && unsized.length === 0
  return [...(isUseless ? [noSlotHelps] : []), ...(hasWork ? [work] : []), path, ...resourceTexts]
}

/**
 * Sentences about the bound of a run. For sentences about shortening the run, see
 * `improvements.ts`.
 */

import type { BoundsView } from '../bounds/bounds.ts'
import { idleReasons } from '../bounds/slots.ts'
import { countText, numberText, percentText, secondsText, shortName } from '../readable.ts'
import { type Bound, type BoundFacts, busiestModel, busyShare } from './bound-measures.ts'
import { classShareTexts, cpuText, describeOtherLoad, findCpuUser } from './bound-measures.ts'
import { findMinTimes, fullestBackend, isOneThread, isSlotResource } from './bound-measures.ts'
import { maxFullSeconds, minShare, pathBound, promptSettings } from './bound-measures.ts'
import { scarcestSlots, slotOwnerText, slotsText, stragglerOnPath } from './bound-measures.ts'
import { tasksToCombine } from './bound-measures.ts'
import { type IdleBound, idleTexts } from './idle-texts.ts'
import { findImprovements, type Improvement } from './improvements.ts'

export interface BoundText {
  readonly bound: Bound | null
  /** The sentences about the bound. The first sentence names it. */
  readonly sentences: readonly string[]
  /** At most three suggestions to shorten the run, largest saving first. */
  readonly improvements: readonly string[]
}

/** The critical path or a resource is the bound if it takes at least this share of the run. */
const wholeShare = 0.8
/** Above this share of the run, waiting for slots is a better explanation than idle slots. */
const halfShare = 0.5

export function describeBounds(bounds: BoundsView, facts: BoundFacts): BoundText {
  const { slots, seconds, slotSeconds } = bounds
  // The times cannot be compared, because durations are measured with a monotonic clock, but start
  // times are not.
  if (facts.clockStep > 0) {
    const change = `The clock was changed by ${secondsText(facts.clockStep)} during this run`
    const sentence =
      `${change}, or the machine slept: what bounded the run cannot be determined from its ` +
      'times.'
    return { bound: null, sentences: [sentence], improvements: [] }
  }
  const hasRun = (slots > 0 && slotSeconds.ran > 0) || busiestModel(bounds) !== null
  if (seconds <= 0 || !hasRun) {
    const sentence = 'Nothing bounded this run: no task ran in it.'
    return { bound: null, sentences: [sentence], improvements: [] }
  }
  const improvements = findImprovements(bounds, facts)
  const bound = findBound(bounds, improvements, facts)
  const sentences = [
    describeBound(bound, bounds, facts),
    describeOpenEnd(bounds, facts),
    describeDelays(bounds),
    describeBusySlots(bound, bounds),
    ...describePauses(bounds),
    ...describeOtherLoad(bounds, facts),
  ]
  return {
    bound,
    sentences: sentences.filter((sentence) => sentence !== ''),
    improvements: isOver(bounds, facts)
      ? firstThree(improvements, bound).map(({ text }) => text)
      : [],
  }
}

/** Whether the run ended normally. If it did not, its full length is unknown. */
const isOver = ({ stopped }: BoundsView, { state, openTasks }: BoundFacts): boolean =>
  state !== 'running' && openTasks === 0 && stopped === 0

function describeOpenEnd({ stopped }: BoundsView, { state, openTasks }: BoundFacts): string {
  if (state === 'running') return 'The run is in progress: this is about its time so far.'
  if (stopped > 0) {
    const were = `${countText(stopped, 'task')} ${stopped === 1 ? 'was' : 'were'} canceled then`
    return `The run was stopped, ${were}: this is about its time up to its end.`
  }
  if (openTasks === 0) return ''
  const open = `${countText(openTasks, 'task')} ${openTasks === 1 ? 'has' : 'have'} no end`
  return state === 'ended'
    ? `${open} in the record, so what would shorten the run is not known.`
    : `The run is not over, ${open}: this is about its time up to its last event.`
}

function describePauses({ pauses, attended }: BoundsView): string[] {
  const totalOf = (all: BoundsView['pauses']): string =>
    secondsText(all.reduce((sum, { from, to }) => sum + to - from, 0))
  const paused =
    `Pauses between its ${pauses.length + 1} sessions (${totalOf(pauses)} in total) are left ` +
    'out.'
  const attendedText =
    `For ${totalOf(attended)} between its ${attended.length + 1} sessions no process of the ` +
    'session was alive: agents continued with the tasks that they had.'
  return [
    ...(pauses.length === 0 ? [] : [paused]),
    ...(attended.length === 0 ? [] : [attendedText]),
  ]
}

/** Returns an empty text if the retry delays on the path are a negligible share of the run. */
const describeDelays = ({ criticalPath: { delaySeconds }, seconds }: BoundsView): string =>
  delaySeconds < minShare * seconds
    ? ''
    : `${secondsText(delaySeconds)} of the critical path are delays between attempts ` +
      '(`delaySeconds`): nothing ran in them.'

/** Returns an empty text if the first sentence already mentions all slots. */
function describeBusySlots(bound: Bound, bounds: BoundsView): string {
  const slots = slotsText(bounds)
  const isNamed = bound === 'slots' && !isForWideTasks(bounds)
  if (bounds.slots === 0 || (isNamed && scarcestSlots(bounds)?.amount === slots)) return ''
  const busy = `${percentText(busyShare(bounds))} of ${secondsText(bounds.seconds)}`
  return `${slots}${slotOwnerText(bounds)} ran tasks for ${busy}.`
}

/**
 * Returns the bound of the run: the cause that took nearly all the time. If there is no such cause,
 * returns the change that would shorten the run most.
 */
function findBound(
  bounds: BoundsView,
  improvements: readonly Improvement[],
  facts: BoundFacts,
): Bound {
  const { criticalPath, seconds } = bounds
  const full = maxFullSeconds(bounds)
  const model = busiestModel(bounds)
  const isForModel = model !== null && model.waitedSeconds > Math.max(full, halfShare * seconds)
  // If the run has not ended normally, waits are checked before the path, because a task that runs
  // from the start covers the whole path even while others wait for slots.
  if (!isOver(bounds, facts) && isForModel) return 'model'
  if (!isOver(bounds, facts) && full > halfShare * seconds) return 'slots'
  if (criticalPath.share >= wholeShare) return pathBound(bounds)
  if (isForModel) return 'model'
  const found = findSlotBound(bounds, improvements)
  // Tasks that depend on responses of a model cannot be ready earlier.
  const isAfterModel = model !== null && model.busySeconds > halfShare * seconds
  return found === 'tasks' && isAfterModel ? 'model' : found
}

function findSlotBound(bounds: BoundsView, improvements: readonly Improvement[]): Bound {
  const [scarcest] = findMinTimes(bounds)
  if (scarcest !== undefined && scarcest.share >= wholeShare) {
    return isSlotResource(scarcest.resource) ? 'slots' : idleTexts[scarcest.resource].bound
  }
  const best = improvements.find(({ bound }) => bound !== null)
  if (best?.bound && best.saved >= minShare * bounds.seconds) return best.bound
  const idle = new Map<IdleBound, number>()
  for (const reason of idleReasons) {
    const { bound } = idleTexts[reason]
    idle.set(bound, (idle.get(bound) ?? 0) + bounds.slotSeconds[reason])
  }
  const [largest] = [...idle].toSorted(([, a], [, b]) => b - a)
  return largest?.[0] ?? 'slots'
}

/** Returns up to three improvements. One of them is about the bound of the run, if there is one. */
function firstThree(improvements: readonly Improvement[], bound: Bound): readonly Improvement[] {
  const first = improvements.slice(0, 3)
  const aboutBound = improvements.find((one) => one.bound === bound)
  if (aboutBound === undefined || first.includes(aboutBound)) return first
  return [...first.slice(0, 2), aboutBound]
}

function describeBound(bound: Bound, bounds: BoundsView, facts: BoundFacts): string {
  if (bound === 'critical path') return describePath(bounds)
  if (bound === 'straggler') return describeStraggler(bounds, facts)
  if (bound === 'slots') return describeSlots(bounds, facts)
  return bound === 'model' ? describeModel(bounds) : describeIdle(bound, bounds, facts)
}

function describePath(bounds: BoundsView): string {
  const { length, share } = bounds.criticalPath
  const path =
    length === 1 ? 'its longest task' : `${countText(length, 'task')} that waited for each other`
  const end =
    maxFullSeconds(bounds) < minShare * bounds.seconds
      ? ', and no further slot would have made it shorter.'
      : '.'
  return `The critical path bounded this run: ${path} took ${percentText(share)} of its time${end}`
}

function describeStraggler(bounds: BoundsView, { uidOf, nameOf }: BoundFacts): string {
  const { task, seconds, median } = stragglerOnPath(bounds) ?? { task: -1, seconds: 0, median: 0 }
  return (
    `A straggler bounded this run: ${uidOf(task)} (${shortName(nameOf(task))}) ran ` +
    `${secondsText(seconds)}, while half of its kind took at most ${secondsText(median)}.`
  )
}

function describeSlots(bounds: BoundsView, facts: BoundFacts): string {
  const hasBusyCpu = findCpuUser(facts) === 'run'
  if (isForWideTasks(bounds)) return describeWideTasks(bounds, hasBusyCpu)
  const { amount = '0 slots', share = 0 } = scarcestSlots(bounds) ?? {}
  const start = `The slots bounded this run: ${amount} ran tasks ${percentText(share)} of the time`
  const { fullSeconds = 0, noneFreeSeconds = 0 } = fullestBackend(bounds) ?? {}
  const min = minShare * bounds.seconds
  if (fullSeconds < min) {
    return `${start}. No task waited for one: more of them help only with more tasks at a time.`
  }
  if (share < wholeShare && noneFreeSeconds < min) return `${start}.`
  const waited = percentText(noneFreeSeconds / bounds.seconds)
  const cause =
    share >= wholeShare
      ? start
      : `${start}, and for ${waited} of it tasks waited because none was free`
  if (isOneThread(bounds)) return `${cause}. ${oneThreadText}`
  return hasBusyCpu
    ? `${cause}. The processors were ${cpuText(facts)}: more slots help only on further processors.`
    : `${cause}, so more of them would have finished it earlier.`
}

const oneThreadText =
  'They were functions that run in the program itself, on one thread: more slots help those that ' +
  'wait for something; those that need a processor belong into a file of their own (`defineTask`).'

/** Whether tasks waited behind larger requests instead of waiting for slots in use. */
function isForWideTasks(bounds: BoundsView): boolean {
  const backend = fullestBackend(bounds)
  if (backend === undefined) return false
  const min = Math.max(backend.noneFreeSeconds, minShare * bounds.seconds)
  return backend.idleSeconds.cores > min && (scarcestSlots(bounds)?.share ?? 0) < wholeShare
}

function describeWideTasks(bounds: BoundsView, hasBusyCpu: boolean): string {
  const share = percentText((fullestBackend(bounds)?.idleSeconds.cores ?? 0) / bounds.seconds)
  return (
    `Requests for several cores bounded this run: for ${share} of the time the first task in the ` +
    'queue needed more cores than were free, so those behind it waited as well. Smaller requests ' +
    'would have finished it earlier, and so would more ' +
    `cores${hasBusyCpu ? ' on further processors' : ''}.`
  )
}

function describeModel(bounds: BoundsView): string {
  const model = busiestModel(bounds)
  if (model === null) return ''
  const { isModel, backend, maxConcurrent, busySeconds, waitedSeconds } = model
  const share = (part: number): string => percentText(part / bounds.seconds)
  const [what, ran] = isModel ? ['model of', 'it answered prompts'] : ['backend', 'its tasks ran']
  const hasWaits = waitedSeconds >= minShare * bounds.seconds
  const waits = hasWaits
    ? `for ${share(waitedSeconds)} of the time further ones waited.`
    : 'none had to wait for it.'
  const limit = isModel && hasWaits ? ` (${promptSettings})` : ''
  return (
    `The ${what} ${backend} bounded this run: ${ran} for ${share(busySeconds)} of the ` +
    `time, at most ${maxConcurrent} at a time${limit}, and ${waits}`
  )
}

function describeIdle(bound: IdleBound, bounds: BoundsView, facts: BoundFacts): string {
  const reason = idleReasons.find((one) => idleTexts[one].bound === bound) ?? 'noTaskReady'
  const { subject, state } = idleTexts[reason]
  const start = `${subject} bounded this run: `
  const scarce = findMinTimes(bounds).find(({ resource }) => resource === reason)
  if (scarce !== undefined && scarce.share > halfShare) {
    const { amount, share, seconds } = scarce
    return (
      `${start}${amount} were in use for ${percentText(share)} of the time, so the run could ` +
      `not have ended before ${secondsText(seconds)}.`
    )
  }
  const idle = `${start}for ${classShareTexts(bounds)[reason]} of the slots' time ${state}.`
  return [idle, ...giveAdvice(bound, bounds, facts)].join(' ')
}

function giveAdvice(bound: IdleBound, bounds: BoundsView, facts: BoundFacts): string[] {
  if (bound === 'scheduler') {
    return ['The event loop of the program may have been busy with other work.']
  }
  if (bound === 'short tasks') {
    const count = tasksToCombine(bounds, facts)
    return count === 1 ? [] : [`Put the work of about ${numberText(count)} into one task.`]
  }
  if (bound !== 'worker start') return []
  const { replacedWorkers: count } = facts
  if (count === 0) return ['A session starts them once, for all its tasks.']
  return [
    `${countText(count, 'worker')} ${count === 1 ? 'was' : 'were'} replaced, because a function ` +
      'timed out, was canceled or ended its worker. A function that uses `currentTask().signal` ' +
      'can end in time.',
  ]
}

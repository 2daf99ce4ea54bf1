/** Sentences about the bound of a run; `improvements.ts` has those about shortening it. Pure. */

import { countText, numberText, percentText, secondsText, shortName } from '../readable.ts'
import type { BoundsView } from '../bounds/bounds.ts'
import { findImprovements, type Improvement } from './improvements.ts'
import { type Bound, type BoundFacts, classSharesOf, idleClasses } from './bound-measures.ts'
import { type MinTime, minTimesOf, maxFullSeconds, pathBoundOf } from './bound-measures.ts'
import {
  busiestModel,
  cpuText,
  isCpuBound,
  otherLoad,
  promptSettings,
  scarcestSlots,
  sizedBackends,
  slotsText,
  slotWaitsOf,
  slotTimeOf,
  smallestShare,
  tasksPerTask,
} from './bound-measures.ts'
import { isOneThread, stragglerOnPath } from './bound-measures.ts'

export interface BoundWords {
  readonly bound: Bound | null
  /** The first sentence names the bound. */
  readonly sentences: readonly string[]
  /** Suggestions to shorten the run, largest saving first; at most three. */
  readonly improvements: readonly string[]
}

/** With at least this share of the run, the critical path is the bound, not the slots. */
const wholeRun = 0.8
/** A resource used for this share of the run counts as always in use. */
const allBusy = 0.8
/** Above this share of the run, waiting for slots is a better explanation than idle slots. */
const halfBusy = 0.5
export function describeBounds(bounds: BoundsView, facts: BoundFacts): BoundWords {
  const { slots, seconds, slotSeconds } = bounds
  if (facts.clockStep > 0) return clockWords(facts.clockStep)
  const hasRun = (slots > 0 && slotSeconds.ran > 0) || busiestModel(bounds) !== null
  if (seconds <= 0 || !hasRun) {
    const sentence = 'Nothing bounded this run: no task ran in it.'
    return { bound: null, sentences: [sentence], improvements: [] }
  }
  const improvements = findImprovements(bounds, facts)
  const bound = findBound(bounds, improvements, facts)
  const partial = bounds.isPartial
    ? ['The oldest attempts are kept only as blocks: this is about the rest of the run.']
    : []
  return {
    bound,
    sentences: [
      boundSentence(bound, bounds, facts),
      ...openSentences(bounds, facts),
      ...delaySentences(bounds),
      ...idleSentences(bound, bounds),
      ...pauseSentences(bounds),
      ...otherLoad(bounds, facts),
      ...partial,
    ],
    improvements: isOver(bounds, facts)
      ? firstThree(improvements, bound).map(({ text }) => text)
      : [],
  }
}

/** Whether the run ended normally; otherwise its full length is unknown. */
const isOver = ({ stopped }: BoundsView, { state, openTasks }: BoundFacts): boolean =>
  state !== 'running' && openTasks === 0 && stopped === 0

function openSentences({ stopped }: BoundsView, { state, openTasks }: BoundFacts): string[] {
  if (state === 'running') return ['The run is in progress: this is about its time so far.']
  if (stopped > 0) {
    const were = `${countText(stopped, 'task')} ${stopped === 1 ? 'was' : 'were'} canceled then`
    return [`The run was stopped, ${were}: this is about its time up to its end.`]
  }
  if (openTasks === 0) return []
  const open = `${countText(openTasks, 'task')} ${openTasks === 1 ? 'has' : 'have'} no end`
  return state === 'ended'
    ? [`${open} in the record, so what would shorten the run is not known.`]
    : [`The run is not over, ${open}: this is about its time up to its last event.`]
}

/** Durations of tasks are measured with a monotonic clock, but start times are not. */
const clockWords = (step: number): BoundWords => ({
  bound: null,
  sentences: [
    `The clock was changed by ${secondsText(step)} during this run, or the machine slept: what ` +
      'bounded the run cannot be determined from its times.',
  ],
  improvements: [],
})

function pauseSentences({ pauses, attended }: BoundsView): string[] {
  const secondsOf = (all: BoundsView['pauses']): string =>
    secondsText(all.reduce((sum, { from, to }) => sum + to - from, 0))
  const where = ({ length }: BoundsView['pauses']): string => `its ${length + 1} sessions`
  const paused =
    pauses.length === 1
      ? `The pause between two sessions (${secondsOf(pauses)}) is left out.`
      : `Pauses between ${where(pauses)} (${secondsOf(pauses)} in total) are left out.`
  const continued =
    `For ${secondsOf(attended)} between ${where(attended)} no process of the session was alive: ` +
    'agents continued with the tasks that they had.'
  return [...(pauses.length === 0 ? [] : [paused]), ...(attended.length === 0 ? [] : [continued])]
}

/** Returns no sentence unless retry delays are a significant part of the path. */
function delaySentences({ criticalPath, seconds }: BoundsView): string[] {
  const { delaySeconds } = criticalPath
  if (delaySeconds < smallestShare * seconds) return []
  return [
    `${secondsText(delaySeconds)} of the critical path are delays between attempts ` +
      '(`delaySeconds`): nothing ran in them.',
  ]
}

/** The change that would shorten the run most, unless one cause took nearly all the time. */
function findBound(
  bounds: BoundsView,
  improvements: readonly Improvement[],
  facts: BoundFacts,
): Bound {
  const { criticalPath, seconds } = bounds
  // A task that runs from the start covers the whole path, even while others wait for slots.
  const full = maxFullSeconds(bounds)
  const model = busiestModel(bounds)
  const isForModel = model !== null && model.waitedSeconds > Math.max(full, halfBusy * seconds)
  if (!isOver(bounds, facts) && isForModel) return 'model'
  if (!isOver(bounds, facts) && full > halfBusy * seconds) return 'slots'
  if (criticalPath.share >= wholeRun) return pathBoundOf(bounds)
  if (isForModel) return 'model'
  const found = findSlotBound(bounds, improvements)
  // Tasks that depend on responses of a model are not ready earlier.
  return found === 'tasks' && model !== null && model.busySeconds > halfBusy * seconds
    ? 'model'
    : found
}

function findSlotBound(bounds: BoundsView, improvements: readonly Improvement[]): Bound {
  const { seconds } = bounds
  const [scarcest] = minTimesOf(bounds)
  if (scarcest !== undefined && scarcest.share >= allBusy) return boundOf(scarcest)
  const best = improvements.find(({ bound }) => bound !== null)
  const named = best?.bound ?? null
  if (best !== undefined && named !== null && best.saved >= smallestShare * seconds) return named
  const [largest] = idleClasses(bounds).toSorted((a, b) => b.seconds - a.seconds)
  return largest?.bound ?? 'slots'
}

/** Returns up to three improvements, including one about the bound of the run if there is any. */
function firstThree(improvements: readonly Improvement[], bound: Bound): readonly Improvement[] {
  const first = improvements.slice(0, 3)
  const own = improvements.find((one) => one.bound === bound)
  if (own === undefined || first.includes(own)) return first
  return [...first.slice(0, 2), own]
}

const boundOf = ({ resource }: MinTime): Bound =>
  resource === 'gpus' || resource === 'memory' ? resource : 'slots'

const noModel = {
  isModel: true,
  backend: '',
  maxAtOnce: 0,
  busySeconds: 0,
  waitedSeconds: 0,
  meanWait: 0,
}
const noStraggler = { task: -1, seconds: 0, median: 0 }

type Shares = ReturnType<typeof classSharesOf>
type Words = (bounds: BoundsView, shares: Shares, facts: BoundFacts) => string

const boundSentence = (bound: Bound, bounds: BoundsView, facts: BoundFacts): string =>
  boundTexts[bound](bounds, classSharesOf(bounds), facts)

const lacking =
  (resource: 'gpus' | 'memory' | 'labels', what: string): Words =>
  (bounds, shares) => {
    const min = minTimesOf(bounds).find((one) => one.resource === resource)
    const start = `${what} bounded this run: `
    return min !== undefined && min.share > halfBusy
      ? `${start}${min.of} were in use for ${percentText(min.share)} of the ` +
          `time, so the run could not have ended before ${secondsText(min.seconds)}.`
      : `${start}${shares[resource].text} of the slots' time was idle ` +
          `because free slots lacked ${resource} for the tasks that were ready.`
  }

const oneThreadText =
  'They were functions that run in the program itself, on one thread: more slots help those that ' +
  'wait for something; those that need a processor belong into a file of their own (`defineTask`).'

const boundTexts: Readonly<Record<Bound, Words>> = {
  'critical path': (bounds) =>
    `The critical path bounded this run: ${pathText(bounds)} took ` +
    `${percentText(bounds.criticalPath.share)} of its time${
      maxFullSeconds(bounds) < smallestShare * bounds.seconds
        ? ', and no further slot would have made it shorter.'
        : '.'
    }`,
  straggler(bounds, _shares, { uidOf, nameOf }) {
    const { task, seconds, median } = stragglerOnPath(bounds) ?? noStraggler
    return (
      `A straggler bounded this run: ${uidOf(task)} (${shortName(nameOf(task))}) ran ` +
      `${secondsText(seconds)}, while half of its kind took at most ${secondsText(median)}.`
    )
  },
  slots(bounds, _shares, facts) {
    const isBusy = isCpuBound(facts)
    if (isForWideTasks(bounds)) return wideText(bounds, isBusy)
    const { of, share } = scarcestSlots(bounds)
    const busy = `${of} ran tasks ${percentText(share)} of the time`
    const full = maxFullSeconds(bounds)
    const start = `The slots bounded this run: ${busy}`
    if (full < smallestShare * bounds.seconds) {
      return `${start}. No task waited for one: more of them help only with more tasks at a time.`
    }
    const { noneFree } = slotWaitsOf(bounds)
    if (share < allBusy && noneFree < smallestShare * bounds.seconds) return `${start}.`
    const waited =
      share >= allBusy
        ? ''
        : `, and for ${percentText(noneFree / bounds.seconds)} of it tasks waited because none ` +
          'was free'
    if (isOneThread(bounds)) return `${start}${waited}. ${oneThreadText}`
    const { cpuPercent, runCpuPercent } = facts
    if (isBusy && cpuPercent !== null) {
      return (
        `${start}${waited}. The processors were ${cpuText(cpuPercent, runCpuPercent)}: more ` +
        'slots help only on further processors.'
      )
    }
    return `${start}${waited}, so more of them would have finished it earlier.`
  },
  limits: (_bounds, { nameLimit }) =>
    `The limits of the session bounded this run: for ${nameLimit.text} of the slots' time a task ` +
    'was ready and fitted a free slot, but its name had reached its limit (`limits`).',
  'worker start'(_bounds, { startingWorkers }, { replacedWorkers: replaced }) {
    const start =
      `Starting workers bounded this run: for ${startingWorkers.text} of the slots' time a task ` +
      'was ready while its worker started and loaded its module.'
    if (replaced === 0) return `${start} A session starts them once, for all its tasks.`
    const were = `${countText(replaced, 'worker')} ${replaced === 1 ? 'was' : 'were'} replaced`
    return (
      `${start} ${were}, because a function timed out, was canceled or ended its worker, and ` +
      'functions wait while a worker starts; one that uses `currentTask().signal` can end in time.'
    )
  },
  'short tasks'(bounds, { taskOverhead }, facts) {
    const count = tasksPerTask(bounds, facts)
    const advice = count === 1 ? '' : ` Put the work of about ${numberText(count)} into one task.`
    return (
      `Tasks too short for their overhead bounded this run: for ${taskOverhead.text} of the ` +
      `slots' time the next task was ready and was just being started.${advice}`
    )
  },
  scheduler: (_bounds, { heldBack }) =>
    `Waiting for the scheduler bounded this run: for ${heldBack.text} of the slots' time a task ` +
    'was ready and fitted a free slot, but was started much later than others. The event loop ' +
    'of the program may have been busy with other work.',
  nodes: (_bounds, { nodeAway }) =>
    `Missing nodes bounded this run: ${nodeAway.text} of the slots' time belongs ` +
    'to nodes that had not joined yet or had left.',
  tasks: (_bounds, { noTaskReady }) =>
    `Too few ready tasks bounded this run: for ${noTaskReady.text} of the slots' ` +
    'time there was no task that could have run.',
  model(bounds) {
    const { isModel, backend, maxAtOnce, ...times } = busiestModel(bounds) ?? noModel
    const share = (part: number): string => percentText(part / bounds.seconds)
    const [what, ran] = isModel ? ['model of', 'it answered prompts'] : ['backend', 'its tasks ran']
    const waited =
      times.waitedSeconds < smallestShare * bounds.seconds
        ? 'none had to wait for it.'
        : `for ${share(times.waitedSeconds)} of the time further ones waited, ` +
          `${secondsText(times.meanWait)} on average.`
    const isFull = isModel && times.waitedSeconds >= smallestShare * bounds.seconds
    const limit = isFull ? ` (${promptSettings})` : ''
    return (
      `The ${what} ${backend} bounded this run: ${ran} for ${share(times.busySeconds)} of the ` +
      `time, at most ${maxAtOnce} at once${limit}, and ${waited}`
    )
  },
  gpus: lacking('gpus', 'Too few gpus'),
  memory: lacking('memory', 'Too little memory'),
  labels: lacking('labels', 'Too few nodes with the right labels'),
}

/** Whether tasks waited behind larger requests rather than for slots in use. */
function isForWideTasks(bounds: BoundsView): boolean {
  const { noneFree, tooFewCores, wide } = slotWaitsOf(bounds)
  const min = Math.max(noneFree, smallestShare * bounds.seconds)
  return wide.count > 0 && tooFewCores > min && scarcestSlots(bounds).share < allBusy
}

function wideText(bounds: BoundsView, isBusy: boolean): string {
  const { tooFewCores, wide } = slotWaitsOf(bounds)
  const { count, max } = wide
  const asked = count === 1 ? `asked for ${max} cores` : `asked for up to ${max} cores each`
  return (
    `Requests for several cores bounded this run: ${countText(count, 'task')} ${asked}, and for ` +
    `${percentText(tooFewCores / bounds.seconds)} of the time the first task in the queue needed ` +
    'more cores than were free, so those behind it waited as well. Smaller requests would have ' +
    `finished it earlier, and so would more cores${isBusy ? ' on further processors' : ''}.`
  )
}

const pathText = ({ criticalPath }: BoundsView): string =>
  criticalPath.length === 1
    ? 'its longest task'
    : `${countText(criticalPath.length, 'task')} that waited for each other`

/** Returns nothing if the first sentence already mentions all slots. */
function idleSentences(bound: Bound, bounds: BoundsView): string[] {
  const { slotSeconds, seconds } = bounds
  // For other backends, the number of slots is unknown.
  const whose = bounds.unsized.length === 0 ? '' : ` of ${sizedBackends(bounds)}`
  const slots = slotsText(bounds)
  if (bounds.slots === 0) return []
  const isSaid = bound === 'slots' && !isForWideTasks(bounds)
  if (isSaid && scarcestSlots(bounds).of === slots) return []
  const busy = percentText(slotSeconds.ran / slotTimeOf(bounds))
  return [`${slots}${whose} ran tasks for ${busy} of ${secondsText(seconds)}.`]
}

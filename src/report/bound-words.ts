/** What bounded a run, in sentences; `improvements.ts` says what would shorten it. Pure. */

import { countText, secondsText, shortName } from '../views/readable.ts'
import type { BoundsView } from '../views/bounds/bounds.ts'
import { findImprovements } from './improvements.ts'
import { type Bound, type BoundFacts, idleClasses, type LeastTime } from './bound-measures.ts'
import { leastTimesOf, mostFullSeconds, mostOfIdle, percent } from './bound-measures.ts'
import { scarcestSlots, smallestShare } from './bound-measures.ts'

export interface BoundWords {
  readonly bound: Bound | null
  /** The first one names the bound. */
  readonly sentences: readonly string[]
  /** What would shorten the run, the most first; three, if anything ran. */
  readonly improvements: readonly string[]
}

/** A path that takes this share of the run is what more slots cannot shorten. */
const wholeRun = 0.8
/** What was in use for this share of the run was in use all the time. */
const allBusy = 0.8
/** What was in use for more than this explains the run better than what kept the rest idle. */
const halfBusy = 0.5
export function describeBounds(bounds: BoundsView, facts: BoundFacts): BoundWords {
  const { slots, seconds, slotSeconds } = bounds
  if (facts.clockStep > 0) return clockWords(facts.clockStep)
  if (slots === 0 || seconds <= 0 || slotSeconds.ran <= 0) {
    const sentence = 'Nothing bounded this run: no task ran in it.'
    return { bound: null, sentences: [sentence], improvements: [] }
  }
  const bound = findBound(bounds)
  const partial = bounds.isPartial
    ? ['The oldest attempts are known coarsely only: this is about the rest of the run.']
    : []
  return {
    bound,
    sentences: [
      boundSentence(bound, bounds, facts),
      ...(facts.isRunning ? ['The run goes on: this is about its time so far.'] : []),
      ...delaySentences(bounds),
      ...idleSentences(bound, bounds),
      ...pauseSentences(bounds),
      ...partial,
    ],
    improvements: findImprovements(bounds, facts).slice(0, 3),
  }
}

/** Durations of tasks are measured with another clock, but when they ran is not known. */
const clockWords = (step: number): BoundWords => ({
  bound: null,
  sentences: [
    `The clock was changed by ${secondsText(step)} during this run, or the machine slept: what ` +
      'bounded the run cannot be told from its times.',
  ],
  improvements: [],
})

function pauseSentences({ pauses, attended }: BoundsView): string[] {
  const secondsOf = (all: BoundsView['pauses']): string =>
    secondsText(all.reduce((sum, { from, to }) => sum + to - from, 0))
  const where = (all: BoundsView['pauses']): string =>
    all.length === 1 ? 'two files' : `${all.length + 1} files`
  return [
    ...(pauses.length === 0
      ? []
      : [
          `The run was not running for ${secondsOf(pauses)} between ${where(pauses)}, ` +
            'which are left out.',
        ]),
    ...(attended.length === 0
      ? []
      : [
          `For ${secondsOf(attended)} between ${where(attended)} no process of the session was ` +
            'there: agents went on with the tasks that they had.',
        ]),
  ]
}

/** Where delays are a part of the path that is worth a sentence. */
function delaySentences({ criticalPath, seconds }: BoundsView): string[] {
  const { delaySeconds } = criticalPath
  if (delaySeconds < smallestShare * seconds) return []
  return [
    `${secondsText(delaySeconds)} of the critical path are delays between attempts ` +
      '(`delaySeconds`): nothing ran in them.',
  ]
}

function findBound(bounds: BoundsView): Bound {
  const { criticalPath, seconds } = bounds
  const ofPath = stragglerOnPath(bounds) === null ? 'critical path' : 'straggler'
  if (criticalPath.share >= wholeRun) return ofPath
  const [scarcest] = leastTimesOf(bounds)
  if (scarcest !== undefined && scarcest.seconds >= allBusy * seconds) return boundOf(scarcest)
  const [largest] = idleClasses(bounds).toSorted((a, b) => b.seconds - a.seconds)
  if (largest === undefined) return 'slots'
  if (largest.bound !== 'tasks' && largest.bound !== 'dispatcher') return largest.bound
  const isSlots = scarcest === undefined || boundOf(scarcest) === 'slots'
  if (!isSlots && scarcest.seconds > halfBusy * seconds) return boundOf(scarcest)
  if (largest.bound !== 'tasks') return largest.bound
  if (mostFullSeconds(bounds) > halfBusy * seconds) return 'slots'
  return criticalPath.share >= mostOfIdle ? ofPath : 'tasks'
}

const boundOf = ({ resource }: LeastTime): Bound =>
  resource === 'gpus' || resource === 'memory' ? resource : 'slots'

/** The worst straggler of the critical path, if most of the path is the time that it lost. */
function stragglerOnPath({ stragglers, criticalPath }: BoundsView) {
  const onPath = new Set(criticalPath.tasks.map(({ task }) => task))
  const worst = stragglers.find(({ task }) => onPath.has(task))
  if (worst === undefined) return null
  return worst.seconds - worst.median >= 0.5 * criticalPath.seconds ? worst : null
}

type Words = (bounds: BoundsView, share: (seconds: number) => string, facts: BoundFacts) => string

function boundSentence(bound: Bound, bounds: BoundsView, facts: BoundFacts): string {
  const total = bounds.slots * bounds.seconds
  return boundTexts[bound](bounds, (seconds) => percent(seconds / total), facts)
}

const lacking =
  (resource: 'gpus' | 'memory' | 'labels', what: string): Words =>
  (bounds, share) => {
    const least = leastTimesOf(bounds).find((one) => one.resource === resource)
    const start = `Too few ${what} bounded this run: `
    return least !== undefined && least.seconds > halfBusy * bounds.seconds
      ? `${start}${least.of} were in use for ${percent(least.seconds / bounds.seconds)} of the ` +
          `time, so the run could not have ended before ${secondsText(least.seconds)}.`
      : `${start}${share(bounds.slotSeconds.noSlotFitted[resource])} of the slots' time was idle ` +
          `because free slots lacked ${resource} for the tasks that were ready.`
  }

const boundTexts: Readonly<Record<Bound, Words>> = {
  'critical path': (bounds) =>
    `The critical path bounded this run: ${pathText(bounds)} took ` +
    `${percent(bounds.criticalPath.share)} of its time${
      mostFullSeconds(bounds) < smallestShare * bounds.seconds
        ? ', and no further slot would have made it shorter.'
        : '.'
    }`,
  straggler(bounds, _share, { uidOf, nameOf }) {
    const { task, seconds, median } = stragglerOnPath(bounds) ?? { task: -1, seconds: 0, median: 0 }
    return (
      `A straggler bounded this run: ${uidOf(task)} (${shortName(nameOf(task))}) ran ` +
      `${secondsText(seconds)}, while half of its kind took at most ${secondsText(median)}.`
    )
  },
  slots(bounds) {
    const { of, seconds } = scarcestSlots(bounds)
    const busy = `${of} ran tasks ${percent(seconds / bounds.seconds)} of the time`
    const isWaited = mostFullSeconds(bounds) >= smallestShare * bounds.seconds
    return (
      `The slots bounded this run: ${busy}` +
      (isWaited
        ? ', so more of them would have finished it earlier.'
        : '. No task waited for one: more of them help only with more tasks at a time.')
    )
  },
  dispatcher: ({ slotSeconds }, share) =>
    `The dispatcher bounded this run: for ${share(slotSeconds.heldBack)} of the slots' time a ` +
    'task was ready and fitted a free slot, but had not been started there.',
  nodes: ({ slotSeconds }, share) =>
    `Missing nodes bounded this run: ${share(slotSeconds.nodeAway)} of the slots' time belongs ` +
    'to nodes that had not joined yet or had left.',
  tasks: ({ slotSeconds }, share) =>
    `Too few ready tasks bounded this run: for ${share(slotSeconds.noTaskReady)} of the slots' ` +
    'time there was no task that could have run.',
  gpus: lacking('gpus', 'gpus'),
  memory: lacking('memory', 'bytes of memory'),
  labels: lacking('labels', 'nodes with the right labels'),
}

const pathText = ({ criticalPath }: BoundsView): string =>
  criticalPath.length === 1
    ? 'its longest task'
    : `${countText(criticalPath.length, 'task')} that waited for each other`

/** Unless the first sentence has said it. */
function idleSentences(bound: Bound, bounds: BoundsView): string[] {
  const { slotSeconds, slots, seconds } = bounds
  if (bound === 'slots' && scarcestSlots(bounds).of === countText(slots, 'slot')) return []
  const busy = percent(slotSeconds.ran / (slots * seconds))
  return [`${countText(slots, 'slot')} ran tasks for ${busy} of ${secondsText(seconds)}.`]
}

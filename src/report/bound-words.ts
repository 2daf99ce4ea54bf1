/** What bounded a run, in sentences: the bound itself, and what would shorten the run. Pure. */

import { countText, secondsText, shortName } from '../views/readable.ts'
import type { BoundsView } from '../views/bounds/bounds.ts'
import type { SlotResource } from '../views/bounds/slot-classes.ts'

/** What the sentences are about. */
export type Bound =
  | 'critical path'
  | 'straggler'
  | 'slots'
  | 'dispatcher'
  | 'nodes'
  | 'tasks'
  | Exclude<SlotResource, 'cores'>

export interface BoundWords {
  readonly bound: Bound | null
  /** The first one names the bound. */
  readonly sentences: readonly string[]
  /** What would shorten the run, the most first; three, if anything ran. */
  readonly improvements: readonly string[]
}

/** What the bounds alone do not tell. */
export interface BoundFacts {
  readonly uidOf: (task: number) => string
  readonly nameOf: (task: number) => string
  /** Slot-seconds of attempts that failed, were retried or lost. */
  readonly failedSeconds: number
}

/** A path that takes this share of the run is what more slots cannot shorten. */
const wholeRun = 0.8
/** Slots that ran tasks for this share were in use all the time. */
const allBusy = 0.8
/** Less idle time than this share is not worth a sentence. */
const smallestShare = 0.01
/** With that much idle time a path of this share explains it. */
const mostOfIdle = 0.3

export function describeBounds(bounds: BoundsView, facts: BoundFacts): BoundWords {
  const { slots, from, to, slotSeconds } = bounds
  const seconds = to - from
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
    sentences: [boundSentence(bound, bounds, facts), idleSentence(bounds), ...partial],
    improvements: improvementsOf(bounds, facts).slice(0, 3),
  }
}

function findBound(bounds: BoundsView): Bound {
  const { criticalPath, slots, from, to, slotSeconds } = bounds
  const total = slots * (to - from)
  const ofPath = stragglerOnPath(bounds) === null ? 'critical path' : 'straggler'
  if (criticalPath.share >= wholeRun) return ofPath
  if (slotSeconds.ran >= allBusy * total) return 'slots'
  const [largest] = idleClasses(bounds).toSorted((a, b) => b.seconds - a.seconds)
  if (largest === undefined) return 'slots'
  if (largest.bound !== 'tasks') return largest.bound
  return criticalPath.share >= mostOfIdle ? ofPath : 'tasks'
}

interface IdleClass {
  readonly bound: Bound
  readonly seconds: number
}

function idleClasses({ slotSeconds }: BoundsView): IdleClass[] {
  const { noTaskReady, noSlotFitted, heldBack, nodeAway } = slotSeconds
  return [
    { bound: 'dispatcher', seconds: heldBack },
    { bound: 'gpus', seconds: noSlotFitted.gpus },
    { bound: 'memory', seconds: noSlotFitted.memory },
    { bound: 'labels', seconds: noSlotFitted.labels },
    { bound: 'slots', seconds: noSlotFitted.cores },
    { bound: 'nodes', seconds: nodeAway },
    { bound: 'tasks', seconds: noTaskReady },
  ]
}

/** The worst straggler of the critical path, if most of the path is the time that it lost. */
function stragglerOnPath({ stragglers, criticalPath }: BoundsView) {
  const onPath = new Set(criticalPath.tasks.map(({ task }) => task))
  const worst = stragglers.find(({ task }) => onPath.has(task))
  if (worst === undefined) return null
  return worst.seconds - worst.median >= 0.5 * criticalPath.seconds ? worst : null
}

const percent = (share: number): string => `${Math.round(100 * share)} %`

type Words = (bounds: BoundsView, share: (seconds: number) => string, facts: BoundFacts) => string

function boundSentence(bound: Bound, bounds: BoundsView, facts: BoundFacts): string {
  const total = bounds.slots * (bounds.to - bounds.from)
  return boundTexts[bound](bounds, (seconds) => percent(seconds / total), facts)
}

const lacking =
  (resource: 'gpus' | 'memory' | 'labels', what: string): Words =>
  ({ slotSeconds }, share) =>
    `Too few ${what} bounded this run: ${share(slotSeconds.noSlotFitted[resource])} of the ` +
    `slots' time was idle because free slots lacked ${resource} for the tasks that were ready.`

const boundTexts: Readonly<Record<Bound, Words>> = {
  'critical path': (bounds) =>
    `The critical path bounded this run: ${pathText(bounds)} took ` +
    `${percent(bounds.criticalPath.share)} of its time, and no further slot would have made it ` +
    'shorter.',
  straggler(bounds, _share, { uidOf, nameOf }) {
    const { task, seconds, median } = stragglerOnPath(bounds) ?? { task: -1, seconds: 0, median: 0 }
    return (
      `A straggler bounded this run: ${uidOf(task)} (${shortName(nameOf(task))}) ran ` +
      `${secondsText(seconds)}, while half of its kind took at most ${secondsText(median)}.`
    )
  },
  slots: ({ slots, slotSeconds }, share) =>
    `The slots bounded this run: ${countText(slots, 'slot')} ran tasks ` +
    `${share(slotSeconds.ran)} of the time, so more of them would have finished it earlier.`,
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

function idleSentence({ slotSeconds, slots, from, to }: BoundsView): string {
  const total = slots * (to - from)
  const busy = percent(slotSeconds.ran / total)
  return `${countText(slots, 'slot')} ran tasks for ${busy} of ${secondsText(to - from)}.`
}

interface Improvement {
  /** How much shorter the run could be, in seconds. */
  readonly saved: number
  readonly text: string
}

/** Every one has its number; those that save most come first. */
function improvementsOf(bounds: BoundsView, facts: BoundFacts): string[] {
  const found = [
    ...pathImprovements(bounds, facts),
    ...slotImprovements(bounds),
    ...(facts.failedSeconds > 0 ? [failedImprovement(bounds, facts)] : []),
  ]
  return found.toSorted((a, b) => b.saved - a.saved).map(({ text }) => text)
}

function pathImprovements(bounds: BoundsView, facts: BoundFacts): Improvement[] {
  const { criticalPath, stragglers } = bounds
  const onPath = new Set(criticalPath.tasks.map(({ task }) => task))
  const late = stragglers.filter(({ task }) => onPath.has(task))
  const lost = late.reduce((sum, { seconds, median }) => sum + seconds - median, 0)
  const [name, share, own] = largestNameOnPath(bounds, facts)
  return [
    ...(lost > 0
      ? [
          {
            saved: lost,
            text:
              `Without the ${countText(late.length, 'straggler')} on the critical path it could ` +
              `end ${secondsText(lost)} earlier.`,
          },
        ]
      : []),
    {
      saved: own / 2,
      text:
        `${shortName(name)} is ${percent(share)} of the critical path: at half its duration the ` +
        `run could end up to ${secondsText(own / 2)} earlier.`,
    },
  ]
}

/** The name that takes most of the path, its share in it, and its seconds. */
function largestNameOnPath(
  { criticalPath }: BoundsView,
  { nameOf }: BoundFacts,
): readonly [name: string, share: number, seconds: number] {
  const sums = new Map<string, number>()
  for (const { task, start, end } of criticalPath.tasks) {
    const name = nameOf(task)
    sums.set(name, (sums.get(name) ?? 0) + end - start)
  }
  const [largest = ['', 0] as const] = [...sums].toSorted(([, a], [, b]) => b - a)
  const all = [...sums.values()].reduce((sum, one) => sum + one, 0)
  return [largest[0], all > 0 ? largest[1] / all : 0, largest[1]]
}

function slotImprovements(bounds: BoundsView): Improvement[] {
  const { slots, slotSeconds, criticalPath, from, to } = bounds
  const [seconds, total] = [to - from, slots * (to - from)]
  const doubled = Math.max(criticalPath.seconds, slotSeconds.ran / (2 * slots))
  const enough = Math.max(1, Math.ceil(slotSeconds.ran / Math.max(criticalPath.seconds, 1e-9)))
  // Of a run with a long path the path says why no task was ready.
  const isOpen = criticalPath.share < mostOfIdle
  const isBusy = slotSeconds.ran >= allBusy * total
  const idle = idleClasses(bounds)
    .filter(({ bound }) => bound !== 'slots' && (bound !== 'tasks' || isOpen))
    .filter(({ seconds: lost }) => lost >= smallestShare * total)
    .map(({ bound, seconds: lost }) => ({
      saved: lost / slots,
      text: idleText(bound, lost / slots, lost / total),
    }))
  const more = {
    saved: isBusy ? slotSeconds.ran / slots - doubled : 0,
    text:
      `With twice as many slots it could end after ${secondsText(doubled)} at best, ` +
      `instead of ${secondsText(seconds)}.`,
  }
  const fewer = {
    saved: -1,
    text:
      `The work is ${secondsText(slotSeconds.ran)} of slot time: ${countText(enough, 'slot')} ` +
      `that never wait would need no longer than the critical path.`,
  }
  return [...idle, more, fewer]
}

const idleNames: Readonly<Partial<Record<Bound, string>>> = {
  dispatcher: 'Tasks that start as soon as a slot is free',
  gpus: 'Enough gpus for the tasks that are ready',
  memory: 'Enough memory for the tasks that are ready',
  labels: 'More nodes with the labels that tasks ask for',
  tasks: 'Tasks that are submitted earlier',
  nodes: 'Nodes that are there all the time',
}

const idleText = (bound: Bound, seconds: number, share: number): string =>
  `${idleNames[bound]} would use ${percent(share)} more of the slots: up to ` +
  `${secondsText(seconds)}.`

function failedImprovement({ slots }: BoundsView, { failedSeconds }: BoundFacts): Improvement {
  const saved = failedSeconds / slots
  const text =
    `Attempts that failed took ${secondsText(failedSeconds)} of slot time: ` +
    `up to ${secondsText(saved)} of the run.`
  return { saved, text }
}

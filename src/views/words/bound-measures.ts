/**
 * The numbers behind the sentences about the bounds of a run. The main number is the minimum time
 * for the resources that tasks held: units times seconds divided by the capacity. The run cannot be
 * shorter than this, whatever else is changed. Pure.
 */

import type { RecordState } from '../panels/run.ts'
import { countText, numberText } from '../readable.ts'
import type { BoundsView } from '../bounds/bounds.ts'
import type { ChangedRun } from '../bounds/changed-runs.ts'
import type { Straggler } from '../bounds/critical-path.ts'
import type { WideTasks } from '../bounds/slot-run.ts'
import type { UnsizedUse } from '../bounds/unsized-use.ts'
import { type HeldResource, type IdleReason, sizeRange } from '../bounds/slots.ts'
import type { SizeSpan, SlotLimit, SlotResource } from '../bounds/slots.ts'

/** The possible subjects of sentences about bounds. */
export type Bound =
  | 'critical path'
  | 'straggler'
  | 'slots'
  | 'limits'
  | 'worker start'
  | 'short tasks'
  | 'scheduler'
  | 'nodes'
  | 'tasks'
  | 'model'
  | Exclude<SlotResource, 'cores' | SlotLimit>

/** Facts that are not part of the bounds view. */
export interface BoundFacts {
  readonly uidOf: (task: number) => string
  readonly nameOf: (task: number) => string
  /** The number of seconds by which the clock was changed during the run; 0 if none or unknown. */
  readonly clockStep: number
  readonly state: RecordState
  /** The mean CPU utilization of the nodes; `null` if not measured. */
  readonly cpuPercent: number | null
  /** The part of `cpuPercent` used by the run itself; `null` if not measured. */
  readonly runCpuPercent: number | null
  /** The number of workers that replaced others after a timeout, a cancellation or a crash. */
  readonly replacedWorkers: number
  /** The number of unfinished tasks, for which the length of the run is unknown. */
  readonly openTasks: number
  readonly tasks: number
}

/** Whether the run itself keeps the processors busy, rather than other programs. */
export const isCpuBound = ({ cpuPercent, runCpuPercent }: BoundFacts): boolean =>
  cpuPercent !== null &&
  cpuPercent >= busyPercent &&
  (runCpuPercent === null || runCpuPercent >= cpuPercent / 2)

/** Tasks with a smaller ratio of CPU time to slot time were mostly waiting. */
const minCpuShare = 0.2

/** Whether the tasks compute rather than sleep or wait; only computing is slowed by a busy node. */
const hasComputed = (
  { slots, seconds, slotSeconds: { ran } }: BoundsView,
  { runCpuPercent }: BoundFacts,
): boolean => ((runCpuPercent ?? 0) / 100) * slots * seconds >= minCpuShare * ran

/** A sentence if other programs kept the processors busy, which may have slowed the run. */
export const otherLoad = (bounds: BoundsView, facts: BoundFacts): string[] =>
  facts.cpuPercent === null ||
  facts.cpuPercent < busyPercent ||
  isCpuBound(facts) ||
  !hasComputed(bounds, facts)
    ? []
    : [
        `The processors were ${cpuText(facts.cpuPercent, facts.runCpuPercent)}: other programs ` +
          'took the rest, and the run may be faster without them.',
      ]

/** The CPU utilization as text, and who caused it. */
export function cpuText(cpuPercent: number, runCpuPercent: number | null): string {
  const busy = `${Math.round(cpuPercent)} % busy`
  return runCpuPercent === null ? busy : `${busy}, ${Math.round(runCpuPercent)} % by this run`
}

/** Above this CPU utilization, additional slots on the same nodes would not help. */
const busyPercent = 90
/** A critical path with at least this share of the run explains idle slots. */
export const maxIdlePathShare = 0.3
/** A smaller share of the run is not mentioned. */
export const smallestShare = 0.01

type SlotClass = 'ran' | IdleReason

export interface ClassShare {
  readonly seconds: number
  /** The share of all slot time in whole percent, as text; all classes add up to 100. */
  readonly text: string
}

/** The total time of all slots that existed at each moment. */
export const slotTimeOf = ({ slotSeconds: { noSlotFitted, ...others } }: BoundsView): number =>
  [...Object.values(others), ...Object.values(noSlotFitted)].reduce((sum, one) => sum + one, 0)

/** The use of all slots. To add up to 100, the largest fractions are rounded up, except `ran`. */
export function classSharesOf(bounds: BoundsView): Readonly<Record<SlotClass, ClassShare>> {
  const { noSlotFitted, ...others } = bounds.slotSeconds
  const time = slotTimeOf(bounds)
  const all = Object.entries({ ...others, ...noSlotFitted })
  const exact = new Map(all.map(([key, seconds]) => [key, (100 * seconds) / time]))
  const whole = new Map([...exact].map(([key, share]) => [key, Math.floor(share)]))
  whole.set('ran', Math.round(exact.get('ran') ?? 0))
  const fraction = (key: string): number => (exact.get(key) ?? 0) % 1
  const rest = 100 - [...whole.values()].reduce((sum, one) => sum + one, 0)
  const upwards = [...exact.keys()]
    .filter((key) => key !== 'ran')
    .toSorted((a, b) => fraction(b) - fraction(a))
    .slice(0, Math.max(0, rest))
  for (const key of upwards) whole.set(key, (whole.get(key) ?? 0) + 1)
  const shares = all.map(([key, seconds]) => {
    const share = whole.get(key) ?? 0
    return [key, { seconds, text: share === 0 && seconds > 0 ? 'under 1 %' : `${share} %` }]
  })
  return Object.fromEntries(shares) as Record<SlotClass, ClassShare>
}

/** Whether most work was done by functions in the program itself, which share one thread. */
export const isOneThread = ({ backends }: BoundsView): boolean =>
  backends.reduce((sum, { held, closureSeconds }) => sum + held.cores - 2 * closureSeconds, 0) < 0

interface IdleClass {
  readonly bound: Bound
  readonly class: IdleReason
  readonly seconds: number
}

/** How long at least one slot was idle for this reason. */
export const idleLength = ({ backends }: BoundsView, reason: IdleReason): number =>
  backends.reduce((sum, { idleSeconds }) => sum + idleSeconds[reason], 0)

/** Slot-seconds without a ready task, before the last task became ready. */
export const notYetReadyOf = ({ backends }: BoundsView): number =>
  backends.reduce((sum, { notYetReady }) => sum + notYetReady, 0)

export function idleClasses({ slotSeconds }: BoundsView): IdleClass[] {
  const { noTaskReady, noSlotFitted, nodeAway } = slotSeconds
  const { cores, workers, processes } = noSlotFitted
  return [
    { bound: 'limits', class: 'nameLimit', seconds: slotSeconds.nameLimit },
    { bound: 'worker start', class: 'startingWorkers', seconds: slotSeconds.startingWorkers },
    { bound: 'short tasks', class: 'taskOverhead', seconds: slotSeconds.taskOverhead },
    { bound: 'scheduler', class: 'heldBack', seconds: slotSeconds.heldBack },
    { bound: 'gpus', class: 'gpus', seconds: noSlotFitted.gpus },
    { bound: 'memory', class: 'memory', seconds: noSlotFitted.memory },
    { bound: 'labels', class: 'labels', seconds: noSlotFitted.labels },
    { bound: 'slots', class: 'cores', seconds: cores + workers + processes },
    { bound: 'nodes', class: 'nodeAway', seconds: nodeAway },
    { bound: 'tasks', class: 'noTaskReady', seconds: noTaskReady },
  ]
}

/** The maximum overhead of a task, as a share of its slot's time. */
const maxOverhead = 0.05

/**
 * The number of tasks to combine into one to make their overhead small, so that each slot still has
 * a task. 1 if that would not help.
 */
export function tasksPerTask({ slots, slotSeconds }: BoundsView, { tasks }: BoundFacts): number {
  const { taskOverhead, ran } = slotSeconds
  const wanted = Math.ceil(((1 - maxOverhead) / maxOverhead) * (taskOverhead / ran))
  return Math.max(1, Math.min(wanted, Math.floor(tasks / Math.max(1, slots))))
}

export interface MinTime {
  readonly resource: HeldResource
  readonly backend: string
  readonly seconds: number
  /** The share of the resource that tasks held over the whole run. */
  readonly share: number
  /** The minimum time with twice as much of the resource. */
  readonly doubled: number
  /** The amount of the resource, as text. */
  readonly of: string
}

const resources = ['cores', 'gpus', 'memory', 'workers', 'processes'] as const

/** The minimum times of all backends, longest first; for a changed run, reduced by `freed`. */
export function minTimesOf({ backends }: BoundsView, freed: ChangedRun['freed'] = {}): MinTime[] {
  return backends
    .flatMap(({ backend, sizes, held }) =>
      resources.flatMap((resource) => {
        const range = sizeRange(sizes, resource)
        // For the other resources, 0 means unknown or unlimited.
        const isNumber = resource === 'cores' || resource === 'gpus'
        if ((isNumber ? range.max : range.min) === 0) return []
        const asked = Math.max(0, held[resource] - (freed[backend]?.[resource] ?? 0))
        return [
          {
            resource,
            backend,
            seconds: secondsFor(asked, resource, sizes),
            share: asked / timeOf(resource, sizes),
            doubled: secondsFor(asked / 2, resource, sizes),
            of: nameOf(resource, range) + (backends.length > 1 ? ` of ${backend}` : ''),
          },
        ]
      }),
    )
    .toSorted((a, b) => b.seconds - a.seconds)
}

const timeOf = (resource: HeldResource, sizes: readonly SizeSpan[]): number =>
  sizes.reduce((sum, { seconds, capacity }) => sum + seconds * capacity[resource], 0)

/** The minimum time to hold this many units, from the start of the run. */
function secondsFor(units: number, resource: HeldResource, sizes: readonly SizeSpan[]): number {
  let [rest, seconds] = [units, 0]
  for (const { seconds: length, capacity } of sizes) {
    const max = length * capacity[resource]
    if (rest <= max) return seconds + (rest === 0 ? 0 : rest / capacity[resource])
    rest -= max
    seconds += length
  }
  return seconds
}

type SizeRange = ReturnType<typeof sizeRange>

const rangeText = ({ min, max }: SizeRange, one: string, many?: string): string =>
  (min === max ? '' : `${numberText(min)} to `) + countText(max, one, many)

/** The backends that have slots, as text. */
export const sizedBackends = ({ backends }: BoundsView): string =>
  backends.length > 2
    ? countText(backends.length, 'backend')
    : backends.map(({ backend }) => backend).join(' and ')

/** The number of slots, as text. */
export const slotsText = ({ slots, fewestSlots }: BoundsView): string =>
  rangeText({ min: fewestSlots, max: slots }, 'slot')

function nameOf(resource: HeldResource, range: SizeRange): string {
  if (resource === 'cores') return rangeText(range, 'slot')
  if (resource === 'gpus') return `its gpus (${rangeText(range, '', '').trimEnd()})`
  if (resource === 'memory') return `its ${rangeText(range, 'MB', 'MB')} of memory`
  return resource === 'workers'
    ? `${rangeText(range, 'worker')} for functions (\`workers\`)`
    : `${rangeText(range, 'slot')} for programs (\`maxProcesses\`)`
}

export const isSlotResource = (resource: HeldResource): boolean =>
  resource !== 'gpus' && resource !== 'memory'

/** Whether the time is about GPUs or memory. */
export const isOtherResource = (
  min: MinTime,
): min is MinTime & { readonly resource: 'gpus' | 'memory' } => !isSlotResource(min.resource)

/** The worst straggler on the critical path, if its extra time is at least half of the path. */
export function stragglerOnPath({ stragglers, criticalPath }: BoundsView): Straggler | null {
  const onPath = new Set(criticalPath.tasks.map(({ task }) => task))
  const worst = stragglers.find(({ task }) => onPath.has(task))
  if (worst === undefined) return null
  return worst.seconds - worst.median >= 0.5 * criticalPath.seconds ? worst : null
}

export const pathBoundOf = (bounds: BoundsView): Bound =>
  stragglerOnPath(bounds) === null ? 'critical path' : 'straggler'

const noSlots: MinTime = {
  resource: 'cores',
  backend: '',
  seconds: 0,
  share: 0,
  doubled: 0,
  of: '0 slots',
}

/** The kind of slots used most: cores, or workers or programs if their limit is tighter. */
export const scarcestSlots = (bounds: BoundsView): MinTime =>
  minTimesOf(bounds).find(({ resource }) => isSlotResource(resource)) ?? noSlots

/** The settings that limit how many prompts a model runs at a time. */
export const promptSettings = '`sequences`, of other engines than llama `max_concurrency`'

/** The backend without known slots for which tasks waited longest, if it ran any. */
export const busiestModel = ({ unsized }: BoundsView): UnsizedUse | null =>
  unsized
    .filter(({ busySeconds }) => busySeconds > 0)
    .toSorted((a, b) => b.waitedSeconds - a.waitedSeconds || b.busySeconds - a.busySeconds)[0] ??
  null

/** The obstacles at the backend whose tasks waited longest for slots. */
export function slotWaitsOf({ backends }: BoundsView): {
  /** How long no slot was free for the next task in the queue. */
  readonly noneFree: number
  /** How long the next task requested more cores than were free. */
  readonly tooFewCores: number
  readonly wide: WideTasks
} {
  const [fullest] = backends.toSorted((a, b) => b.fullSeconds - a.fullSeconds)
  return {
    noneFree: fullest?.noneFreeSeconds ?? 0,
    tooFewCores: fullest?.idleSeconds.cores ?? 0,
    wide: fullest?.wide ?? { count: 0, max: 0 },
  }
}

/** The maximum time that tasks of a backend waited because all its slots were in use. */
export const maxFullSeconds = ({ backends }: BoundsView): number =>
  Math.max(0, ...backends.map(({ fullSeconds }) => fullSeconds))

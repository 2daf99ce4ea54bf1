/**
 * The numbers behind what bounded a run, for the sentences about it. The main one is the least time
 * that it needs for what its tasks held: the sum of what they held of a resource, divided by how
 * much there was of it. Whatever else is changed, the run takes no less. Pure.
 */

import type { RecordState } from '../record/record-views.ts'
import { countText, numberText } from '../views/readable.ts'
import type { BoundsView } from '../views/bounds/bounds.ts'
import type { ChangedRun } from '../views/bounds/changed-runs.ts'
import type { Straggler } from '../views/bounds/critical-path.ts'
import type { WideTasks } from '../views/bounds/slot-run.ts'
import type { UnsizedUse } from '../views/bounds/unsized-use.ts'
import { type HeldResource, type IdleReason, sizeRange } from '../views/bounds/slots.ts'
import type { SizeSpan, SlotLimit, SlotResource } from '../views/bounds/slots.ts'

/** What the sentences are about. */
export type Bound =
  | 'critical path'
  | 'straggler'
  | 'slots'
  | 'dispatcher'
  | 'nodes'
  | 'tasks'
  | 'model'
  | Exclude<SlotResource, 'cores' | SlotLimit>

/** What the bounds alone do not tell. */
export interface BoundFacts {
  readonly uidOf: (task: number) => string
  readonly nameOf: (task: number) => string
  /** By how many seconds the clock was changed meanwhile; 0: it was not, as far as is known. */
  readonly clockStep: number
  readonly state: RecordState
  /** How busy the processors of the nodes were in the mean; `null` if nothing was measured. */
  readonly cpuPercent: number | null
  /** Workers that took the place of others, which a time-out, a cancellation or a crash ended. */
  readonly replacedWorkers: number
  /** Tasks without an end: how long the run would have taken with those is not known. */
  readonly openTasks: number
}

/** With processors this busy more slots on the same nodes would share them. */
export const busyPercent = 90
/** With that much idle time a path of this share explains it. */
export const mostOfIdle = 0.3
/** Less than this share of the run is not worth a sentence. */
export const smallestShare = 0.01

export const percent = (share: number): string => `${Math.round(100 * share)} %`

type SlotClass = 'ran' | IdleReason

export interface ClassShare {
  readonly seconds: number
  /** Whole percents of the time of all slots, in words; those of all classes are 100 together. */
  readonly text: string
}

/** The time of all slots: of as many as there were each time. */
export const slotTimeOf = ({ slotSeconds: { noSlotFitted, ...others } }: BoundsView): number =>
  [...Object.values(others), ...Object.values(noSlotFitted)].reduce((sum, one) => sum + one, 0)

/** What all slots did. The largest fractions are rounded up, except that of what ran. */
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

interface IdleClass {
  readonly bound: Bound
  readonly class: IdleReason
  readonly seconds: number
}

/** How long at least one slot was idle for this reason. */
export const idleLength = ({ backends }: BoundsView, reason: IdleReason): number =>
  backends.reduce((sum, { idleSeconds }) => sum + idleSeconds[reason], 0)

/** Slot seconds without a ready task, but for those after the last task became ready. */
export const notYetReadyOf = ({ backends }: BoundsView): number =>
  backends.reduce((sum, { notYetReady }) => sum + notYetReady, 0)

export function idleClasses({ slotSeconds }: BoundsView): IdleClass[] {
  const { noTaskReady, noSlotFitted, heldBack, nodeAway } = slotSeconds
  const { cores, workers, processes } = noSlotFitted
  return [
    { bound: 'dispatcher', class: 'heldBack', seconds: heldBack },
    { bound: 'gpus', class: 'gpus', seconds: noSlotFitted.gpus },
    { bound: 'memory', class: 'memory', seconds: noSlotFitted.memory },
    { bound: 'labels', class: 'labels', seconds: noSlotFitted.labels },
    { bound: 'slots', class: 'cores', seconds: cores + workers + processes },
    { bound: 'nodes', class: 'nodeAway', seconds: nodeAway },
    { bound: 'tasks', class: 'noTaskReady', seconds: noTaskReady },
  ]
}

export interface LeastTime {
  readonly resource: HeldResource
  readonly backend: string
  readonly seconds: number
  /** Of all that there was of it over the whole run: how much tasks held. */
  readonly share: number
  /** If there were twice as much of it. */
  readonly doubled: number
  /** What there was of it, in words. */
  readonly of: string
}

const resources = ['cores', 'gpus', 'memory', 'workers', 'processes'] as const

/** Those of all backends, the longest first; of a changed run with what it frees. */
export function leastTimesOf(
  { backends }: BoundsView,
  freed: ChangedRun['freed'] = {},
): LeastTime[] {
  return backends
    .flatMap(({ backend, sizes, held }) =>
      resources.flatMap((resource) => {
        const range = sizeRange(sizes, resource)
        // Of the others, 0 is a size that is not told, or no limit.
        const isNumber = resource === 'cores' || resource === 'gpus'
        if ((isNumber ? range.most : range.least) === 0) return []
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

/** How long it takes at least to hold so much, from the start of the run on. */
function secondsFor(units: number, resource: HeldResource, sizes: readonly SizeSpan[]): number {
  let [rest, seconds] = [units, 0]
  for (const { seconds: length, capacity } of sizes) {
    const most = length * capacity[resource]
    if (rest <= most) return seconds + (rest === 0 ? 0 : rest / capacity[resource])
    rest -= most
    seconds += length
  }
  return seconds
}

type SizeRange = ReturnType<typeof sizeRange>

const rangeText = ({ least, most }: SizeRange, one: string, many?: string): string =>
  (least === most ? '' : `${numberText(least)} to `) + countText(most, one, many)

/** The backends that have the slots, in words. */
export const sizedBackends = ({ backends }: BoundsView): string =>
  backends.length > 2
    ? countText(backends.length, 'backend')
    : backends.map(({ backend }) => backend).join(' and ')

/** How many slots there were, in words. */
export const slotsText = ({ slots, fewestSlots }: BoundsView): string =>
  rangeText({ least: fewestSlots, most: slots }, 'slot')

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

/** Of gpus and memory. */
export const isOtherResource = (
  least: LeastTime,
): least is LeastTime & { readonly resource: 'gpus' | 'memory' } => !isSlotResource(least.resource)

/** The worst straggler of the critical path, if most of the path is the time that it lost. */
export function stragglerOnPath({ stragglers, criticalPath }: BoundsView): Straggler | null {
  const onPath = new Set(criticalPath.tasks.map(({ task }) => task))
  const worst = stragglers.find(({ task }) => onPath.has(task))
  if (worst === undefined) return null
  return worst.seconds - worst.median >= 0.5 * criticalPath.seconds ? worst : null
}

export const pathBoundOf = (bounds: BoundsView): Bound =>
  stragglerOnPath(bounds) === null ? 'critical path' : 'straggler'

const noSlots: LeastTime = {
  resource: 'cores',
  backend: '',
  seconds: 0,
  share: 0,
  doubled: 0,
  of: '0 slots',
}

/** The slots that were in use most: cores, unless a smaller number of workers or programs was. */
export const scarcestSlots = (bounds: BoundsView): LeastTime =>
  leastTimesOf(bounds).find(({ resource }) => isSlotResource(resource)) ?? noSlots

/** Of the backends without told slots the one that tasks waited for most, if it ran any. */
export const busiestModel = ({ unsized }: BoundsView): UnsizedUse | null =>
  unsized
    .filter(({ busySeconds }) => busySeconds > 0)
    .toSorted((a, b) => b.waitedSeconds - a.waitedSeconds || b.busySeconds - a.busySeconds)[0] ??
  null

/** What kept tasks from the slots of the backend whose tasks waited longest for some. */
export function slotWaitsOf({ backends }: BoundsView): {
  /** How long none was free for the tasks whose turn it was. */
  readonly noneFree: number
  /** How long the first task asked for more cores than were free, and some were. */
  readonly tooFewCores: number
  readonly wide: WideTasks
} {
  const [fullest] = backends.toSorted((a, b) => b.fullSeconds - a.fullSeconds)
  return {
    noneFree: fullest?.noneFreeSeconds ?? 0,
    tooFewCores: fullest?.idleSeconds.cores ?? 0,
    wide: fullest?.wide ?? { count: 0, most: 0 },
  }
}

/** How long tasks waited because all slots of their backend were in use. */
export const mostFullSeconds = ({ backends }: BoundsView): number =>
  Math.max(0, ...backends.map(({ fullSeconds }) => fullSeconds))

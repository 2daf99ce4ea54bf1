/**
 * The numbers behind the sentences about the bounds of a run. The main number is the minimum time
 * for the resources that tasks held: units times seconds, divided by the capacity. The run cannot
 * be shorter than this, whatever else is changed. Pure.
 */

import type { BoundsView } from '../bounds/bounds.ts'
import type { Straggler } from '../bounds/critical-path.ts'
import type { BackendUse, UnsizedUse } from '../bounds/slot-run.ts'
import { type CapacityPeriod, type HeldResource, heldResources } from '../bounds/slots.ts'
import { sizeRange, type SlotClass } from '../bounds/slots.ts'
import type { RecordState } from '../panels/run.ts'
import { countText, numberText } from '../readable.ts'
import type { IdleBound } from './idle-texts.ts'

/** The possible subjects of sentences about bounds. */
export type Bound = 'critical path' | 'straggler' | 'model' | IdleBound

/** Facts that are not part of the bounds view. */
export interface BoundFacts {
  readonly uidOf: (task: number) => string
  readonly nameOf: (task: number) => string
  /** The seconds by which the clock was changed during the run; 0 if it was not, or if unknown. */
  readonly clockStep: number
  readonly state: RecordState
  readonly cpuPercent: number | null
  readonly runCpuPercent: number | null
  /** Workers that replaced others after a timeout, a cancellation or a crash. */
  readonly replacedWorkers: number
  /** The number of unfinished tasks. If there are any, the length of the run is unknown. */
  readonly openTasks: number
  readonly tasks: number
}

/** Smaller shares of the run are not mentioned. */
export const minShare = 0.01

/** The slot-seconds of the run: the sum, over all slots, of the time for which each existed. */
export const totalSlotTime = ({ slotSeconds }: BoundsView): number =>
  Object.values(slotSeconds).reduce((sum, one) => sum + one, 0)

/** The share of the slots' total time in which they ran tasks. */
export const busyShare = (bounds: BoundsView): number =>
  bounds.slotSeconds.ran / Math.max(1e-9, totalSlotTime(bounds))

/**
 * Formats the share of each class in whole percent. The share of `ran` is rounded to the nearest
 * number. The others are rounded up or down, so that the sum is 100.
 */
export function classShareTexts(bounds: BoundsView): Readonly<Record<SlotClass, string>> {
  const time = totalSlotTime(bounds)
  const shares = Object.entries(bounds.slotSeconds).map(([key, seconds]) => {
    const exact = (100 * seconds) / time
    return { key, exact, whole: key === 'ran' ? Math.round(exact) : Math.floor(exact) }
  })
  const idle = shares.filter(({ key }) => key !== 'ran')
  const rest = 100 - shares.reduce((sum, { whole }) => sum + whole, 0)
  const upwards = idle.toSorted((a, b) => (b.exact % 1) - (a.exact % 1))
  for (const share of upwards.slice(0, Math.max(0, rest))) share.whole++
  const texts = shares.map(({ key, exact, whole }) => {
    return [key, whole === 0 && exact > 0 ? 'under 1 %' : `${whole} %`]
  })
  return Object.fromEntries(texts) as Record<SlotClass, string>
}

/** Whether most of the work was done by functions in the program itself, which share one thread. */
export const isOneThread = ({ backends }: BoundsView): boolean =>
  sumOf(backends, ({ held, closureSeconds }) => held.cores - 2 * closureSeconds) < 0

export const sumOf = (
  backends: readonly BackendUse[],
  numberOf: (backend: BackendUse) => number,
): number => backends.reduce((sum, backend) => sum + numberOf(backend), 0)

/** The maximum overhead of a task, as a share of its slot's time. */
const maxOverhead = 0.05

/**
 * Returns how many tasks should be combined into one to make their overhead small, while each slot
 * still has a task. Returns 1 if that would not help.
 */
export function tasksToCombine({ slots, slotSeconds }: BoundsView, { tasks }: BoundFacts): number {
  const { taskOverhead, ran } = slotSeconds
  const wanted = Math.ceil(((1 - maxOverhead) / maxOverhead) * (taskOverhead / ran))
  return Math.max(1, Math.min(wanted, Math.floor(tasks / Math.max(1, slots))))
}

export interface MinTime {
  readonly resource: HeldResource
  readonly backend: string
  readonly seconds: number
  readonly share: number
  /** The minimum time with twice as much of the resource. */
  readonly doubled: number
  readonly amount: string
}

/** Returns the minimum times of all backends, longest first. */
export function findMinTimes({ backends }: BoundsView): MinTime[] {
  return backends
    .flatMap(({ backend, sizes, held }) =>
      heldResources.flatMap((resource) => {
        const range = sizeRange(sizes, resource)
        // For resources other than cores and GPUs, 0 means unknown or unlimited.
        const isNumber = resource === 'cores' || resource === 'gpus'
        if ((isNumber ? range.max : range.min) === 0) return []
        const units = held[resource]
        const all = sizes.reduce((sum, size) => sum + size.seconds * size.capacity[resource], 0)
        const minTime = {
          resource,
          backend,
          seconds: secondsToHold(units, resource, sizes),
          share: units / all,
          doubled: secondsToHold(units / 2, resource, sizes),
          amount: amountText(resource, range) + (backends.length > 1 ? ` of ${backend}` : ''),
        }
        return [minTime]
      }),
    )
    .toSorted((a, b) => b.seconds - a.seconds)
}

function secondsToHold(
  units: number,
  resource: HeldResource,
  sizes: readonly CapacityPeriod[],
): number {
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

function amountText(resource: HeldResource, range: SizeRange): string {
  if (resource === 'cores') return rangeText(range, 'slot')
  if (resource === 'gpus') return `its gpus (${rangeText(range, '', '').trimEnd()})`
  if (resource === 'memory') return `its ${rangeText(range, 'MB', 'MB')} of memory`
  return resource === 'workers'
    ? `${rangeText(range, 'worker')} for functions (\`workers\`)`
    : `${rangeText(range, 'slot')} for programs (\`maxProcesses\`)`
}

export const slotsText = ({ slots, minSlots }: BoundsView): string =>
  rangeText({ min: minSlots, max: slots }, 'slot')

/** Names the backends whose slots are known, if the slots of other backends are unknown. */
export function slotOwnerText({ backends, unsized }: BoundsView): string {
  if (unsized.length === 0) return ''
  const names = backends.map(({ backend }) => backend)
  return ` of ${names.length > 2 ? countText(names.length, 'backend') : names.join(' and ')}`
}

/** Whether the resource is a part of a slot. GPUs and memory are not. */
export const isSlotResource = (resource: HeldResource): boolean =>
  resource !== 'gpus' && resource !== 'memory'

/**
 * Returns the worst straggler on the critical path, if its extra time is at least half of the path;
 * otherwise `null`.
 */
export function stragglerOnPath({ stragglers, criticalPath }: BoundsView): Straggler | null {
  const worst = stragglers.find(({ isOnPath }) => isOnPath)
  if (worst === undefined) return null
  return worst.seconds - worst.median >= 0.5 * criticalPath.seconds ? worst : null
}

export const pathBound = (bounds: BoundsView): Bound =>
  stragglerOnPath(bounds) === null ? 'critical path' : 'straggler'

/** The most used kind of slots: cores, or workers or programs if their limit is tighter. */
export const scarcestSlots = (bounds: BoundsView): MinTime | undefined =>
  findMinTimes(bounds).find(({ resource }) => isSlotResource(resource))

/** The settings that limit how many prompts a model runs at a time. */
export const promptSettings = '`sequences`, of other engines than llama `max_concurrency`'

/**
 * Of the backends without known slots, the one with the most seconds in which tasks waited; `null`
 * if none ran a task.
 */
export const busiestModel = ({ unsized }: BoundsView): UnsizedUse | null =>
  unsized
    .filter(({ busySeconds }) => busySeconds > 0)
    .toSorted((a, b) => b.waitedSeconds - a.waitedSeconds || b.busySeconds - a.busySeconds)[0] ??
  null

/** The backend with the most seconds in which tasks waited because all its slots were in use. */
export const fullestBackend = ({ backends }: BoundsView): BackendUse | undefined =>
  backends.toSorted((a, b) => b.fullSeconds - a.fullSeconds)[0]

/**
 * The seconds in which tasks waited because all slots were in use, for the backend with the most
 * such seconds.
 */
export const maxFullSeconds = (bounds: BoundsView): number =>
  fullestBackend(bounds)?.fullSeconds ?? 0

/** Above this CPU utilization, additional slots on the same nodes would not help. */
const busyPercent = 90
/** If the ratio of CPU time to slot time is smaller than this, tasks were mostly waiting. */
const minCpuShare = 0.2

/** Returns what keeps the processors busy; `null` if they are idle or were not measured. */
export function findCpuUser({ cpuPercent, runCpuPercent }: BoundFacts): 'run' | 'others' | null {
  if (cpuPercent === null || cpuPercent < busyPercent) return null
  return runCpuPercent === null || runCpuPercent >= cpuPercent / 2 ? 'run' : 'others'
}

/** Returns a sentence if other programs kept the processors busy and may have slowed the run. */
export function describeOtherLoad(bounds: BoundsView, facts: BoundFacts): string[] {
  const cpuSeconds = ((facts.runCpuPercent ?? 0) / 100) * bounds.slots * bounds.seconds
  // A busy node does not slow tasks that sleep or wait.
  const hasComputed = cpuSeconds >= minCpuShare * bounds.slotSeconds.ran
  if (findCpuUser(facts) !== 'others' || !hasComputed) return []
  return [
    `The processors were ${cpuText(facts)}: other programs took the rest, and the run may be ` +
      'faster without them.',
  ]
}

/** Formats the CPU utilization, and the part of it that the run caused. */
export function cpuText({
  cpuPercent,
  runCpuPercent,
}: Pick<BoundFacts, 'cpuPercent' | 'runCpuPercent'>): string {
  const busy = `${Math.round(cpuPercent ?? 0)} % busy`
  return runCpuPercent === null ? busy : `${busy}, ${Math.round(runCpuPercent)} % by this run`
}

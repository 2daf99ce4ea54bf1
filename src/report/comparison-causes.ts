/** Why the same tasks took longer or shorter than before, other than their own durations. Pure. */

import { countText, numberText, percentText, secondsText } from '../views/readable.ts'
import type { IdleReason } from '../views/bounds/slots.ts'
import { isReuseOnly, lengthChange, compareTaskSets, noise } from './comparison-verdict.ts'
import type { ReportData } from './report-data.ts'

/** Changes in the same direction as the length of the run, which may explain it. */
export function causesOf(before: ReportData, after: ReportData): string[] {
  const likeness = compareTaskSets(before, after)
  const isSlower = lengthChange(before, after) >= noise
  const isFaster = lengthChange(before, after) <= -noise
  // If a clock was changed during a run, its times cannot be compared.
  const hasTimes = before.health.clockStep + after.health.clockStep === 0
  if ((likeness !== 'work' && likeness !== 'tasks') || isSlower === isFaster || !hasTimes) return []
  const sign = isSlower ? 1 : -1
  const reused = reuse(before, after, sign)
  // Tasks that did not run also change waits, the critical path and idle time.
  if (reused.length > 0 || isReuseOnly(before, after)) return reused
  return causes.flatMap((cause) => cause(before, after, sign))
}

/** `sign` is 1 if the second run took longer, -1 if it was shorter. */
type Cause = (before: ReportData, after: ReportData, sign: 1 | -1) => string[]

/** Only if the verdict does not already say so. */
const reuse: Cause = (before, after, sign) => {
  if (sign * (before.reused - after.reused) <= 0 || isReuseOnly(before, after)) return []
  const of = ({ reused, counts }: ReportData): string =>
    reused === 0 ? 'none' : `${numberText(reused)} of ${numberText(counts.tasks)}`
  return [`The second run reused ${of(after)} results, the first ${of(before)}.`]
}

const slots: Cause = ({ bounds: a }, { bounds: b }, sign) =>
  sign * (a.slots - b.slots) > 0
    ? [`The second run had ${countText(b.slots, 'slot')}, the first ${countText(a.slots, 'slot')}.`]
    : []

/** Whether two times differ enough to explain a part of the difference between the runs. */
function isMoved(a: number, b: number, sign: 1 | -1, length: number): boolean {
  const more = sign * (b - a)
  return more >= noise * Math.max(a, b) && more >= noise * length
}

const waits: Cause = (before, after, sign) => {
  const [a, b] = [meanWait(before), meanWait(after)]
  if (!isMoved(a, b, sign, before.durationSeconds)) return []
  return [
    `Its tasks waited ${secondsText(b)} on average from being ready to their start, ` +
      `${secondsText(a)} in the first run.`,
  ]
}

function meanWait({ names }: ReportData): number {
  const tasks = names.reduce((sum, { total }) => sum + total, 0)
  const seconds = names.reduce((sum, { total, meanWait: wait }) => sum + total * (wait ?? 0), 0)
  return tasks === 0 ? 0 : seconds / tasks
}

const path: Cause = ({ bounds: a }, { bounds: b }, sign) =>
  isMoved(a.criticalPath.seconds, b.criticalPath.seconds, sign, a.seconds)
    ? [
        `Its critical path took ${secondsText(b.criticalPath.seconds)}, ` +
          `${secondsText(a.criticalPath.seconds)} in the first run.`,
      ]
    : []

const failures: Cause = ({ bounds: a }, { bounds: b }, sign) =>
  isMoved(a.failedSeconds, b.failedSeconds, sign, a.seconds)
    ? [
        `Attempts that failed or were lost took ${secondsText(b.failedSeconds)} of slot time, ` +
          `${a.failedSeconds === 0 ? 'none' : secondsText(a.failedSeconds)} in the first run.`,
      ]
    : []

/** The class of idle time that changed most in that direction. */
const idleTime: Cause = ({ bounds: a }, { bounds: b }, sign) => {
  // Slots that wait for answers of a model are idle for that reason.
  if (a.unsized.length + b.unsized.length > 0) return []
  const moves = Object.entries(idleTexts).map(([reason, text]) => {
    const [before, now] = [a, b].map((one) => idleShare(one, reason as IdleReason))
    return { text, before: before ?? 0, now: now ?? 0 }
  })
  const [largest] = moves.toSorted((x, y) => sign * (y.now - y.before - (x.now - x.before)))
  if (largest === undefined || sign * (largest.now - largest.before) < noise) return []
  const { text, before, now } = largest
  return [
    `For ${percentText(now)} of its slots' time ${text}, ${percentText(before)} in the first run.`,
  ]
}

function idleShare({ slotSeconds, slots: all, seconds }: ReportData['bounds'], reason: IdleReason) {
  const { noSlotFitted, ...others } = slotSeconds
  return { ...others, ...noSlotFitted }[reason] / Math.max(1e-9, all * seconds)
}

const idleTexts: Readonly<Record<IdleReason, string>> = {
  noTaskReady: 'no task was ready',
  nameLimit: 'a ready task waited for the limit of its name',
  startingWorkers: 'a ready task waited for its worker to start',
  taskOverhead: 'a ready task was just being started',
  heldBack: 'a ready task waited for the scheduler',
  nodeAway: 'a node was away',
  cores: 'free slots had too few cores for the tasks that were ready',
  gpus: 'free slots lacked gpus for the tasks that were ready',
  memory: 'free slots lacked memory for the tasks that were ready',
  workers: 'all `workers` for functions were in use',
  processes: 'all `maxProcesses` for programs were in use',
  labels: 'free slots lacked the labels of the tasks that were ready',
}

const causes: readonly Cause[] = [slots, waits, path, failures, idleTime]

/**
 * The axis that the stream and all charts share. Long times in which nothing ran are folded: the
 * axis shows each as a narrow strip. A position on the axis is a number of seconds that leaves out
 * the folded times but includes the strips.
 */

import { computed, signal } from '@preact/signals'
import { endTime, head, startTime } from './views.ts'

export interface Fold {
  readonly from: number
  readonly to: number
  readonly reason: string
}

interface PlacedFold extends Fold {
  /** The position on the axis at which the narrow strip begins. */
  readonly at: number
}

export interface TimeAxis {
  readonly from: number
  readonly to: number
  readonly length: number
  readonly foldLength: number
  readonly folds: readonly PlacedFold[]
  toPosition(time: number): number
  toTime(position: number): number
}

/** The length of a strip, as a share of the time that is not folded. */
const foldShare = 0.02

function createAxis(from: number, to: number, allFolds: readonly Fold[]): TimeAxis {
  const inside = allFolds.filter((fold) => fold.from >= from && fold.to <= to)
  const folded = inside.reduce((sum, fold) => sum + fold.to - fold.from, 0)
  const foldLength = foldShare * (to - from - folded)
  let foldedSeconds = 0
  const folds = inside.map((fold): PlacedFold => {
    const at = fold.from - from - foldedSeconds
    foldedSeconds += fold.to - fold.from - foldLength
    return { ...fold, at }
  })
  const toPosition = (time: number): number => {
    let position = time - from
    for (const fold of folds) {
      if (time >= fold.to) position -= fold.to - fold.from - foldLength
      else if (time > fold.from) {
        return fold.at + (foldLength * (time - fold.from)) / (fold.to - fold.from)
      }
    }
    return position
  }
  const toTime = (position: number): number => {
    let time = from + position
    for (const fold of folds) {
      if (position >= fold.at + foldLength) time += fold.to - fold.from - foldLength
      else if (position > fold.at) {
        return fold.from + ((position - fold.at) / foldLength) * (fold.to - fold.from)
      }
    }
    return time
  }
  return { from, to, length: Math.max(1e-3, toPosition(to)), foldLength, folds, toPosition, toTime }
}

/** The start times of the folds that the user has opened. */
export const unfolded = signal<ReadonlySet<number>>(new Set())

export const axis = computed((): TimeAxis | null => {
  const [view, from, to] = [head.value, startTime.value, endTime.value]
  if (view === null || from === null || to === null) return null
  const folds = view.folds.filter((fold) => !unfolded.value.has(fold.from))
  return createAxis(from, Math.max(to, from + 1e-3), folds)
})

/** The visible times; `null` shows the whole run, even while it grows. */
export const zoom = signal<{ readonly from: number; readonly to: number } | null>(null)

/** The visible part of the axis, in positions. */
export const visible = computed((): { readonly from: number; readonly to: number } => {
  const [whole, range] = [axis.value, zoom.value]
  if (whole === null) return { from: 0, to: 1 }
  if (range === null) return { from: 0, to: whole.length }
  const from = Math.max(0, whole.toPosition(range.from))
  const to = Math.min(whole.length, whole.toPosition(range.to))
  return to > from ? { from, to } : { from: 0, to: whole.length }
})

const minVisibleSeconds = 1e-3

/** Shows a part of the axis, limited to what exists. */
export function showPart(from: number, length: number): void {
  const whole = axis.peek()
  if (whole === null) return
  const size = Math.max(minVisibleSeconds, length)
  if (size >= whole.length * 0.9999) {
    zoom.value = null
    return
  }
  const first = Math.min(Math.max(0, from), whole.length - size)
  zoom.value = { from: whole.toTime(first), to: whole.toTime(first + size) }
}

/** Multiplies the visible time by `factor` and keeps the place at `share` of the width. */
export function zoomBy(factor: number, share = 0.5): void {
  const { from, to } = visible.peek()
  const length = (to - from) * factor
  showPart(from + (to - from) * share - length * share, length)
}

/** Moves by a share of the visible time. */
export function pan(share: number): void {
  const { from, to } = visible.peek()
  showPart(from + (to - from) * share, to - from)
}

/** The width of the stream in pixels. All charts have this width. */
export const plotWidth = signal(1000)

/** The time below the pointer, which all charts mark. */
export const cursorTime = signal<number | null>(null)

const steps = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 28_800, 86_400,
]

/** The distance of ticks in seconds so that at most `max` fit. */
function tickStep(seconds: number, max: number): number {
  const smallest = seconds / Math.max(1, max)
  if (smallest > 1) {
    return steps.find((step) => step >= smallest) ?? 86_400 * Math.ceil(smallest / 86_400)
  }
  const power = 10 ** Math.floor(Math.log10(smallest))
  return power * ([1, 2, 5, 10].find((step) => step * power >= smallest * 0.999) ?? 10)
}

export interface Tick {
  readonly position: number
  readonly label: string
}

/** Ticks at round seconds of the run, at most `max`. Folded times have none. */
export function ticksOf(whole: TimeAxis, from: number, to: number, max: number): Tick[] {
  const step = tickStep(to - from, max)
  const ticks: Tick[] = []
  const seconds = (position: number): number => whole.toTime(position) - whole.from
  let at = Math.ceil(seconds(from) / step) * step
  for (let left = 4 * max; left > 0 && at <= seconds(to) + 1e-9; left--) {
    const position = whole.toPosition(whole.from + at)
    const fold = whole.folds.find(
      (one) => position >= one.at && position < one.at + whole.foldLength,
    )
    if (fold === undefined) {
      ticks.push({ position, label: tickText(at, step) })
      at += step
    } else at = Math.ceil((fold.to - whole.from + step * 1e-9) / step) * step
  }
  return ticks
}

/**
 * `0.25 s`, `15 s`, `2 m 30 s`, `1 h 05 m`: only as precise as the spacing of the ticks requires.
 */
function tickText(seconds: number, step: number): string {
  const digits = step >= 1 ? 0 : Math.min(6, Math.ceil(-Math.log10(step) - 1e-9))
  if (seconds < 60 || step < 1) return `${seconds.toFixed(digits)} s`
  const whole = Math.round(seconds)
  const [hours, minutes, rest] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60]
  const two = (value: number): string => String(value).padStart(2, '0')
  if (hours > 0)
    return rest === 0 ? `${hours} h ${two(minutes)} m` : `${hours}:${two(minutes)}:${two(rest)}`
  return rest === 0 ? `${minutes} m` : `${minutes} m ${two(rest)} s`
}

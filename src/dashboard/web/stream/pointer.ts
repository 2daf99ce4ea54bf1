/** The use of the pointer on the stream: select a time, move, zoom, point at a block, choose it. */

import { updateState } from '../state/fragment.ts'
import { axis, cursorTime, pan, unfolded, visible, zoom, zoomBy } from '../state/time-axis.ts'
import { startTime } from '../state/views.ts'

/** A pointer that moves less than this many pixels counts as a click. */
const clickPixels = 4

export interface PointerTarget {
  readonly element: HTMLElement
  /** Called with the position of the pointer over the plot, and with `null` when it leaves. */
  readonly point: (at: PlotPoint | null) => void
  /** Returns whether something is at the clicked position. */
  readonly choose: (at: PlotPoint) => boolean
}

/** Pixels from the left and the top of the plot. */
export interface PlotPoint {
  readonly x: number
  readonly y: number
}

/** The wall-clock time at a pixel of the plot. */
function timeAt(element: HTMLElement, x: number): number {
  const { from, to } = visible.peek()
  const share = Math.min(1, Math.max(0, x / Math.max(1, element.clientWidth)))
  return axis.peek()?.toTime(from + (to - from) * share) ?? 0
}

/** Selects the time between two wall-clock times. */
function select(one: number, other: number): void {
  const start = startTime.peek()
  if (start === null) return
  updateState({ from: Math.max(0, Math.min(one, other) - start), to: Math.max(one, other) - start })
}

interface Drag {
  readonly startX: number
  readonly startTime: number
  readonly isPan: boolean
  isMoving: boolean
  lastX: number
}

function placeOf(element: HTMLElement, event: MouseEvent): PlotPoint {
  const box = element.getBoundingClientRect()
  return { x: event.clientX - box.left, y: event.clientY - box.top }
}

function zoomByWheel(element: HTMLElement, event: WheelEvent): void {
  const { deltaX, deltaY, shiftKey } = event
  const isSideways = shiftKey || Math.abs(deltaX) > Math.abs(deltaY)
  // The page scrolls if there is nothing to zoom out of.
  if (zoom.peek() === null && (isSideways || deltaY > 0)) return
  event.preventDefault()
  const width = Math.max(1, element.clientWidth)
  if (isSideways) pan((deltaX === 0 ? deltaY : deltaX) / width)
  else zoomBy(2 ** (Math.max(-200, Math.min(200, deltaY)) / 200), placeOf(element, event).x / width)
}

/** Returns a function that removes the listeners. */
export function listenToPointer({ element, point, choose }: PointerTarget): () => void {
  let drag: Drag | null = null
  const down = (event: PointerEvent): void => {
    if (event.button > 1) return
    const { x } = placeOf(element, event)
    const isPan = event.shiftKey || event.button === 1
    drag = { startX: x, startTime: timeAt(element, x), isPan, isMoving: false, lastX: x }
    element.setPointerCapture(event.pointerId)
  }
  const move = (event: PointerEvent): void => {
    const place = placeOf(element, event)
    cursorTime.value = timeAt(element, place.x)
    point(drag?.isMoving === true ? null : place)
    if (drag === null) return
    drag.isMoving ||= Math.abs(place.x - drag.startX) >= clickPixels
    if (!drag.isMoving) return
    if (drag.isPan) pan((drag.lastX - place.x) / Math.max(1, element.clientWidth))
    else select(drag.startTime, timeAt(element, place.x))
    drag.lastX = place.x
  }
  const up = (event: PointerEvent): void => {
    const wasClick = drag !== null && !drag.isMoving
    drag = null
    if (!wasClick) return
    const place = placeOf(element, event)
    if (unfoldAt(timeAt(element, place.x)) || choose(place)) return
    updateState({ from: null, to: null })
  }
  const leave = (): void => {
    cursorTime.value = null
    point(null)
  }
  const listeners = new AbortController()
  const { signal } = listeners
  element.addEventListener('pointerdown', down, { signal })
  element.addEventListener('pointermove', move, { signal })
  element.addEventListener('pointerup', up, { signal })
  element.addEventListener('pointerleave', leave, { signal })
  const wheel = (event: WheelEvent): void => zoomByWheel(element, event)
  element.addEventListener('wheel', wheel, { passive: false, signal })
  return () => listeners.abort()
}

/** Unfolds the folded time that contains `time`, if there is one. */
function unfoldAt(time: number): boolean {
  const fold = axis.peek()?.folds.find(({ from, to }) => time > from && time < to)
  if (fold === undefined) return false
  unfolded.value = new Set([...unfolded.peek(), fold.from])
  return true
}

/** The keys that select a time: Shift and an arrow move the end of the selection. */
export function selectByKey(event: KeyboardEvent): void {
  const direction = { ArrowLeft: -1, ArrowRight: 1 }[event.key]
  const whole = axis.peek()
  if (!event.shiftKey || direction === undefined || whole === null) return
  event.preventDefault()
  const { from, to } = visible.peek()
  const step = (to - from) / 40
  if (keySelection === null || !keySelection.isCurrent()) {
    const middle = (from + to) / 2
    keySelection = { anchor: middle, end: middle, isCurrent: isSelected }
  }
  const end = Math.min(whole.length, Math.max(0, keySelection.end + direction * step))
  keySelection = { ...keySelection, end }
  select(whole.toTime(keySelection.anchor), whole.toTime(end))
}

let keySelection: { anchor: number; end: number; isCurrent(): boolean } | null = null

const isSelected = (): boolean => location.hash.includes('from=')

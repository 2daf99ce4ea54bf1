/** The labels of the time axis, and the marks of folded times. */

import { useLayoutEffect, useRef, useState } from 'preact/hooks'
import { secondsText } from '../../../views/readable.ts'
import { axis, type Fold, plotWidth, ticksOf, unfolded, visible } from '../state/time-axis.ts'

const labelWidth = 72
const markWidth = 80
/** The width of a character of a label. */
const digitWidth = 7

export function TimeTicks() {
  const [whole, { from, to }] = [axis.value, visible.value]
  const box = useRef<HTMLDivElement>(null)
  const [width, setWidth] = useState(plotWidth.peek())
  // On a narrow page, the charts are wider than the stream.
  useLayoutEffect(() => {
    const element = box.current
    if (element === null) return undefined
    const observer = new ResizeObserver(() => setWidth(element.clientWidth))
    observer.observe(element)
    return () => observer.disconnect()
  }, [whole === null])
  if (whole === null) return null
  const all = ticksOf(whole, from, to, Math.max(2, Math.floor(width / labelWidth)))
  const pixel = (to - from) / Math.max(1, width)
  const folds = whole.folds.filter(({ at }) => at + whole.foldLength > from && at < to)
  const middles = folds.map(({ at }) => at + whole.foldLength / 2)
  const ticks = all.filter((tick) => !isCovered(middles, tick, pixel, { from, to }))
  const left = (position: number): string => `${(100 * (position - from)) / (to - from)}%`
  return (
    <div class="ticks" ref={box}>
      {ticks.map(({ position, label }) => (
        <span key={position} aria-hidden="true" style={{ left: left(position) }}>
          {label}
        </span>
      ))}
      {folds.map((fold, at) => (
        <FoldMark key={fold.from} fold={fold} middle={left(middles[at] ?? 0)} />
      ))}
    </div>
  )
}

/** Whether a label would be cut at the right end, or is below the mark of a folded time. */
function isCovered(
  middles: readonly number[],
  { position, label }: { readonly position: number; readonly label: string },
  pixel: number,
  { from, to }: { readonly from: number; readonly to: number },
): boolean {
  if (position + (6 + digitWidth * label.length) * pixel > to) return true
  const edge = (markWidth / 2) * pixel
  return middles.some((middle) => {
    const away = (position - Math.max(from + edge, Math.min(middle, to - edge))) / pixel
    return away > -markWidth / 2 - labelWidth / 2 && away < markWidth / 2
  })
}

function FoldMark({ fold, middle }: { readonly fold: Fold; readonly middle: string }) {
  const length = secondsText(fold.to - fold.from)
  const edge = `${markWidth / 2}px`
  return (
    <button
      type="button"
      class="fold"
      // The mark is never cut at an end of the axis.
      style={{ left: `clamp(${edge}, ${middle}, 100% - ${edge})` }}
      title={`${length} left out: ${fold.reason}. Click to show.`}
      onClick={() => (unfolded.value = new Set([...unfolded.value, fold.from]))}
    >
      ⋯ {length}
    </button>
  )
}

/** The labels of the time axis, and the marks of folded times. */

import { useLayoutEffect, useRef, useState } from 'preact/hooks'
import { secondsText } from '../../../views/readable.ts'
import { axis, type TimeAxis, plotWidth, ticksOf, unfolded, visible } from '../state/time-axis.ts'

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
  const ticks = all.filter((tick) => !isCovered(whole, tick, pixel, to))
  const left = (position: number): string => `${(100 * (position - from)) / (to - from)}%`
  return (
    <div class="ticks" ref={box}>
      {ticks.map(({ position, label }) => (
        <span key={position} aria-hidden="true" style={{ left: left(position) }}>
          {label}
        </span>
      ))}
      <Folds whole={whole} left={left} />
    </div>
  )
}

/** Whether a label would be cut at the right end, or is below the mark of a folded time. */
function isCovered(
  whole: TimeAxis,
  { position, label }: { readonly position: number; readonly label: string },
  pixel: number,
  to: number,
): boolean {
  if (position + (6 + digitWidth * label.length) * pixel > to) return true
  return whole.folds.some(({ at }) => {
    const away = (position - at - whole.foldLength / 2) / pixel
    return away > -markWidth / 2 - labelWidth / 2 && away < markWidth / 2
  })
}

function Folds({
  whole,
  left,
}: {
  readonly whole: TimeAxis
  readonly left: (position: number) => string
}) {
  /** The mark is never cut at an end of the axis. */
  const middleOf = ({ at }: { readonly at: number }): string => {
    const [edge, middle] = [`${markWidth / 2}px`, left(at + whole.foldLength / 2)]
    return `clamp(${edge}, ${middle}, 100% - ${edge})`
  }
  return (
    <>
      {whole.folds.map((fold) => (
        <button
          key={fold.from}
          type="button"
          class="fold"
          style={{ left: middleOf(fold) }}
          title={`${secondsText(fold.to - fold.from)} left out: ${fold.reason}. Click to show.`}
          onClick={() => (unfolded.value = new Set([...unfolded.value, fold.from]))}
        >
          ⋯ {secondsText(fold.to - fold.from)}
        </button>
      ))}
    </>
  )
}

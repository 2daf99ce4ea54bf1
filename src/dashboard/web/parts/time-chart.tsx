/** Series over time on the axis of the stream, with the same cursor. */

import uPlot from 'uplot'
import type { ComponentChildren } from 'preact'
import { useEffect, useLayoutEffect, useRef } from 'preact/hooks'
import { effect } from '@preact/signals'
import { axis, cursorTime, visible } from '../state/time-axis.ts'
import { TimeTicks } from '../stream/time-ticks.tsx'

export interface Series {
  readonly label: string
  /** The name of a colour variable, such as `c0`. */
  readonly colour: string
  readonly values: readonly (number | null)[]
}

interface TimeChartProps {
  readonly label: string
  readonly times: readonly number[]
  readonly series: readonly Series[]
  /** The upper end of the vertical axis. Default: the largest value. */
  readonly max?: number
  readonly height: number
}

function TimeChart({ label, times, series, max, height }: TimeChartProps) {
  const box = useRef<HTMLDivElement>(null)
  const chart = useRef<uPlot | null>(null)
  const [whole, part] = [axis.value, visible.value]
  const colours = series.map(({ colour }) => colour).join(' ')
  useLayoutEffect(() => {
    const element = box.current
    if (element === null) return undefined
    const plot = createPlot(element, series, height, max)
    chart.current = plot
    const observer = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height }))
    observer.observe(element)
    const scheme = matchMedia('(prefers-color-scheme: dark)')
    const redraw = (): void => plot.redraw(false)
    scheme.addEventListener('change', redraw)
    return () => {
      observer.disconnect()
      scheme.removeEventListener('change', redraw)
      plot.destroy()
      chart.current = null
    }
  }, [colours, height, max])
  useLayoutEffect(() => {
    if (whole === null || chart.current === null) return
    const plot = chart.current
    plot.batch(() => {
      const values = series.map((one) => [...one.values])
      plot.setData([times.map((time) => whole.toPosition(time)), ...values], false)
      plot.setScale('x', { min: part.from, max: part.to })
    })
  })
  useSharedCursor(chart)
  return <div ref={box} class="chart" role="img" aria-label={label} />
}

interface ChartRowProps extends TimeChartProps {
  readonly title: string
  /** The largest value of the axis, as text. */
  readonly maxLabel: string
  /** Shown below the title. */
  readonly children?: ComponentChildren
}

export function ChartRow({ title, maxLabel, children, ...chart }: ChartRowProps) {
  return (
    <div class="chart-row">
      <div class="chart-label">
        <strong title={title}>{title}</strong>
        {children}
      </div>
      <div class="chart-plot">
        <span class="scale">{maxLabel}</span>
        <TimeChart {...chart} />
      </div>
    </div>
  )
}

/** The labels of the time axis, below the last chart of a panel. */
export const ChartTicks = () => (
  <div class="chart-ticks">
    <TimeTicks />
  </div>
)

/** Moves the cursor of the chart to the time below the pointer, wherever the pointer is. */
function useSharedCursor(chart: { readonly current: uPlot | null }): void {
  useEffect(
    () =>
      effect(() => {
        const [time, whole, plot] = [cursorTime.value, axis.peek(), chart.current]
        if (plot === null || whole === null) return
        const left = time === null ? -10 : plot.valToPos(whole.toPosition(time), 'x')
        plot.setCursor({ left, top: 0 }, false)
      }),
    [],
  )
}

const colourOf = (element: Element, name: string): string =>
  getComputedStyle(element).getPropertyValue(`--${name}`).trim()

function createPlot(
  element: HTMLElement,
  series: readonly Series[],
  height: number,
  max: number | undefined,
): uPlot {
  const options: uPlot.Options = {
    width: Math.max(1, element.clientWidth),
    height,
    padding: [4, 0, 4, 0],
    legend: { show: false },
    cursor: { y: false, points: { show: false }, drag: { x: false, y: false } },
    scales: {
      x: { time: false, auto: false },
      y: { range: (_, _min, largest) => [0, max ?? Math.max(largest * 1.05, 1e-9)] },
    },
    axes: [
      { show: false },
      {
        show: true,
        size: 0,
        ticks: { show: false },
        values: () => [],
        splits: gridSplits,
        grid: grid(element),
      },
    ],
    series: [
      {},
      ...series.map(({ label, colour }): uPlot.Series => {
        return {
          label,
          width: 1.5,
          stroke: () => colourOf(element, colour),
          // A line needs two points, so a single measurement is drawn as a point.
          points: { show: (own, at) => countKnown(own.data[at]) === 1 },
        }
      }),
    ],
  }
  const plot = new uPlot(options, [[], ...series.map(() => [])], element)
  plot.over.addEventListener('pointermove', (event) => {
    const whole = axis.peek()
    if (whole !== null) cursorTime.value = whole.toTime(plot.posToVal(event.offsetX, 'x'))
  })
  plot.over.addEventListener('pointerleave', () => (cursorTime.value = null))
  return plot
}

const countKnown = (values: uPlot.AlignedData[number] | undefined): number =>
  Array.from(values ?? []).filter((value) => value !== null).length

const gridSplits = (_: uPlot, _axis: number, min: number, max: number): number[] => [
  min,
  (min + max) / 2,
  max,
]

const grid = (element: Element): uPlot.Axis.Grid => ({
  stroke: () => colourOf(element, 'line'),
  width: 1,
})

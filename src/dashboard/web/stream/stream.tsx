/** The stream: the work of each worker over time. A selected time range filters all panels. */

import { useLayoutEffect, useRef, useState } from 'preact/hooks'
import { computed } from '@preact/signals'
import type { StreamQuery } from '../state/views.ts'
import type { StreamView } from '../../protocol.ts'
import { nameColours } from '../../../views/texts/palette.ts'
import { NotShown } from '../parts/panel.tsx'
import { chosenTask, openTask, pageState } from '../state/fragment.ts'
import { colourIndex, runTimeText, safeText } from '../state/names.ts'
import { axis, cursorTime, plotWidth, visible, zoom, zoomBy } from '../state/time-axis.ts'
import { filter, panel, relatedTasks, startTime, useView } from '../state/views.ts'
import { TimeTicks } from './time-ticks.tsx'
import { Hover, type HoverTarget } from './hover.tsx'
import { Legend } from './legend.tsx'
import { type Colours, type Drawing, drawStream, findAt, readColours } from './draw.ts'
import { listenToPointer, type PlotPoint, selectByKey } from './pointer.ts'

/** Requests the visible times with a margin, in steps, so that a small move needs no request. */
const query = computed((): StreamQuery | null => {
  const [selected, whole, range] = [filter.value, axis.value, zoom.value]
  if (selected === null || whole === null) return null
  // The stream shows the whole run even while a time is selected.
  const { from: _from, to: _to, ...limits } = selected
  const cells = Math.ceil(plotWidth.value / 100) * 100
  if (range === null) return { kind: 'stream', filter: limits, range: {}, cells }
  const step = (range.to - range.from) / 4
  const from = Math.floor((range.from - step) / step) * step
  const to = Math.ceil((range.to + step) / step) * step
  return { kind: 'stream', filter: limits, range: { from, to }, cells: cells * 2 }
})

export function Stream() {
  const { view, error } = useView('stream', query.value)
  const isAlone = panel.value === 'stream'
  const isEmpty = view !== null && view.rows.length === 0
  return (
    <section class={`stream${isAlone ? ' alone' : ''}`} aria-label="Task stream">
      {error === '' ? null : <p class="empty bad">{safeText(error, 600)}</p>}
      {view === null && error === '' ? <p class="empty">Waiting for the server …</p> : null}
      {isEmpty ? <p class="empty">No task has started on a worker.</p> : null}
      {view === null || isEmpty ? null : <Lanes view={view} isAlone={isAlone} />}
    </section>
  )
}

/** Rows are high if there are few. */
const rowHeightOf = (rows: number, isAlone: boolean): number =>
  Math.max(14, Math.min(28, Math.floor((isAlone ? 560 : 240) / Math.max(1, rows))))

/** The label of a worker: without its backend if all rows have the same. */
function createShortLabel(rows: StreamView['rows']): (row: StreamView['rows'][number]) => string {
  const backends = new Set(rows.map(({ backend }) => backend))
  return ({ label, backend }) =>
    safeText(backends.size === 1 ? label.replace(`/${backend}/`, '/') : label)
}

function Lanes({ view, isAlone }: { readonly view: StreamView; readonly isAlone: boolean }) {
  const rowHeight = rowHeightOf(view.rows.length, isAlone)
  const shortLabel = createShortLabel(view.rows)
  return (
    <>
      <div class="tools">
        <Legend view={view} />
        <ZoomButtons />
      </div>
      <div class="lanes">
        <div class="lanes-scroll" tabIndex={-1}>
          <div class="names" aria-hidden="true">
            {view.rows.map((one, row) => (
              <div
                key={row}
                style={{ height: `${rowHeight}px`, lineHeight: `${rowHeight}px` }}
                title={safeText(one.label)}
              >
                <bdi>{shortLabel(one)}</bdi>
              </div>
            ))}
          </div>
          <Plot view={view} rowHeight={rowHeight} />
        </div>
        <TimeTicks />
      </div>
      <NotShown text={view.notShown} />
    </>
  )
}

function ZoomButtons() {
  const isWhole = zoom.value === null
  return (
    <span class="zoom">
      <button type="button" aria-label="Zoom in" onClick={() => zoomBy(0.5)}>
        +
      </button>
      <button type="button" aria-label="Zoom out" disabled={isWhole} onClick={() => zoomBy(2)}>
        −
      </button>
      <button type="button" disabled={isWhole} onClick={() => (zoom.value = null)}>
        Whole run
      </button>
    </span>
  )
}

function Plot({ view, rowHeight }: { readonly view: StreamView; readonly rowHeight: number }) {
  const plot = useRef<HTMLDivElement>(null)
  const canvas = useRef<HTMLCanvasElement>(null)
  const drawn = useRef<Drawing | null>(null)
  const [hover, setHover] = useState<HoverTarget | null>(null)
  const colours = useColours(plot)
  const width = plotWidth.value
  const whole = axis.value
  const drawing: Drawing | null =
    whole === null || colours === null
      ? null
      : {
          view,
          axis: whole,
          visible: visible.value,
          width,
          rowHeight,
          colours,
          colourOf: colourIndex,
          chosen: chosenTask.value,
          related: relatedTasks.value,
          name: pageState.value.name,
        }
  useLayoutEffect(() => {
    drawn.current = drawing
    if (drawing !== null && canvas.current !== null) paint(canvas.current, drawing)
  })
  useWidth(plot)
  useLayoutEffect(() => {
    const element = plot.current
    if (element === null) return undefined
    return listenToPointer({
      element,
      point: (at) => setHover(at === null ? null : targetAt(drawn.current, at)),
      choose: (at) => choose(drawn.current, at),
    })
  }, [])
  return (
    <div
      ref={plot}
      class="plot"
      role="group"
      tabIndex={0}
      aria-label={`Task stream of ${view.rows.length} rows. Shift and arrow keys select a time.`}
      style={{ height: `${view.rows.length * rowHeight}px` }}
      onKeyDown={selectByKey}
      data-blocks={view.blocks.length}
      data-cells={view.cells.length}
    >
      <canvas ref={canvas} role="img" aria-label="what each worker did when" />
      {drawing === null ? null : <Marks />}
      {hover === null ? null : <Hover target={hover} width={width} />}
    </div>
  )
}

function paint(element: HTMLCanvasElement, drawing: Drawing): void {
  const ratio = globalThis.devicePixelRatio
  const height = drawing.view.rows.length * drawing.rowHeight
  const [pixels, lines] = [Math.round(drawing.width * ratio), Math.round(height * ratio)]
  if (element.width !== pixels) element.width = pixels
  if (element.height !== lines) element.height = lines
  const context = element.getContext('2d')
  if (context === null) return
  context.setTransform(ratio, 0, 0, ratio, 0, 0)
  drawStream(context, drawing)
}

function targetAt(drawing: Drawing | null, at: PlotPoint): HoverTarget | null {
  const found = drawing === null ? null : findAt(drawing, at)
  return found === null ? null : { ...found, ...at }
}

function choose(drawing: Drawing | null, at: PlotPoint): boolean {
  const found = drawing === null ? null : findAt(drawing, at)
  if (found === null) return false
  if ('block' in found) openTask(found.block.task)
  return true
}

/** Keeps `plotWidth` at the width of the plot. */
function useWidth(plot: { readonly current: HTMLElement | null }): void {
  useLayoutEffect(() => {
    const element = plot.current
    if (element === null) return undefined
    const measure = (): void => {
      // While the page is laid out again, the plot may have no width.
      if (element.clientWidth > 0) plotWidth.value = element.clientWidth
    }
    const observer = new ResizeObserver(measure)
    observer.observe(element)
    measure()
    return () => observer.disconnect()
  }, [])
}

/** The colours of the style sheet, read again when the colour scheme changes. */
function useColours(plot: { readonly current: HTMLElement | null }): Colours | null {
  const [colours, setColours] = useState<Colours | null>(null)
  useLayoutEffect(() => {
    const scheme = matchMedia('(prefers-color-scheme: dark)')
    const read = (): void => {
      if (plot.current !== null) setColours(readColours(plot.current, nameColours))
    }
    read()
    scheme.addEventListener('change', read)
    return () => scheme.removeEventListener('change', read)
  }, [])
  return colours
}

/** The selected time, the replayed time and the line below the pointer. */
function Marks() {
  const [whole, start, { from, to, t }] = [axis.value, startTime.value, pageState.value]
  if (whole === null || start === null) return null
  const share = (time: number): number => {
    const visiblePart = visible.value
    return (100 * (whole.toPosition(time) - visiblePart.from)) / (visiblePart.to - visiblePart.from)
  }
  const limit = (percent: number): number => Math.min(100, Math.max(0, percent))
  const left = limit(from === null ? 0 : share(start + from))
  const right = limit(to === null ? 100 : share(start + to))
  const cursor = cursorTime.value
  return (
    <>
      {from === null && to === null ? null : (
        <>
          <div class="outside" style={{ left: 0, width: `${left}%` }} />
          <div class="outside" style={{ left: `${right}%`, right: 0 }} />
          <div class="selected" style={{ left: `${left}%`, width: `${right - left}%` }} />
        </>
      )}
      {t === null ? null : <div class="replayed" style={{ left: `${limit(share(start + t))}%` }} />}
      {cursor === null ? null : (
        <div class="cursor" style={{ left: `${limit(share(cursor))}%` }}>
          <span class={share(cursor) > 85 ? 'before' : undefined}>{runTimeText(cursor)}</span>
        </div>
      )}
    </>
  )
}

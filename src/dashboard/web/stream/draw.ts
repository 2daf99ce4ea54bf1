/** Draws the stream on a canvas: blocks for attempts, cells for many attempts, folds, outlines. */

import type { StreamBlock, StreamCell, StreamView } from '../../protocol.ts'
import type { TimeAxis } from '../state/time-axis.ts'

/** Colours that the style sheet defines, read once per change of the colour scheme. */
export interface Colours {
  readonly names: readonly string[]
  readonly bad: string
  readonly muted: string
  readonly line: string
  readonly background: string
  readonly text: string
}

export interface Drawing {
  readonly view: StreamView
  readonly axis: TimeAxis
  /** The visible part of the axis, in positions. */
  readonly visible: { readonly from: number; readonly to: number }
  readonly width: number
  readonly rowHeight: number
  readonly colours: Colours
  readonly colourOf: (name: string) => number
  readonly chosen: string | null
  /** Tasks that the chosen task depends on, and tasks that depend on it. */
  readonly related: ReadonlySet<string>
  /** The selected name. Blocks of other names are pale. */
  readonly name: string | null
}

export function drawStream(context: CanvasRenderingContext2D, drawing: Drawing): void {
  const { view, width, rowHeight, colours } = drawing
  context.clearRect(0, 0, width, view.rows.length * rowHeight)
  context.fillStyle = colours.line
  for (let row = 1; row < view.rows.length; row++) {
    context.globalAlpha = 0.5
    context.fillRect(0, row * rowHeight - 0.5, width, 1)
  }
  context.globalAlpha = 1
  drawFolds(context, drawing)
  for (const cell of view.cells) drawCell(context, cell, drawing)
  for (const block of view.blocks) drawBlock(context, block, drawing)
  for (const block of view.blocks) drawOutline(context, block, drawing)
}

/** The horizontal pixel of a time. */
function xOf({ axis, visible, width }: Drawing, time: number): number {
  return ((axis.toPosition(time) - visible.from) * width) / (visible.to - visible.from)
}

/** The free pixels above and below a block. */
const marginOf = (rowHeight: number): number => (rowHeight >= 20 ? 3 : 2)

/** The opacity of each phase. Phases in which the task does not run are paler. */
const phaseAlpha = { values: 0.14, queued: 0.2, starting: 0.4, running: 1, between: 0.2 } as const

const outcomeColour = (block: StreamBlock, { colours, colourOf }: Drawing): string => {
  const { outcome, name } = block
  if (outcome === 'failed' || outcome === 'retried' || outcome === 'lost') return colours.bad
  if (outcome === 'canceled' || outcome === 'interrupted') return colours.muted
  return colours.names[colourOf(name)] ?? colours.muted
}

function drawBlock(context: CanvasRenderingContext2D, block: StreamBlock, drawing: Drawing): void {
  const { rowHeight, width, name } = drawing
  const margin = marginOf(rowHeight)
  const [y, height] = [block.row * rowHeight + margin, rowHeight - 2 * margin]
  const first = block.phases[0]?.from ?? block.start
  if (xOf(drawing, Math.max(block.end, block.start)) < 0 || xOf(drawing, first) > width) return
  context.fillStyle = outcomeColour(block, drawing)
  const pale = name === null || name === block.name ? 1 : 0.15
  const phases = block.phases.length > 0 ? block.phases : [runningPhase(block)]
  for (const { kind, from, to } of phases) {
    const [left, right] = [xOf(drawing, from), xOf(drawing, to)]
    if (right < 0 || left > width) continue
    const isRunning = kind === 'running'
    // Waiting is drawn thinner than running, so that blocks of the same row stay apart.
    const inset = isRunning || kind === 'starting' ? 0 : height * 0.3
    const size = Math.max(isRunning ? 1 : 0, right - left - (right - left > 3 ? 0.75 : 0))
    context.globalAlpha = phaseAlpha[kind] * pale
    context.fillRect(left, y + inset, size, height - 2 * inset)
  }
  context.globalAlpha = 1
}

const runningPhase = ({ start, end }: StreamBlock) =>
  ({ kind: 'running', from: start, to: end }) as const

function drawOutline(
  context: CanvasRenderingContext2D,
  block: StreamBlock,
  drawing: Drawing,
): void {
  const { chosen, related, rowHeight, colours } = drawing
  const isChosen = block.task === chosen
  if (!isChosen && !related.has(block.task)) return
  const [left, right] = [xOf(drawing, block.start), xOf(drawing, block.end)]
  const y = block.row * rowHeight + 1
  context.strokeStyle = colours.text
  context.lineWidth = isChosen ? 2 : 1.25
  context.setLineDash(isChosen ? [] : [3, 2])
  context.strokeRect(left - 1, y, Math.max(3, right - left) + 2, rowHeight - 2)
  context.setLineDash([])
}

/** A cell's height is the share of busy time. Its lower part marks failed attempts. */
function drawCell(context: CanvasRenderingContext2D, cell: StreamCell, drawing: Drawing): void {
  const { rowHeight, colours, width } = drawing
  const [left, right] = [xOf(drawing, cell.start), xOf(drawing, cell.end)]
  if (right < 0 || left > width) return
  const full = rowHeight - 2 * marginOf(rowHeight)
  const seconds = cell.end - cell.start
  const share = seconds > 0 ? Math.min(1, cell.busySeconds / seconds) : 1
  const height = Math.max(1.5, full * share)
  const foot = cell.failed === 0 ? 0 : Math.max(1, (height * cell.failed) / cell.attempts)
  const bottom = (cell.row + 1) * rowHeight - marginOf(rowHeight)
  const size = Math.max(0.5, right - left)
  context.fillStyle = colours.names[0] ?? colours.muted
  context.fillRect(left, bottom - height, size, height)
  context.fillStyle = colours.bad
  if (foot > 0) context.fillRect(left, bottom - foot, size, foot)
}

function drawFolds(context: CanvasRenderingContext2D, drawing: Drawing): void {
  const { axis, view, rowHeight, colours } = drawing
  const height = view.rows.length * rowHeight
  for (const fold of axis.folds) {
    const [left, right] = [xOf(drawing, fold.from), xOf(drawing, fold.to)]
    context.fillStyle = colours.line
    context.globalAlpha = 0.6
    context.fillRect(left, 0, right - left, height)
    context.globalAlpha = 1
    context.strokeStyle = colours.muted
    context.lineWidth = 1
    context.setLineDash([4, 4])
    const middle = Math.round((left + right) / 2) + 0.5
    context.beginPath()
    context.moveTo(middle, 0)
    context.lineTo(middle, height)
    context.stroke()
    context.setLineDash([])
  }
}

/**
 * Returns the block at a point, or else the cell. Finds blocks near the point, too, because a block
 * may be narrower than a pixel.
 */
export function findAt(
  drawing: Drawing,
  { x, y }: { readonly x: number; readonly y: number },
): { readonly block: StreamBlock } | { readonly cell: StreamCell } | null {
  const { view, rowHeight } = drawing
  const row = Math.floor(y / rowHeight)
  let best: StreamBlock | null = null
  let distance = 3
  for (const block of view.blocks) {
    if (block.row !== row) continue
    const [left, right] = [xOf(drawing, block.start), xOf(drawing, block.end)]
    const away = x < left ? left - x : x > right ? x - right : 0
    if (away >= distance) continue
    best = block
    distance = away
    if (away === 0) break
  }
  if (best !== null) return { block: best }
  const cell = view.cells.find(
    (one) => one.row === row && xOf(drawing, one.start) <= x && x <= xOf(drawing, one.end),
  )
  return cell === undefined ? null : { cell }
}

export function readColours(element: Element, count: number): Colours {
  const style = getComputedStyle(element)
  const colour = (name: string): string => style.getPropertyValue(`--${name}`).trim()
  return {
    names: Array.from({ length: count }, (_, at) => colour(`c${at}`)),
    bad: colour('bad'),
    muted: colour('muted'),
    line: colour('line'),
    background: colour('bg'),
    text: colour('fg'),
  }
}

/** The text beside the pointer, which describes the block or cell below it. */

import type { StreamBlock, StreamCell } from '../../protocol.ts'
import { countText, percentText, secondsText } from '../../../views/readable.ts'
import { nameText, runTimeText, safeText } from '../state/names.ts'

export type HoverTarget = ({ readonly block: StreamBlock } | { readonly cell: StreamCell }) & {
  readonly x: number
  readonly y: number
}

export function Hover({ target, width }: { readonly target: HoverTarget; readonly width: number }) {
  const isRight = target.x > width / 2
  const place = isRight ? { right: `${width - target.x + 12}px` } : { left: `${target.x + 12}px` }
  return (
    <div class="hover" role="tooltip" style={{ ...place, top: `${target.y + 14}px` }}>
      {'block' in target ? <BlockText block={target.block} /> : <CellText cell={target.cell} />}
    </div>
  )
}

const phaseTexts = {
  values: 'waited for values',
  queued: 'waited for a slot',
  starting: 'started',
  running: 'ran',
  between: 'waited between attempts',
} as const

function BlockText({ block }: { readonly block: StreamBlock }) {
  const { name, task, attempt, outcome, start, end, phases } = block
  return (
    <>
      <strong>{nameText(name)}</strong> <span class="mono">{safeText(task, 60)}</span>
      <div>
        {outcome}, {secondsText(end - start)}
        {attempt > 1 ? `, attempt ${attempt}` : ''}
      </div>
      <div class="muted">
        {runTimeText(start)} to {runTimeText(end)}
      </div>
      {phases
        .filter(({ kind }) => kind !== 'running')
        .map(({ kind, from, to }) => (
          <div key={`${kind} ${from}`} class="muted">
            {phaseTexts[kind]} {secondsText(to - from)}
          </div>
        ))}
    </>
  )
}

function CellText({ cell }: { readonly cell: StreamCell }) {
  const { start, end, attempts, failed, busySeconds } = cell
  const share = end > start ? Math.min(1, busySeconds / (end - start)) : 1
  return (
    <>
      <strong>{countText(attempts, 'attempt')}</strong>
      <div>
        {failed > 0 ? `${countText(failed, 'failure')}, ` : ''}busy {percentText(share)}
      </div>
      <div class="muted">
        {runTimeText(start)} to {runTimeText(end)}. Zoom in for single tasks.
      </div>
    </>
  )
}

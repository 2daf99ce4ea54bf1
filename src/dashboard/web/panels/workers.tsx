/** Nodes and workers: which are here, which are busy, which were lost, and the allocations. */

import type { WorkersView } from '../../protocol.ts'
import { countText, numberText, secondsText } from '../../../views/readable.ts'
import { NotShown, PanelBody } from '../parts/panel.tsx'
import { Table } from '../parts/table.tsx'
import { TaskButton } from '../parts/task-button.tsx'
import { nameText, runTimeText, safeText } from '../state/names.ts'
import { filter, useView } from '../state/views.ts'

type Node = WorkersView['nodes'][number]
type Worker = WorkersView['workers'][number]

export function WorkersPanel() {
  const limits = filter.value
  const state = useView('workers', limits === null ? null : { kind: 'workers', filter: limits })
  return (
    <PanelBody state={state} emptyText={emptyText}>
      {(view) => (
        <>
          <Losses view={view} />
          {view.nodes.length === 0 ? null : (
            <>
              <h3>Nodes</h3>
              <Table
                caption="Nodes"
                isCaptionHidden
                columns={nodeColumns}
                rows={view.nodes}
                keyOf={nodeKey}
              />
            </>
          )}
          <h3>Workers</h3>
          {view.workers.length === 0 ? (
            <p class="empty">No worker has run a task.</p>
          ) : (
            <Table
              caption="Workers"
              isCaptionHidden
              columns={workerColumns}
              rows={view.workers}
              keyOf={({ id }) => id}
            />
          )}
          <Allocations view={view} />
          <NotShown text={view.notShown} />
        </>
      )}
    </PanelBody>
  )
}

const nodeKey = ({ nodeId, backend, joined }: Node): string => `${nodeId} ${backend} ${joined}`

const emptyText = ({ nodes, workers, allocations }: WorkersView): string | null =>
  nodes.length + workers.length + allocations.length === 0
    ? 'No node has joined, and no worker has run a task.'
    : null

function Losses({ view: { losses } }: { readonly view: WorkersView }) {
  if (losses.length === 0) return null
  return (
    <>
      <h3>{countText(losses.length, 'loss', 'losses')}</h3>
      <ul class="plain">
        {losses.map(({ time, text }) => (
          <li key={`${time} ${text}`}>
            <span class="muted n">{runTimeText(time)}</span> {safeText(text, 400)}
          </li>
        ))}
      </ul>
    </>
  )
}

function Allocations({ view: { allocations } }: { readonly view: WorkersView }) {
  if (allocations.length === 0) return null
  return (
    <>
      <h3>Allocations</h3>
      <ul class="plain">
        {allocations.map(({ title, facts }) => (
          <li key={title}>
            <strong>{safeText(title)}</strong>{' '}
            <span class="muted">{facts.map((fact) => safeText(fact)).join(', ')}</span>
          </li>
        ))}
      </ul>
    </>
  )
}

const percent = (value: number | null): string => (value === null ? '-' : `${Math.round(value)} %`)
const size = (value: number | null): string => (value === null ? '-' : numberText(value))

function NodeState({ node: { state, isFull, reason, left } }: { readonly node: Node }) {
  const text = isFull && state === 'here' ? 'full' : state
  return (
    <>
      <span class={`tag ${text}`}>{text}</span>
      {left === null ? '' : ` at ${runTimeText(left)}`}
      {reason === '' ? '' : `: ${safeText(reason, 120)}`}
    </>
  )
}

const nodeColumns = [
  { title: 'node', cell: ({ nodeId }: Node) => safeText(nodeId, 60) },
  { title: 'state', cell: (node: Node) => <NodeState node={node} /> },
  { title: 'backend', cell: ({ backend }: Node) => safeText(backend, 40) },
  { title: 'busy slots', isNumber: true, cell: ({ busySlots }: Node) => numberText(busySlots) },
  { title: 'cores', isNumber: true, cell: ({ cores }: Node) => size(cores) },
  { title: 'GPUs', isNumber: true, cell: ({ gpus }: Node) => size(gpus) },
  { title: 'memory MB', isNumber: true, cell: ({ memoryMb }: Node) => size(memoryMb) },
  { title: 'CPU used', isNumber: true, cell: ({ cpu }: Node) => percent(cpu) },
  { title: 'memory used', isNumber: true, cell: ({ memory }: Node) => percent(memory) },
  {
    title: 'joined',
    isNumber: true,
    cell: ({ joined }: Node) => (joined === null ? '-' : runTimeText(joined)),
  },
]

function Doing({
  worker: { state, task, taskName, taskSeconds, idleSeconds },
}: {
  readonly worker: Worker
}) {
  if (task === null) {
    const isIdle = state === 'idle' && idleSeconds !== null
    return <span class="muted">{isIdle ? `for ${secondsText(idleSeconds)}` : ''}</span>
  }
  return (
    <>
      {nameText(taskName)} <TaskButton uid={task} />
      {taskSeconds === null ? '' : ` for ${secondsText(taskSeconds)}`}
    </>
  )
}

const workerColumns = [
  { title: 'worker', cell: ({ id }: Worker) => safeText(id, 80) },
  { title: 'state', cell: ({ state }: Worker) => <span class={`tag ${state}`}>{state}</span> },
  { title: 'task', cell: (worker: Worker) => <Doing worker={worker} /> },
  { title: 'attempts', isNumber: true, cell: ({ attempts }: Worker) => numberText(attempts) },
  {
    title: 'failed',
    isNumber: true,
    cell: ({ failed }: Worker) => (
      <span class={failed === 0 ? 'zero' : 'bad'}>{numberText(failed)}</span>
    ),
  },
  { title: 'busy', isNumber: true, cell: ({ busyPercent }: Worker) => percent(busyPercent) },
]

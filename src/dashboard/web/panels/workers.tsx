/** Nodes and workers: which are here, which are busy, which were lost, and the allocations. */

import type { WorkersView } from '../../protocol.ts'
import { countText, numberText, secondsText } from '../../../views/readable.ts'
import { FilteredPanel, TaskButton } from '../parts/panel.tsx'
import { countColumn, idColumn, numberColumn, Table } from '../parts/table.tsx'
import { nameText, runTimeText, safeText } from '../state/names.ts'

type Node = WorkersView['nodes'][number]
type Worker = WorkersView['workers'][number]

export function WorkersPanel() {
  return (
    <FilteredPanel kind="workers" emptyText={emptyText}>
      {(view) => (
        <>
          <Losses view={view} />
          {view.nodes.length === 0 ? null : (
            <>
              <h3>Nodes</h3>
              <Table caption="Nodes" columns={nodeColumns} rows={view.nodes} keyOf={nodeKey} />
            </>
          )}
          <h3>Workers</h3>
          {view.workers.length === 0 ? (
            <p class="empty">No worker has run a task.</p>
          ) : (
            <Table
              caption="Workers"
              columns={workerColumns}
              rows={view.workers}
              keyOf={({ id }) => id}
            />
          )}
          <Allocations view={view} />
        </>
      )}
    </FilteredPanel>
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
  idColumn('node', ({ nodeId }: Node) => nodeId),
  { title: 'state', cell: (node: Node) => <NodeState node={node} /> },
  { title: 'backend', cell: ({ backend }: Node) => safeText(backend, 40) },
  countColumn<Node>('busy slots', ({ busySlots }) => busySlots),
  countColumn<Node>('cores', ({ cores }) => cores),
  countColumn<Node>('GPUs', ({ gpus }) => gpus),
  countColumn<Node>('memory MB', ({ memoryMb }) => memoryMb),
  numberColumn<Node>('CPU used', ({ cpu }) => percent(cpu)),
  numberColumn<Node>('memory used', ({ memory }) => percent(memory)),
  numberColumn<Node>('joined', ({ joined }) => (joined === null ? '-' : runTimeText(joined))),
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
  idColumn('worker', ({ id }: Worker) => id),
  { title: 'state', cell: ({ state }: Worker) => <span class={`tag ${state}`}>{state}</span> },
  { title: 'task', cell: (worker: Worker) => <Doing worker={worker} /> },
  countColumn<Worker>('attempts', ({ attempts }) => attempts),
  numberColumn<Worker>('failed', ({ failed }) => (
    <span class={failed === 0 ? 'muted' : 'bad'}>{numberText(failed)}</span>
  )),
  numberColumn<Worker>('busy', ({ busyPercent }) => percent(busyPercent)),
]

/** Nodes and workers: which are here, are busy or were lost, and the allocations. */

import type { WorkersView } from '../../protocol.ts'
import { numberText, secondsText } from '../../../views/readable.ts'
import { FilteredPanel, TaskButton } from '../parts/panel.tsx'
import { countColumn, idColumn, numberColumn, secondsColumn, Table } from '../parts/table.tsx'
import { updateState } from '../state/fragment.ts'
import { nameText, runTimeText, safeText } from '../state/names.ts'
import { WarningsTable } from './health.tsx'

type Node = WorkersView['nodes'][number]
type Worker = WorkersView['workers'][number]

export function WorkersPanel() {
  return (
    <FilteredPanel kind="workers" emptyText={emptyText}>
      {(view) => (
        <>
          <Warnings view={view} />
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

/** The panel of health has all warnings. */
const maxWarnings = 8

function Warnings({ view: { warnings } }: { readonly view: WorkersView }) {
  if (warnings.length === 0) return null
  return (
    <>
      <h3>Losses and changes</h3>
      <WarningsTable warnings={warnings.slice(0, maxWarnings)} />
      {warnings.length <= maxWarnings ? null : (
        <p class="muted not-shown">
          The latest {maxWarnings} of {numberText(warnings.length)}.{' '}
          <button type="button" class="link" onClick={() => updateState({ panel: 'health' })}>
            Show all
          </button>
        </p>
      )}
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

interface StateTextProps {
  readonly state: string
  readonly time: number | null
  readonly reason: string
}

/** A state, with when and why it began. */
function StateText({ state, time, reason }: StateTextProps) {
  return (
    <>
      <span class={`tag ${state}`}>{state === 'stayed' ? 'here until the end' : state}</span>
      {time === null ? '' : ` at ${runTimeText(time)}`}
      {reason === '' ? '' : `: ${safeText(reason, 120)}`}
    </>
  )
}

const nodeState = ({ state, isFull, left, reason }: Node) => (
  <StateText state={isFull && state === 'here' ? 'full' : state} time={left} reason={reason} />
)

const nodeColumns = [
  idColumn('node', ({ nodeId }: Node) => nodeId),
  { title: 'state', cell: nodeState },
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
  {
    title: 'state',
    cell: ({ state, lost, reason }: Worker) => (
      <StateText state={state} time={lost} reason={reason} />
    ),
  },
  { title: 'task', cell: (worker: Worker) => <Doing worker={worker} /> },
  secondsColumn<Worker>('age', ({ ageSeconds }) => ageSeconds),
  countColumn<Worker>('attempts', ({ attempts }) => attempts),
  numberColumn<Worker>('failed', ({ failed }) => (
    <span class={failed === 0 ? 'muted' : 'bad'}>{numberText(failed)}</span>
  )),
  numberColumn<Worker>('busy', ({ busyPercent }) => percent(busyPercent)),
]

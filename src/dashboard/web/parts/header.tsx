/** The header: the state and progress of the run, what limits it, and what is missing. */

import type { ComponentChildren } from 'preact'
import type { HeadView, ServingView } from '../../protocol.ts'
import { countText, numberText, rateText, secondsText } from '../../../views/readable.ts'
import { openTasks, pageState, showRecords, updateState } from '../state/fragment.ts'
import { safeText } from '../state/names.ts'
import { copyLink, saveReport, notice } from '../state/actions.ts'
import { isShowingKeys } from '../state/keyboard.ts'
import { connection, isPaused, rights } from '../state/view-client.ts'
import { head, replayTime, useView } from '../state/views.ts'

export function Header() {
  const at = replayTime.value
  useView('head', { kind: 'head', filter: at === null ? {} : { at } })
  const view = head.value
  return (
    <header>
      <div class="bar">
        <ConnectionDot />
        {pageState.value.record === null ? null : (
          <button type="button" class="link" onClick={showRecords}>
            Records
          </button>
        )}
        <h1>{view === null ? 'tutti' : safeText(view.sessionId)}</h1>
        {view === null ? null : <State view={view} />}
        <span class="space" />
        <Actions view={view} />
      </div>
      {view === null ? null : <Summary view={view} />}
    </header>
  )
}

const connectionTexts = {
  connecting: 'connecting',
  connected: 'connected',
  lost: 'connection lost, trying again',
  denied: 'a new link is needed',
} as const

function ConnectionDot() {
  const state = isPaused.value ? 'paused' : connectionTexts[connection.value]
  const kind = isPaused.value ? 'paused' : connection.value
  return (
    <span class={`dot ${kind}`} role="status" title={state}>
      <span class="hidden">{state}</span>
    </span>
  )
}

/** States of tasks that wait for values, for a limit of their name, or for a backend. */
const waitingStates = 'state:/created|submitted|not begun/'

function State({ view }: { readonly view: HeadView }) {
  const isReplay = replayTime.value !== null
  const state = isReplay ? 'replay' : view.reading === null ? view.state : 'reading'
  return <span class={`state ${state}`}>{view.serving === null ? state : 'serving'}</span>
}

function Actions({ view }: { readonly view: HeadView | null }) {
  const isReplay = pageState.value.t !== null
  const toggleReplay = (): void =>
    updateState({ t: isReplay ? null : (view?.durationSeconds ?? 0) })
  return (
    <span class="actions">
      <span role="status" class="muted">
        {notice.value}
      </span>
      <button
        type="button"
        aria-pressed={isPaused.value}
        onClick={() => (isPaused.value = !isPaused.value)}
      >
        Pause
      </button>
      {view === null || view.serving !== null ? null : (
        <button type="button" aria-pressed={isReplay} onClick={toggleReplay}>
          Replay
        </button>
      )}
      <button type="button" onClick={() => void copyLink()}>
        Copy link
      </button>
      {view !== null && rights.value.report ? (
        <button type="button" onClick={saveReport}>
          Save report
        </button>
      ) : null}
      <button type="button" aria-label="Keys" onClick={() => (isShowingKeys.value = true)}>
        ?
      </button>
    </span>
  )
}

function Summary({ view }: { readonly view: HeadView }) {
  const { serving } = view
  return (
    <div class="summary">
      <Verdict view={view} />
      {serving === null ? <TaskNumbers view={view} /> : <RequestNumbers {...serving} view={view} />}
    </div>
  )
}

function RequestNumbers({
  running,
  waiting,
  done,
  failed,
  batches,
  workers,
  view,
}: ServingView & { readonly view: HeadView }) {
  return (
    <dl class="numbers">
      <Term label="requests done">{numberText(done)}</Term>
      <Term label="failed" kind={failed === 0 ? undefined : 'bad'}>
        {numberText(failed)}
      </Term>
      <Term label="running">{numberText(running)}</Term>
      <Term label="waiting">{numberText(waiting)}</Term>
      <Term label="batches">{numberText(batches)}</Term>
      <Term label="workers">{numberText(workers)}</Term>
      <Term label="elapsed">{secondsText(view.durationSeconds)}</Term>
    </dl>
  )
}

function TaskNumbers({ view }: { readonly view: HeadView }) {
  const { counts, durationSeconds, etaSeconds, state } = view
  const left = etaSeconds === null ? '-' : `≈ ${secondsText(etaSeconds)}`
  return (
    <dl class="numbers">
      <Term label="done">
        {numberText(counts.done)}
        <small> / {numberText(counts.total)}</small>
      </Term>
      <Count label="failed" value={counts.failed} open={() => updateState({ panel: 'failures' })} />
      <Count
        label="running"
        value={counts.running}
        open={() => openTasks('state:running', 'ran')}
      />
      <Count
        label="queued"
        value={counts.queued}
        open={() => openTasks('state:queued', 'waited')}
      />
      <Count
        label="waiting"
        value={counts.waiting}
        open={() => openTasks(waitingStates, 'waited')}
      />
      {(['canceled', 'interrupted'] as const).map((label) =>
        counts[label] === 0 ? null : (
          <Count
            key={label}
            label={label}
            value={counts[label]}
            open={() => openTasks(`state:${label}`, 'order')}
          />
        ),
      )}
      <Term label="elapsed">{secondsText(durationSeconds)}</Term>
      {state === 'running' ? <Term label="left">{left}</Term> : null}
      <Rate rate={view.rate} />
    </dl>
  )
}

interface TermProps {
  readonly label: string
  readonly kind?: string | undefined
  readonly children: ComponentChildren
}

function Term({ label, kind, children }: TermProps) {
  return (
    <div class={kind}>
      <dt>{label}</dt>
      <dd>{children}</dd>
    </div>
  )
}

interface CountProps {
  readonly label: string
  readonly value: number
  readonly open: () => void
}

/** The number of tasks in a state. A click shows them. */
function Count({ label, value, open }: CountProps) {
  if (value === 0) return <Term label={label}>0</Term>
  const title = `show ${countText(value, `${label} task`)}`
  return (
    <Term label={label} kind={label === 'failed' ? 'bad' : undefined}>
      <button type="button" class="link" aria-label={title} onClick={open}>
        {numberText(value)}
      </button>
    </Term>
  )
}

function Rate({ rate }: { readonly rate: HeadView['rate'] }) {
  const { values } = rate
  const max = values.reduce((a, b) => Math.max(a, b), 0)
  if (max <= 0) return null
  const width = 120
  const points = values.map((value, at) => {
    const x = values.length === 1 ? width : (at * width) / (values.length - 1)
    return `${x.toFixed(1)},${(25 - (24 * value) / max).toFixed(1)}`
  })
  const latest = values.findLast((value) => value > 0) ?? 0
  const label = `ended tasks per second: at most ${rateText(max)}, lately ${rateText(latest)}`
  return (
    <Term kind="rate" label={`tasks/s, at most ${rateText(max)}`}>
      <svg viewBox={`0 0 ${width} 26`} width={width} height="26" role="img" aria-label={label}>
        <polyline points={points.join(' ')} />
      </svg>
    </Term>
  )
}

function Verdict({ view }: { readonly view: HeadView }) {
  const [first = '', ...others] = view.sentences
  return (
    <div class="verdict">
      <p class="lead">{safeText(view.verdict, 400)}</p>
      {first === '' ? null : (
        <details>
          <summary>
            <span>{safeText(first, 600)}</span>
          </summary>
          {others.map((sentence) => (
            <p key={sentence}>{safeText(sentence, 600)}</p>
          ))}
        </details>
      )}
    </div>
  )
}

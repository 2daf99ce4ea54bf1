/** The header: what runs, how far it is, what bounds it, and what the page misses of it. */

import type { HeadView } from '../../protocol.ts'
import { countText, numberText, rateText, secondsText } from '../../../views/readable.ts'
import { pageState, updateState } from '../state/fragment.ts'
import { safeText } from '../state/names.ts'
import { openTasks } from '../state/navigation.ts'
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
  return <span class={`state ${state}`}>{state}</span>
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
      {view === null ? null : (
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
  const { counts, durationSeconds, etaSeconds, state } = view
  return (
    <div class="summary">
      <Verdict view={view} />
      <dl class="numbers">
        <Number label="done" value={counts.done} total={counts.total} />
        <Number
          label="failed"
          value={counts.failed}
          isBad
          onOpen={() => updateState({ panel: 'failures' })}
        />
        <Number
          label="running"
          value={counts.running}
          onOpen={() => openTasks('state:running', 'ran')}
        />
        <Number
          label="queued"
          value={counts.queued}
          onOpen={() => openTasks('state:queued', 'waited')}
        />
        <Number
          label="waiting"
          value={counts.waiting}
          onOpen={() => openTasks(waitingStates, 'waited')}
        />
        {counts.canceled > 0 ? (
          <Number
            label="canceled"
            value={counts.canceled}
            onOpen={() => openTasks('state:canceled', 'order')}
          />
        ) : null}
        {counts.interrupted > 0 ? (
          <Number
            label="interrupted"
            value={counts.interrupted}
            onOpen={() => openTasks('state:interrupted', 'order')}
          />
        ) : null}
        <div>
          <dt>elapsed</dt>
          <dd>{secondsText(durationSeconds)}</dd>
        </div>
        {state === 'running' ? (
          <div>
            <dt>left</dt>
            <dd>{etaSeconds === null ? '-' : `≈ ${secondsText(etaSeconds)}`}</dd>
          </div>
        ) : null}
        <Rate rate={view.rate} />
      </dl>
    </div>
  )
}

interface NumberProps {
  readonly label: string
  readonly value: number
  readonly total?: number
  readonly isBad?: boolean
  readonly onOpen?: () => void
}

function Number({ label, value, total, isBad = false, onOpen }: NumberProps) {
  const text = (
    <>
      {numberText(value)}
      {total === undefined ? null : <small> / {numberText(total)}</small>}
    </>
  )
  const isLink = onOpen !== undefined && value > 0
  return (
    <div class={isBad && value > 0 ? 'bad' : undefined}>
      <dt>{label}</dt>
      <dd>
        {isLink ? (
          <button
            type="button"
            class="link"
            aria-label={`show ${countText(value, `${label} task`)}`}
            onClick={onOpen}
          >
            {text}
          </button>
        ) : (
          text
        )}
      </dd>
    </div>
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
    <div class="rate">
      <dt>tasks/s, at most {rateText(max)}</dt>
      <dd>
        <svg viewBox={`0 0 ${width} 26`} width={width} height="26" role="img" aria-label={label}>
          <polyline points={points.join(' ')} />
        </svg>
      </dd>
    </div>
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

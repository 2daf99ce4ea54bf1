/** The drawer, a side panel for a task: what `tutti explain` and `tutti logs` print about it. */

import type { ComponentChildren } from 'preact'
import { useEffect, useRef } from 'preact/hooks'
import type { TaskDrawerView, TaskLink } from '../../protocol.ts'
import { updateState } from '../state/fragment.ts'
import { control, copyWithNotice } from '../state/actions.ts'
import { nameText, safeText } from '../state/names.ts'
import { rights } from '../state/view-client.ts'
import { filter, useView } from '../state/views.ts'
import { Code, Facts, PanelBody, TaskButton } from './panel.tsx'

const close = (): void => updateState({ task: null })

export function Drawer({ uid }: { readonly uid: string }) {
  const title = useRef<HTMLHeadingElement>(null)
  const limits = filter.value
  const state = useView('task', limits === null ? null : { kind: 'task', uid, filter: limits })
  useFocus(title, uid)
  return (
    <aside class="drawer" aria-labelledby="drawer-title">
      <div class="drawer-head">
        <h2 id="drawer-title" ref={title} tabIndex={-1}>
          <span class="mono">{safeText(uid, 80)}</span>
        </h2>
        <button type="button" onClick={() => void copyWithNotice(uid, 'Task id')}>
          Copy id
        </button>
        <button type="button" aria-label="Close the task" onClick={close}>
          ✕
        </button>
      </div>
      <PanelBody
        state={state}
        emptyText={(view) => (view.uid === uid ? null : 'Waiting for the server …')}
      >
        {(view) => <Content view={view} />}
      </PanelBody>
    </aside>
  )
}

/** Moves the focus into the drawer, and back to where it was when the drawer closes. */
function useFocus(title: { readonly current: HTMLElement | null }, uid: string): void {
  useEffect(() => {
    const before = document.activeElement
    return () => {
      if (before instanceof HTMLElement && before.isConnected) before.focus()
    }
  }, [])
  useEffect(() => title.current?.focus(), [uid])
}

function Content({ view }: { readonly view: TaskDrawerView }) {
  const { name, scope, state, isInterrupted, story, error, waitsFor } = view
  return (
    <>
      <p>
        <strong>{nameText(name)}</strong>
        {scope === '' ? '' : ` in ${safeText(scope, 80)}`},{' '}
        <span class={state === 'FAILED' ? 'bad' : undefined}>
          {isInterrupted ? 'interrupted' : safeText(state)}
        </span>
      </p>
      {view.isReading ? <p class="muted">The record is being read for this task …</p> : null}
      <ControlButtons view={view} />
      <Section title="Error" isShown={error.length > 0}>
        <Code lines={error} label="error" />
      </Section>
      <Output title="Standard error" output={view.stderr} />
      <Output title="Output" output={view.stdout} />
      <Section title="Waits for" isShown={waitsFor.length > 0}>
        <ul class="plain">
          {waitsFor.map((one) => (
            <li key={one}>{safeText(one, 400)}</li>
          ))}
        </ul>
      </Section>
      <Section title="What happened" isShown={story.length > 0}>
        <Code lines={story} label="what happened" />
      </Section>
      <Links title="Depends on" links={view.dependencies} />
      <Links title="Needed by" links={view.dependents} />
      <Section title="Attributes" isShown={view.attributes.length > 0}>
        <Facts facts={view.attributes.map(([title, value]) => ({ title, value }))} />
      </Section>
      <Commands view={view} />
    </>
  )
}

interface SectionProps {
  readonly title: string
  readonly isShown: boolean
  readonly children: ComponentChildren
}

function Section({ title, isShown, children }: SectionProps) {
  if (!isShown) return null
  return (
    <section>
      <h3>{title}</h3>
      {children}
    </section>
  )
}

function ControlButtons({ view: { uid, state } }: { readonly view: TaskDrawerView }) {
  const can = rights.value
  const hasEnded = state === 'DONE' || state === 'FAILED' || state === 'CANCELED'
  const canCancel = can.cancel && !hasEnded
  const canRetry = can.retry && (state === 'FAILED' || state === 'CANCELED')
  if (!canCancel && !canRetry) return null
  return (
    <div class="buttons">
      {canCancel ? (
        <button type="button" onClick={() => void control('cancel', [uid])}>
          Cancel task
        </button>
      ) : null}
      {canRetry ? (
        <button type="button" onClick={() => void control('retry', [uid])}>
          Retry task
        </button>
      ) : null}
    </div>
  )
}

function Output({
  title,
  output,
}: {
  readonly title: string
  readonly output: TaskDrawerView['stdout']
}) {
  const { text, isCut } = output ?? { text: '', isCut: false }
  return (
    <Section title={title} isShown={text !== ''}>
      {isCut ? <p class="muted">Only the end is shown.</p> : null}
      <Code lines={[text]} label={title} />
    </Section>
  )
}

const maxLinks = 100

function Links({ title, links }: { readonly title: string; readonly links: readonly TaskLink[] }) {
  return (
    <Section title={title} isShown={links.length > 0}>
      <ul class="plain">
        {links.slice(0, maxLinks).map(({ uid, name, state }) => (
          <li key={uid}>
            <TaskButton uid={uid} /> {nameText(name)}, {safeText(state)}
          </li>
        ))}
      </ul>
      {links.length > maxLinks ? <p class="muted">and {links.length - maxLinks} more</p> : null}
    </Section>
  )
}

function Commands({ view: { commands } }: { readonly view: TaskDrawerView }) {
  return (
    <Section title="Commands" isShown={commands.length > 0}>
      {commands.map(({ title, text }) => (
        <div key={title} class="command">
          <Code lines={[text]} label={title} />
          <button
            type="button"
            aria-label={`Copy: ${title}`}
            onClick={() => void copyWithNotice(text, 'Command')}
          >
            Copy
          </button>
        </div>
      ))}
    </Section>
  )
}

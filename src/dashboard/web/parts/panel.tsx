/** The parts of panels, including what they show while loading or if there is nothing to show. */

import type { ComponentChildren } from 'preact'
import { useId } from 'preact/hooks'
import { escapeControls } from '../../../views/readable.ts'
import type { Views } from '../../protocol.ts'
import { openTask, pageState, updateState } from '../state/fragment.ts'
import { safeText } from '../state/names.ts'
import type { ViewState } from '../state/view-client.ts'
import { type FilteredKind, useFilteredView } from '../state/views.ts'

interface PanelParts<View> {
  /** The sentence for a view without content; `null` if there is content. */
  readonly emptyText: (view: View) => string | null
  readonly children: (view: View) => ComponentChildren
}

interface PanelBodyProps<View> extends PanelParts<View> {
  readonly state: ViewState<View>
}

export function PanelBody<View extends object>({
  state,
  emptyText,
  children,
}: PanelBodyProps<View>) {
  const { view, error, isStale } = state
  if (error !== '') {
    return (
      <p role="alert" class="empty bad">
        {safeText(error, 1000)}
      </p>
    )
  }
  if (view === null) return <p class="empty">Waiting for the server …</p>
  const empty = emptyText(view)
  if (empty !== null) return <p class="empty">{empty}</p>
  return (
    <div aria-busy={isStale}>
      {children(view)}
      {'notShown' in view ? <NotShown text={String(view.notShown)} /> : null}
    </div>
  )
}

interface FilteredPanelProps<Kind extends FilteredKind> extends PanelParts<Views[Kind]> {
  readonly kind: Kind
}

/** A panel without options of its own: only the common filter limits it. */
export function FilteredPanel<Kind extends FilteredKind>({
  kind,
  ...parts
}: FilteredPanelProps<Kind>) {
  return <PanelBody state={useFilteredView(kind)} {...parts} />
}

/** A sentence of the server that says how much the panel leaves out. */
export function NotShown({ text }: { readonly text: string }) {
  return text === '' ? null : <p class="muted not-shown">{safeText(text, 400)}</p>
}

interface Fact {
  readonly title: string
  readonly value: string
  readonly isBad?: boolean
}

export function Facts({ facts }: { readonly facts: readonly Fact[] }) {
  return (
    <dl class="facts">
      {facts.map(({ title, value, isBad = false }) => (
        <div key={`${title} ${value}`} class={isBad ? 'bad' : undefined}>
          <dt>{safeText(title)}</dt>
          <dd>{safeText(value, 400)}</dd>
        </div>
      ))}
    </dl>
  )
}

/** A task's id as a button that opens its drawer. */
export function TaskButton({ uid }: { readonly uid: string }) {
  return (
    <button type="button" class="link mono" onClick={() => openTask(uid)}>
      {safeText(uid, 80)}
    </button>
  )
}

/** The maximum length of the text. The rest is cut. */
const maxCharacters = 20_000

interface CodeProps {
  readonly lines: readonly string[]
  readonly label: string
}

/** Lines of output or of an error, as text only. */
export function Code({ lines, label }: CodeProps) {
  if (lines.length === 0) return null
  const text = lines.join('\n').slice(0, maxCharacters)
  return (
    <pre tabIndex={0} role="region" aria-label={label}>
      {escapeControls(text, '\n\t')}
    </pre>
  )
}

interface QueryBarProps {
  readonly example: string
  readonly problem?: string
}

export function QueryBar({ example, problem = '' }: QueryBarProps) {
  const id = useId()
  return (
    <div class="query">
      <label for={id}>Query</label>
      <input
        id={id}
        type="search"
        value={pageState.value.q}
        placeholder={example}
        spellcheck={false}
        autocomplete="off"
        aria-invalid={problem !== ''}
        aria-describedby={`${id}-problem`}
        onInput={(event) => updateState({ q: event.currentTarget.value })}
      />
      <span id={`${id}-problem`} role="status" class="bad">
        {problem}
      </span>
    </div>
  )
}

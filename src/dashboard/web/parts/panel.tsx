/** What every panel shows while it waits, if its query failed, or if there is nothing to show. */

import type { ComponentChildren } from 'preact'
import type { Views } from '../../protocol.ts'
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

/** A panel that only the filter of all panels limits. */
export function FilteredPanel<Kind extends FilteredKind>({
  kind,
  ...parts
}: FilteredPanelProps<Kind>) {
  return <PanelBody state={useFilteredView(kind)} {...parts} />
}

/** How much is not shown, in words of the server. */
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
        <div key={title} class={isBad ? 'bad' : undefined}>
          <dt>{safeText(title)}</dt>
          <dd>{safeText(value, 400)}</dd>
        </div>
      ))}
    </dl>
  )
}

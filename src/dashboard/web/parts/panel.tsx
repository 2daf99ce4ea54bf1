/** What every panel shows while it waits, if its query failed, or if there is nothing to show. */

import type { ComponentChildren } from 'preact'
import { safeText } from '../state/names.ts'
import type { ViewState } from '../state/view-client.ts'

interface PanelBodyProps<View> {
  readonly state: ViewState<View>
  /** The sentence for a view without content; `null` if there is content. */
  readonly emptyText: (view: View) => string | null
  readonly children: (view: View) => ComponentChildren
}

export function PanelBody<View>({ state, emptyText, children }: PanelBodyProps<View>) {
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
  return <div aria-busy={isStale}>{children(view)}</div>
}

/** How much is not shown, in words of the server. */
export function NotShown({ text }: { readonly text: string }) {
  return text === '' ? null : <p class="muted not-shown">{safeText(text, 400)}</p>
}

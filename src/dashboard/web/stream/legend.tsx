/** The colours of the stream. A click on a name shows only its tasks. */

import type { StreamView } from '../../protocol.ts'
import { numberText } from '../../../views/readable.ts'
import { pageState, updateState } from '../state/fragment.ts'
import { colourClass, nameText } from '../state/names.ts'
import { head } from '../state/views.ts'

const maxNames = 8

export function Legend({ view }: { readonly view: StreamView }) {
  const names = Object.keys(head.value?.colours ?? {})
  const shown = names.slice(0, maxNames)
  const isCells = view.blocks.length === 0
  const { name: chosen } = pageState.value
  const toggle = (name: string): void => updateState({ name: name === chosen ? null : name })
  return (
    <ul class="legend">
      {isCells ? (
        <li>
          <i class="swatch c0" />
          busy, by the height
        </li>
      ) : (
        shown.map((name) => (
          <li key={name}>
            <button type="button" aria-pressed={name === chosen} onClick={() => toggle(name)}>
              <i class={`swatch ${colourClass(name)}`} />
              {nameText(name)}
            </button>
          </li>
        ))
      )}
      {isCells || names.length <= maxNames ? null : (
        <li class="muted">and {numberText(names.length - maxNames)} more names</li>
      )}
      <li>
        <i class="swatch red" />
        failed, retried or lost
      </li>
      {isCells ? null : (
        <li>
          <i class="swatch grey" />
          canceled or interrupted
        </li>
      )}
    </ul>
  )
}

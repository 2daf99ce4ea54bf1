/** A task's id as a button that opens its drawer. */

import { safeText } from '../state/names.ts'
import { openTask } from '../state/navigation.ts'

export function TaskButton({ uid }: { readonly uid: string }) {
  return (
    <button type="button" class="link mono" onClick={() => openTask(uid)}>
      {safeText(uid, 80)}
    </button>
  )
}

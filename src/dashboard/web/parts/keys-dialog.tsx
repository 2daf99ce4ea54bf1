/** The list of keys. */

import { useEffect, useRef } from 'preact/hooks'
import { isShowingKeys, keyList } from '../state/keyboard.ts'

export function KeysDialog() {
  const dialog = useRef<HTMLDialogElement>(null)
  const isOpen = isShowingKeys.value
  useEffect(() => {
    if (isOpen) dialog.current?.showModal()
    else dialog.current?.close()
  }, [isOpen])
  return (
    <dialog ref={dialog} aria-labelledby="keys-title" onClose={() => (isShowingKeys.value = false)}>
      <h2 id="keys-title">Keys</h2>
      <dl class="keys">
        {keyList.map(({ keys, what }) => (
          <div key={keys}>
            <dt>
              <kbd>{keys}</kbd>
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
      <form method="dialog">
        <button type="submit">Close</button>
      </form>
    </dialog>
  )
}

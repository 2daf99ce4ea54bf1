/** Notices about missing data and the reason, always visible at the top of the page. */

import { numberText, timeText } from '../../../views/readable.ts'
import { bytesText, safeText } from '../state/names.ts'
import { head, isFolder, stateOfHead } from '../state/views.ts'
import { connection, reconnect } from '../state/view-client.ts'

export function ServerNotices() {
  const view = head.value
  const { error } = stateOfHead.value
  const state = connection.value
  return (
    <div class="notices">
      {state === 'denied' ? (
        <p role="alert" class="notice bad">
          This browser has no access: the link was used before, or the dashboard was started again.
          Open a new link: the command or program that serves this page prints one.{' '}
          <button type="button" onClick={reconnect}>
            Try again
          </button>
        </p>
      ) : null}
      {state === 'lost' ? (
        <p role="alert" class="notice warning">
          The server does not answer. What you see may be out of date; the page connects again as
          soon as the server answers.
        </p>
      ) : null}
      {error === '' || isFolder.value ? null : (
        <p role="alert" class="notice warning">
          {safeText(error, 600)}
        </p>
      )}
      {view?.reading === null || view === null ? null : <Reading {...view.reading} />}
      {view === null || view.beginsAt === null ? null : (
        <p class="notice">
          Shown from {timeText(view.beginsAt.time)} on: {safeText(view.beginsAt.reason, 400)}
        </p>
      )}
      <Missing texts={view?.missing ?? []} />
    </div>
  )
}

function Missing({ texts }: { readonly texts: readonly string[] }) {
  const [first = '', ...others] = texts.map((one) => safeText(one, 400))
  if (first === '') return null
  if (others.length === 0) return <p class="notice warning">{first}</p>
  return (
    <details class="notice warning">
      <summary>
        {first} (and {numberText(others.length)} more)
      </summary>
      <ul>
        {others.map((one) => (
          <li key={one}>{one}</li>
        ))}
      </ul>
    </details>
  )
}

function Reading({ bytes, total }: { readonly bytes: number; readonly total: number }) {
  const part = `${bytesText(bytes)} of ${bytesText(total)}`
  const text = `Reading the record: ${part}. The numbers are about this part.`
  return (
    <p class="notice reading" role="status">
      <progress max={Math.max(1, total)} value={bytes} aria-label={text} /> {text}
    </p>
  )
}

/** The query bar of tasks and events. The query is applied while it is written. */

import { useId } from 'preact/hooks'
import { pageState, updateState } from '../state/fragment.ts'

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

/** Failures in groups, each with one complete example. */

import { useState } from 'preact/hooks'
import type { FailuresPanelView } from '../../protocol.ts'
import { countText, numberText } from '../../../views/readable.ts'
import { Code, FilteredPanel, TaskButton } from '../parts/panel.tsx'
import { control, copyWithNotice } from '../state/actions.ts'
import { colourClass, nameText, runTimeText, safeText } from '../state/names.ts'
import { rights } from '../state/view-client.ts'

type Group = FailuresPanelView['groups'][number]

/** The examples of further groups are closed, so that a page of many groups stays short. */
const openExamples = 5

export function FailuresPanel() {
  return (
    <FilteredPanel
      kind="failures"
      emptyText={({ groups }) => (groups.length === 0 ? 'No task has failed.' : null)}
    >
      {({ groups }) => (
        <ol class="groups">
          {groups.map((group, at) => (
            <GroupItem key={group.number} group={group} isOpen={at < openExamples} />
          ))}
        </ol>
      )}
    </FilteredPanel>
  )
}

interface GroupItemProps {
  readonly group: Group
  readonly isOpen: boolean
}

function GroupItem({ group, isOpen }: GroupItemProps) {
  // Only the first order of the groups counts, because their order changes during a run.
  const [isFirst] = useState(isOpen)
  const { number, errorType, message, name, count, firstTask, isConsequence, example } = group
  const { firstTime, lastTime } = group
  const times =
    count === 1
      ? `at ${runTimeText(firstTime)}`
      : `${runTimeText(firstTime)} to ${runTimeText(lastTime)}`
  return (
    <li>
      <h3>
        <span class="count">{numberText(count)} ×</span>{' '}
        <span class="bad">{safeText(errorType, 80)}</span> {safeText(message, 300)}
      </h3>
      <p class="muted">
        <i class={`swatch ${colourClass(name)}`} />
        {nameText(name)}, {times}
        {isConsequence ? ', a consequence of another failure' : ''}. Example:{' '}
        <TaskButton uid={firstTask} />
      </p>
      <details open={isFirst}>
        <summary class="muted">Error and output</summary>
        <Code lines={example} label={`example ${number} of ${errorType}`} />
      </details>
      <GroupTasks group={group} />
    </li>
  )
}

const maxListed = 200

function GroupTasks({ group: { tasks, count } }: { readonly group: Group }) {
  const [isOpen, setOpen] = useState(false)
  const canRetry = rights.value.retry
  return (
    <>
      <div class="buttons">
        <button type="button" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
          List {countText(Math.min(count, tasks.length), 'task')}
        </button>
        <button
          type="button"
          onClick={() => void copyWithNotice(tasks.join('\n'), countText(tasks.length, 'task id'))}
        >
          Copy ids
        </button>
        {canRetry ? (
          <button type="button" onClick={() => void control('retry', tasks)}>
            Retry {countText(tasks.length, 'task')}
          </button>
        ) : null}
      </div>
      {isOpen ? (
        <p class="task-list">
          {tasks.slice(0, maxListed).map((uid) => (
            <TaskButton key={uid} uid={uid} />
          ))}
          {count > tasks.length ? (
            <span class="muted">and {numberText(count - tasks.length)} more</span>
          ) : null}
        </p>
      ) : null}
    </>
  )
}

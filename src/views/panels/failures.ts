/** Failures: failed tasks grouped by name, error type and message. Constant size. */

import { stages } from '../lifecycle.ts'
import { type Panel, textOf, type ViewEvent } from '../panel.ts'

/** Failures with the same cause. */
export interface FailureGroup {
  readonly errorType: string
  readonly message: string
  readonly name: string
  /** The first task that failed so. */
  readonly firstTask: string
  count: number
}

export interface FailuresState {
  readonly groups: Map<string, FailureGroup>
  /** Failures that found no group because there were too many. */
  ungrouped: number
}

export interface FailuresQuery {
  /** How many groups to show, the largest first. */
  readonly limit: number
}

export interface FailuresView {
  readonly groups: readonly FailureGroup[]
  /** Groups that are not shown. */
  readonly otherGroups: number
  readonly ungrouped: number
}

const mostGroups = 1000
/** Longer texts are cut, and failures that differ only beyond it are one group. */
const longestText = 2000

export const failures: Panel<FailuresState, FailuresQuery, FailuresView> = {
  create: () => ({ groups: new Map(), ungrouped: 0 }),

  take(state, event, { stage, before, after }) {
    if (stage === stages.failed && after !== before) group(state, event)
  },

  show({ groups, ungrouped }, { limit }) {
    const largest = [...groups.values()].toSorted((a, b) => b.count - a.count).slice(0, limit)
    return { groups: largest, otherGroups: groups.size - largest.length, ungrouped }
  },
}

function group(state: FailuresState, event: ViewEvent): void {
  const errorType = cut(event.attributes['error_type'])
  const message = cut(event.attributes['error_message'])
  const name = cut(event.attributes['executable'])
  const key = JSON.stringify([name, errorType, message])
  const known = state.groups.get(key)
  if (known !== undefined) known.count++
  else if (state.groups.size < mostGroups) {
    const firstTask = event.task_id ?? ''
    state.groups.set(key, { errorType, message, name, firstTask, count: 1 })
  } else state.ungrouped++
}

const cut = (value: unknown): string => textOf(value).slice(0, longestText)

/** How tasks end that cannot run: because of a dependency, a stranger's handle, or a ring. */

import { ValueError } from '../foundation/errors.ts'
import { TaskCanceledError, TaskFailedError } from '../foundation/task-errors.ts'
import type { HeldEnd } from '../core/entry.ts'
import { DependencyFailedError } from './dependency-failed-error.ts'
import type { EngineHandle, HandleOwner } from './handle.ts'

/** Dependents of a failed task fail, those of a canceled one are canceled. */
export function fateOf(handle: EngineHandle, dependency: EngineHandle): HeldEnd {
  const { error } = dependency
  if (error instanceof TaskFailedError) {
    return { kind: 'fail', error: new DependencyFailedError(handle.uid, error) }
  }
  // Chains may be long: all that follow name the first, whose reason is the only one that counts.
  const first = dependency.canceledWith ?? dependency
  handle.canceledWith = first
  const why = first.error instanceof TaskCanceledError ? first.error.reason : 'it did not end well'
  return { kind: 'cancel', reason: `${label(first)} was canceled: ${why}` }
}

export function foreignHandleError(handle: EngineHandle, owner: HandleOwner): ValueError {
  const whose = `belongs to the workflow engine ${handle.owner.id}, not to ${owner.id}`
  return new ValueError(`${label(handle)} ${whose}`, {
    code: 'ForeignHandleError',
    field: 'args',
    hint: 'Await it, and pass its value.',
  })
}

/** Of a long ring, so many at its beginning and at its end are named. */
const mostNamed = 4

/** `ring` begins and ends with the same handle. */
export function cycleError(ring: readonly EngineHandle[]): ValueError {
  const isLong = ring.length > 2 * mostNamed + 1
  const named = isLong
    ? [...ring.slice(0, mostNamed).map(label), '…', ...ring.slice(-mostNamed).map(label)]
    : ring.map(label)
  return new ValueError(`tasks wait for each other: ${named.join(' -> ')}`, {
    code: 'DependencyCycleError',
    field: 'args',
    hint: 'A handle was put into an argument after the call that it depends on.',
  })
}

const label = ({ name, uid }: EngineHandle): string => `${name} (${uid})`

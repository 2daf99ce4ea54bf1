/** How tasks end that cannot run: because of a dependency, a stranger's handle, or a ring. */

import { ValueError } from '../foundation/errors.ts'
import { TaskCanceledError, TaskFailedError } from '../foundation/task-errors.ts'
import type { HeldEnd } from '../session/entry.ts'
import { DependencyFailedError } from './dependency-failed-error.ts'
import type { EngineHandle, HandleOwner } from './handle.ts'

/** Dependents of a failed task fail, those of a canceled one are canceled. */
export function fateOf({ uid }: EngineHandle, dependency: EngineHandle): HeldEnd {
  const { error } = dependency
  if (error instanceof TaskFailedError) {
    return { kind: 'fail', error: new DependencyFailedError(uid, error) }
  }
  const why = error instanceof TaskCanceledError ? error.reason : 'it did not end well'
  return { kind: 'cancel', reason: `${label(dependency)} was canceled: ${why}` }
}

export function foreignHandleError(handle: EngineHandle, owner: HandleOwner): ValueError {
  const whose = `belongs to the workflow engine ${handle.owner.id}, not to ${owner.id}`
  return new ValueError(`${label(handle)} ${whose}`, {
    code: 'ForeignHandleError',
    field: 'args',
    hint: 'Await it, and pass its value.',
  })
}

/** `ring` begins and ends with the same handle. */
export function cycleError(ring: readonly EngineHandle[]): ValueError {
  return new ValueError(`tasks wait for each other: ${ring.map(label).join(' -> ')}`, {
    code: 'DependencyCycleError',
    field: 'args',
    hint: 'A handle was put into an argument after the call that it depends on.',
  })
}

const label = ({ name, uid }: EngineHandle): string => `${name} (${uid})`

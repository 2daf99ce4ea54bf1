/** The errors of tasks that cannot run, because a dependency failed or an argument is invalid. */

import type { UndispatchedOutcome } from '../core/entry.ts'
import { registerErrorClasses, messageOf, ValueError } from '../foundation/errors.ts'
import { errorTypeOf, TaskCanceledError, TaskFailedError } from '../foundation/task-errors.ts'
import type { EngineHandle, HandleOwner } from './handle.ts'

/**
 * From a task's error, returns the error of the dependency that caused it. `null` if it is the
 * error of the root task, or if it came from another thread or process.
 */
let dependencyErrorOf: (error: TaskFailedError) => TaskFailedError | null

/** The task never ran, because one of its direct or indirect dependencies failed. */
export class DependencyFailedError extends TaskFailedError {
  /** The uid of the task that failed first. */
  readonly rootUid: string
  /** The original error that the root task threw. */
  readonly rootCause: unknown
  readonly #dependencyError: TaskFailedError

  /** `dependencyError` is the error of the direct dependency. */
  constructor(uid: string, dependencyError: TaskFailedError) {
    const root = findRoot(dependencyError)
    const what = `${errorTypeOf(root.cause)}: ${messageOf(root.cause)}`
    const uids = uidsToRoot(dependencyError, maxShownUids)
    const path = [...uids, ...(uids.length < maxShownUids ? [] : ['…'])].toReversed()
    const pathText = path.length > 1 ? ` (${path.join(' -> ')})` : ''
    const message = `task ${uid} cannot run${pathText}: ${root.uid} failed: ${what}`
    super(message, { uid, cause: root.cause })
    this.rootUid = root.uid
    this.rootCause = root.cause
    this.#dependencyError = dependencyError
  }

  /** The uids of the tasks from the root task to this task. */
  get path(): readonly string[] {
    return [...uidsToRoot(this.#dependencyError, Infinity).toReversed(), this.uid]
  }

  static {
    dependencyErrorOf = (error) => (#dependencyError in error ? error.#dependencyError : null)
  }
}

registerErrorClasses({ DependencyFailedError })

const maxShownUids = 8

function findRoot(error: TaskFailedError): { readonly uid: string; readonly cause: unknown } {
  if (error instanceof DependencyFailedError) return { uid: error.rootUid, cause: error.rootCause }
  return { uid: error.uid, cause: error.cause ?? error }
}

function uidsToRoot(error: TaskFailedError, max: number): string[] {
  const uids: string[] = []
  let next: TaskFailedError | null = error
  while (next !== null && uids.length < max) {
    const following = dependencyErrorOf(next)
    if (following !== null || !(next instanceof DependencyFailedError)) uids.push(next.uid)
    else uids.push(...next.path.toReversed())
    next = following
  }
  return uids.slice(0, max)
}

/**
 * Returns the outcome of a task whose dependency did not succeed. The task fails if the dependency
 * failed, and is canceled if the dependency was canceled.
 */
export function toDependencyFailure(
  handle: EngineHandle,
  dependency: EngineHandle,
): UndispatchedOutcome {
  const { error } = dependency
  if (error instanceof TaskFailedError) {
    return { kind: 'fail', error: new DependencyFailedError(handle.uid, error) }
  }
  // Names only the first canceled task, because nested reasons would grow with the length of the
  // chain.
  const first = dependency.canceledWith ?? dependency
  handle.canceledWith = first
  const why = first.error instanceof TaskCanceledError ? first.error.reason : 'it did not succeed'
  return { kind: 'cancel', reason: `${label(first)} was canceled: ${why}` }
}

export function foreignHandleError(handle: EngineHandle, owner: HandleOwner): ValueError {
  const problem = `belongs to the workflow engine ${handle.owner.id}, not to ${owner.id}`
  return new ValueError(`${label(handle)} ${problem}`, {
    code: 'ForeignHandleError',
    field: 'args',
    hint: 'Await it, and pass its value.',
  })
}

/** A message about a long cycle names only this many tasks at each end. */
const maxNamedAtEnd = 4

/** `cycle` begins and ends with the same handle. */
export function cycleError(cycle: readonly EngineHandle[]): ValueError {
  const isLong = cycle.length > 2 * maxNamedAtEnd + 1
  const labels = isLong
    ? [...cycle.slice(0, maxNamedAtEnd).map(label), '…', ...cycle.slice(-maxNamedAtEnd).map(label)]
    : cycle.map(label)
  return new ValueError(`tasks wait for each other: ${labels.join(' -> ')}`, {
    code: 'DependencyCycleError',
    field: 'args',
    hint: 'A handle was added to an argument after the call, and depends on that call.',
  })
}

const label = ({ name, uid }: EngineHandle): string => `${name} (${uid})`

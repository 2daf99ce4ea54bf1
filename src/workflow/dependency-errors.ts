/** Errors of tasks that cannot run, because a dependency failed or an argument is invalid. */

import type { UndispatchedEnd } from '../core/entry.ts'
import { markErrors, messageOf, ValueError } from '../foundation/errors.ts'
import { errorTypeOf, TaskCanceledError, TaskFailedError } from '../foundation/task-errors.ts'
import type { EngineHandle, HandleOwner } from './handle.ts'

/** The task never ran, because a task that it depends on, directly or indirectly, failed. */
export class DependencyFailedError extends TaskFailedError {
  /** The uid of the task that failed first. */
  readonly rootUid: string
  /** The original error that the root task threw. */
  readonly rootCause: unknown
  readonly #via: TaskFailedError

  /** `dependency` is the error of the direct dependency. */
  constructor(uid: string, dependency: TaskFailedError) {
    const root = rootOf(dependency)
    const what = `${errorTypeOf(root.cause)}: ${messageOf(root.cause)}`
    const steps = stepsOf(dependency, maxInMessage)
    const way = [...steps, ...(steps.length < maxInMessage ? [] : ['…'])].toReversed()
    const through = way.length > 1 ? ` (${way.join(' -> ')})` : ''
    const message = `task ${uid} cannot run${through}: ${root.uid} failed: ${what}`
    super(message, { uid, cause: root.cause })
    this.rootUid = root.uid
    this.rootCause = root.cause
    this.#via = dependency
  }

  /** The uids of the tasks from the root task to this task. */
  get path(): readonly string[] {
    return [...stepsOf(this.#via, Infinity).toReversed(), this.uid]
  }

  /** The next error towards the root; `null` at the root. Iterate, because chains can be long. */
  static viaOf(error: TaskFailedError): TaskFailedError | null {
    // An error that came from another thread or process has no private fields.
    return #via in error ? error.#via : null
  }
}

markErrors({ DependencyFailedError })

const maxInMessage = 8

interface Root {
  readonly uid: string
  readonly cause: unknown
}

function rootOf(error: TaskFailedError): Root {
  if (error instanceof DependencyFailedError) return { uid: error.rootUid, cause: error.rootCause }
  return { uid: error.uid, cause: error.cause ?? error }
}

/** The uids from the given error towards the root, `max` at most. */
function stepsOf(error: TaskFailedError, max: number): string[] {
  const steps: string[] = []
  for (
    let next: TaskFailedError | null = error;
    next !== null && steps.length < max;
    next = DependencyFailedError.viaOf(next)
  ) {
    const isRoot = DependencyFailedError.viaOf(next) === null
    if (isRoot && next instanceof DependencyFailedError) steps.push(...next.path.toReversed())
    else steps.push(next.uid)
  }
  return steps.slice(0, max)
}

/** A dependent of a failed task fails; a dependent of a canceled task is canceled. */
export function toDependencyFailure(
  handle: EngineHandle,
  dependency: EngineHandle,
): UndispatchedEnd {
  const { error } = dependency
  if (error instanceof TaskFailedError) {
    return { kind: 'fail', error: new DependencyFailedError(handle.uid, error) }
  }
  // Name only the first canceled task: nested reasons would grow with the length of the chain.
  const first = dependency.canceledWith ?? dependency
  handle.canceledWith = first
  const why = first.error instanceof TaskCanceledError ? first.error.reason : 'it did not succeed'
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

/** A message about a long cycle names this many tasks at its start and at its end. */
const maxNamed = 4

/** `cycle` begins and ends with the same handle. */
export function cycleError(cycle: readonly EngineHandle[]): ValueError {
  const isLong = cycle.length > 2 * maxNamed + 1
  const named = isLong
    ? [...cycle.slice(0, maxNamed).map(label), '…', ...cycle.slice(-maxNamed).map(label)]
    : cycle.map(label)
  return new ValueError(`tasks wait for each other: ${named.join(' -> ')}`, {
    code: 'DependencyCycleError',
    field: 'args',
    hint: 'A handle was added to an argument after the call, and depends on that call.',
  })
}

const label = ({ name, uid }: EngineHandle): string => `${name} (${uid})`

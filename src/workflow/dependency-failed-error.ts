/** How a task ends that waited for one that failed. */

import { messageOf } from '../foundation/errors.ts'
import { errorTypeOf, TaskFailedError } from '../foundation/task-errors.ts'

/** The task never ran: one that it needs, directly or through others, failed. */
export class DependencyFailedError extends TaskFailedError {
  /** The task at the beginning that failed by itself. */
  readonly rootUid: string
  /** What that task failed with: the original error, as its function threw it. */
  readonly rootCause: unknown
  readonly #via: TaskFailedError

  /** `dependency` is the error of the task that this one waited for. */
  constructor(uid: string, dependency: TaskFailedError) {
    const root = rootOf(dependency)
    const what = `${errorTypeOf(root.cause)}: ${messageOf(root.cause)}`
    const steps = stepsOf(dependency, mostInMessage)
    const way = [...steps, ...(steps.length < mostInMessage ? [] : ['…'])].toReversed()
    super(`task ${uid} cannot run: ${[...way, uid].join(' -> ')}: ${root.uid} failed: ${what}`, {
      uid,
      cause: root.cause,
    })
    this.rootUid = root.uid
    this.rootCause = root.cause
    this.#via = dependency
  }

  /** The uids from the task that failed to this one. */
  get path(): readonly string[] {
    return [...stepsOf(this.#via, Infinity).toReversed(), this.uid]
  }

  /** The next error towards the root. Chains may be long, so nobody recurses. */
  static viaOf(error: TaskFailedError): TaskFailedError | null {
    return error instanceof DependencyFailedError ? error.#via : null
  }
}

const mostInMessage = 8

interface Root {
  readonly uid: string
  readonly cause: unknown
}

function rootOf(error: TaskFailedError): Root {
  if (error instanceof DependencyFailedError) return { uid: error.rootUid, cause: error.rootCause }
  return { uid: error.uid, cause: error.cause ?? error }
}

/** From the given one towards the root. */
function stepsOf(error: TaskFailedError, most: number): string[] {
  const steps: string[] = []
  for (
    let next: TaskFailedError | null = error;
    next !== null && steps.length < most;
    next = DependencyFailedError.viaOf(next)
  ) {
    steps.push(next.uid)
  }
  return steps
}

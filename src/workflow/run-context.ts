/** Runs each body in the scope and block in which its handle was created. */

import { AsyncLocalStorage } from 'node:async_hooks'
import type { OpenScope } from './scopes.ts'

/** Where a handle was created. Handles that its body creates inherit the context. */
export interface RunContext {
  /** The uid of the task whose body runs, if chosen; another engine may use the same uid. */
  readonly uid: string | null
  /** Appended to chosen uids that an earlier attempt has taken; empty in the first attempt. */
  readonly uidSuffix: string
  readonly scope: OpenScope | null
  readonly block: BlockAttempt | null
  /**
   * Rows of the recorded tasks whose values the enclosing bodies receive; `null` if one of them
   * runs again, because calls inside may then receive different values.
   */
  readonly inputs: readonly number[] | null
  readonly place: BlockPath
}

/** Identifies one attempt of a body, for the calls that it makes. */
export class BlockPath {
  /** Distinguishes equal bodies; empty outside of bodies and if the body is not recorded. */
  readonly text: string
  #numbers: Map<string, number> | null = null

  constructor(text: string) {
    this.text = text
  }

  /** Numbers the calls with this key, from 1. */
  count(key: string): number {
    this.#numbers ??= new Map()
    const number = (this.#numbers.get(key) ?? 0) + 1
    this.#numbers.set(key, number)
    return number
  }
}

/** A task that was created inside a block. */
interface ChildTask {
  cancel(reason: string): unknown
}

/** One attempt of the body of a block. Tasks created by the body belong to this attempt only. */
export interface BlockAttempt {
  /** A name and uid instead of the handle, which would keep all predecessors in a chain alive. */
  readonly name: string
  readonly uid: string
  /** Tasks created in this attempt that have not ended. */
  readonly children: Set<ChildTask>
  /** Whether the attempt failed. Its body may still run, but its new tasks are canceled. */
  hasFailed: boolean
}

/** Calls a body inside its context. */
export type Enter = <T>(body: () => T) => T

export class RunContexts {
  readonly #storage = new AsyncLocalStorage<RunContext>()
  readonly #outside: RunContext = Object.freeze({
    uid: null,
    uidSuffix: '',
    scope: null,
    block: null,
    inputs: Object.freeze([]),
    place: new BlockPath(''),
  })
  /** The current attempt of each block, by the uid of the block. */
  readonly #attempts = new Map<string, BlockAttempt>()

  /** The context of the calling code. */
  get current(): RunContext {
    return this.#storage.getStore() ?? this.#outside
  }

  runIn<T>(context: RunContext, body: () => T): T {
    return this.#storage.run(context, body)
  }

  /** Calls the body of a block; each call is a new attempt. */
  runAttempt<T>(
    context: RunContext,
    { name, uid }: Pick<BlockAttempt, 'name' | 'uid'>,
    body: () => T,
  ): T {
    const block = { name, uid, children: new Set<ChildTask>(), hasFailed: false }
    this.#attempts.set(uid, block)
    return this.runIn({ ...context, block }, body)
  }

  /** Ends an attempt. Cancels the tasks that its body created, unless it succeeded. */
  endAttempt(uid: string, hasSucceeded: boolean): void {
    const attempt = this.#attempts.get(uid)
    if (attempt === undefined) return
    this.#attempts.delete(uid)
    if (hasSucceeded) return
    attempt.hasFailed = true
    for (const child of attempt.children) child.cancel(cancelReasonOf(attempt))
  }
}

/** The reason for canceling tasks that were created inside a failed block. */
export const cancelReasonOf = ({ name, uid }: BlockAttempt): string =>
  `its block ${name} (${uid}) did not succeed`

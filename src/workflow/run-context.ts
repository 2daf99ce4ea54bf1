/** Runs bodies in the scope and block in which their handles were created. */

import { AsyncLocalStorage } from 'node:async_hooks'
import type { OpenScope } from './scopes.ts'

/** Where a handle was created; handles created by its body inherit it. */
export interface RunContext {
  /** The task whose body runs, if its uid was chosen: another engine may have the same uid. */
  readonly uid: string | null
  /** For chosen uids that an earlier attempt of the body has taken; empty in the first attempt. */
  readonly uidSuffix: string
  readonly scope: OpenScope | null
  readonly block: BlockAttempt | null
  /**
   * Rows of the resumed record that the enclosing bodies get values from; `null` if one of these
   * runs again, because calls inside may then get different values.
   */
  readonly inputs: readonly number[] | null
  readonly place: BlockPath
}

/** Identifies one attempt of a body, for the calls that it makes. */
export class BlockPath {
  /** Identifies the body among equal ones; empty outside of bodies, and if it is not recorded. */
  readonly text: string
  #numbers: Map<string, number> | null = null

  constructor(text: string) {
    this.text = text
  }

  /** The number of its calls with this key so far, from 1. */
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
  /** Not the block's handle: blocks that start their successors would retain all earlier ones. */
  readonly name: string
  readonly uid: string
  /** Tasks created inside that have not ended. */
  readonly children: Set<ChildTask>
  /** Whether it failed. Its body may still run, but new tasks of it are canceled at once. */
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

  /** Ends an attempt; unless it succeeded, the tasks created by its body are canceled. */
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

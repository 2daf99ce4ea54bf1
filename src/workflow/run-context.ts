/** Runs bodies in the scope and the block in which their handles were made. */

import { AsyncLocalStorage } from 'node:async_hooks'
import type { OpenScope } from './scopes.ts'

/** Where a handle was made; what its body makes is made there as well. */
export interface RunContext {
  readonly scope: OpenScope | null
  readonly block: BlockAttempt | null
  /**
   * What the bodies around it get values from, by rows of the resumed record; `null` if one of
   * these runs again: what is made inside is made from other values.
   */
  readonly inputs: readonly number[] | null
  readonly place: BodyPlace
}

/** An attempt at a body, for the calls that it makes. */
export class BodyPlace {
  /** What the body is, and which of equal ones; empty outside, and if nobody records it. */
  readonly text: string
  #numbers: Map<string, number> | null = null

  constructor(text: string) {
    this.text = text
  }

  /** How many of its calls had this key, from 1. */
  count(key: string): number {
    this.#numbers ??= new Map()
    const number = (this.#numbers.get(key) ?? 0) + 1
    this.#numbers.set(key, number)
    return number
  }
}

/** A task that was made inside of a block. */
interface ChildTask {
  cancel(reason: string): unknown
}

/** One attempt at the body of a block: what the body makes belongs to this attempt alone. */
export interface BlockAttempt {
  /** Not the block's handle: blocks that start their successors would retain all before them. */
  readonly name: string
  readonly uid: string
  /** What was made inside and has not ended. */
  readonly children: Set<ChildTask>
  /** It did not succeed. Its body may still run, but what that makes is canceled at once. */
  hasFailed: boolean
}

/** Calls a body inside of its context. */
export type Enter = <T>(body: () => T) => T

export class RunContexts {
  readonly #storage = new AsyncLocalStorage<RunContext>()
  readonly #outside: RunContext = Object.freeze({
    scope: null,
    block: null,
    inputs: Object.freeze([]),
    place: new BodyPlace(''),
  })
  /** The current attempts at blocks, by the uids of the blocks. */
  readonly #attempts = new Map<string, BlockAttempt>()

  /** Of the calling code. */
  get current(): RunContext {
    return this.#storage.getStore() ?? this.#outside
  }

  runIn<T>(context: RunContext, body: () => T): T {
    return this.#storage.run(context, body)
  }

  /** For the body of a block: each call of it is an attempt of its own. */
  runAttempt<T>(
    context: RunContext,
    { name, uid }: Pick<BlockAttempt, 'name' | 'uid'>,
    body: () => T,
  ): T {
    const block = { name, uid, children: new Set<ChildTask>(), hasFailed: false }
    this.#attempts.set(uid, block)
    return this.runIn({ ...context, block }, body)
  }

  /** An attempt has ended; unless it succeeded, what its body made is canceled. */
  endAttempt(uid: string, hasSucceeded: boolean): void {
    const attempt = this.#attempts.get(uid)
    if (attempt === undefined) return
    this.#attempts.delete(uid)
    if (hasSucceeded) return
    attempt.hasFailed = true
    for (const child of attempt.children) child.cancel(cancelReasonOf(attempt))
  }
}

/** Why what was made inside of a block is canceled. */
export const cancelReasonOf = ({ name, uid }: BlockAttempt): string =>
  `its block ${name} (${uid}) did not succeed`

/** Runs bodies where their handles were made: in their scope, and in their block. */

import { AsyncLocalStorage } from 'node:async_hooks'
import type { Attempt, Run, RunContext } from './handle.ts'

const outside: RunContext = Object.freeze({ scope: null, block: null })

type Enter = <T>(body: () => T) => T

export class Bodies {
  readonly #context = new AsyncLocalStorage<RunContext>()
  /** The attempts at blocks that are under way, by the uids of the blocks. */
  readonly #attempts = new Map<string, Attempt>()
  readonly #cancel: (child: Run, reason: string) => void

  constructor(cancel: (child: Run, reason: string) => void) {
    this.#cancel = cancel
  }

  /** Where the calling code makes its handles. */
  get context(): RunContext {
    return this.#context.getStore() ?? outside
  }

  runIn<T>(context: RunContext, body: () => T): T {
    return this.#context.run(context, body)
  }

  /** How a body is entered that is no block. */
  enterIn(context: RunContext): Enter {
    return (body) => this.runIn(context, body)
  }

  /** How the body of a run is entered. */
  enter({ handle, context }: Run): Enter {
    const { run } = handle
    if (run === null || !handle.plan.isBlock) return this.enterIn(context)
    return (body) => this.#runBlock(run, body)
  }

  /** The attempt at a block's body has ended; badly, it takes with it what the body made. */
  endAttempt(uid: string, isWell: boolean): void {
    const attempt = this.#attempts.get(uid)
    if (attempt === undefined) return
    this.#attempts.delete(uid)
    if (isWell) return
    attempt.isOver = true
    for (const child of attempt.children) this.#cancel(child, reasonOf(attempt))
  }

  #runBlock<T>(run: Run, body: () => T): T {
    const { name, uid } = run.handle
    const attempt: Attempt = { name, uid, children: new Set(), isOver: false }
    this.#attempts.set(uid, attempt)
    return this.runIn({ scope: run.context.scope, block: attempt }, body)
  }
}

/** Why what was made inside of a block is canceled. */
export const reasonOf = ({ name, uid }: Attempt): string =>
  `its block ${name} (${uid}) did not end well`

/** Runs bodies where their handles were made: in their scope, and in their block. */

import { AsyncLocalStorage } from 'node:async_hooks'
import type { AnyTask } from '../backends/backend.ts'
import type { Run, RunContext } from './handle.ts'
import type { Plan } from './plan.ts'

const outside: RunContext = Object.freeze({ scope: null, block: null })

type Enter = <T>(body: () => T) => T

export class Bodies {
  readonly #context = new AsyncLocalStorage<RunContext>()
  readonly #onBlockFailed: (block: Run) => void

  /** `onBlockFailed` hears of every attempt that failed, before its session does. */
  constructor(onBlockFailed: (block: Run) => void) {
    this.#onBlockFailed = onBlockFailed
  }

  /** Where the calling code makes its handles. */
  get context(): RunContext {
    return this.#context.getStore() ?? outside
  }

  runIn<T>(context: RunContext, body: () => T): T {
    return this.#context.run(context, body)
  }

  /** How the body of a run is entered. */
  enter({ handle, context }: Run): Enter {
    const { run } = handle
    if (run === null || !handle.plan.isBlock) return (body) => this.runIn(context, body)
    return <T>(body: () => T) => this.#runBlock(run, body) as T
  }

  /** The task of a plain call: there is nothing to wait for and nothing to decide. */
  createTask(plan: Plan, receiver: unknown, args: readonly unknown[]): AnyTask | null {
    const { context } = this
    const enter: Enter = (body) => this.runIn(context, body)
    let made: AnyTask | null = null
    void plan.prepare({ uid: null, args, receiver, enter }, (task) => void (made = task))
    return made
  }

  async #runBlock(run: Run, body: () => unknown): Promise<unknown> {
    try {
      return await this.runIn({ scope: run.context.scope, block: run }, body)
    } catch (error) {
      this.#onBlockFailed(run)
      throw error
    }
  }
}

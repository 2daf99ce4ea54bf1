/** The changing side of a task: written by the ledger that claimed it, read by the task. */

import type { TuttiError } from '../foundation/errors.ts'
import type { TaskState } from './lifecycle.ts'

/** How a task ended. */
export type Outcome =
  | { readonly state: 'DONE'; readonly value: unknown }
  | { readonly state: 'FAILED' | 'CANCELED'; readonly error: TuttiError }

/** Keys of the methods by which a ledger claims a task and finds its record again. */
export const claimFor: unique symbol = Symbol('tutti.claim')
export const recordFor: unique symbol = Symbol('tutti.record')

export class TaskRecord {
  /** Who may write; `null` once the task has ended or the claim was withdrawn. */
  owner: object | null
  /** Whatever the owner keeps about the task while it is open. */
  entry: object | null = null
  state: TaskState = 'CREATED'
  /** The assigned backend. */
  backend: string | null = null
  value: unknown = undefined
  error: TuttiError | null = null
  #waiting: PromiseWithResolvers<unknown> | null = null

  constructor(owner: object) {
    this.owner = owner
  }

  get hasEnded(): boolean {
    return this.owner === null && this.state !== 'CREATED'
  }

  /** The task was not submitted after all, and can be claimed again. */
  get isWithdrawn(): boolean {
    return this.owner === null && this.state === 'CREATED'
  }

  /** The task has ended: its promise settles. */
  settle(outcome: Outcome): void {
    this.#close()
    this.state = outcome.state
    if (outcome.state === 'DONE') {
      this.value = outcome.value
      this.#waiting?.resolve(outcome.value)
    } else {
      this.error = outcome.error
      this.#waiting?.reject(outcome.error)
    }
    this.#waiting = null
  }

  /** Takes the claim back: awaiting rejects with `error`. */
  withdraw(error: unknown): void {
    this.#close()
    this.#waiting?.reject(error)
    this.#waiting = null
  }

  /** Created lazily: a rejection that nobody awaits is never unhandled. */
  promise(): Promise<unknown> {
    if (this.error !== null) return Promise.reject(this.error)
    if (this.hasEnded) return Promise.resolve(this.value)
    this.#waiting ??= Promise.withResolvers()
    return this.#waiting.promise
  }

  #close(): void {
    this.owner = null
    this.entry = null
  }
}

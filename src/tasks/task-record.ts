/**
 * The mutable part of a task. Its only writer is the `Ledger` of the session that claimed the task.
 */

import type { TuttiError } from '../foundation/errors.ts'
import type { TaskState } from './lifecycle.ts'
import type { FinishReason } from './spec.ts'

/** A program's exit code, and the part of its output that was kept. Unknown fields are absent. */
export interface ProgramOutput {
  readonly exitCode?: number
  readonly stdout?: string
  readonly stderr?: string
  /** `true` if the program wrote more output than was kept. */
  readonly stdoutTruncated?: true
  readonly stderrTruncated?: true
}

/** Details about the answers of a prompt besides their text. */
export interface AnswerFacts {
  /** Why the answers ended, one reason per prompt. */
  readonly finishReasons?: readonly FinishReason[]
}

/** How a task ended. */
export type Outcome =
  | { readonly state: 'DONE'; readonly value: unknown; readonly facts?: AnswerFacts | undefined }
  | {
      readonly state: 'FAILED' | 'CANCELED'
      readonly error: TuttiError
      /** The output of a program; absent if the task is not a program or never started. */
      readonly output?: ProgramOutput
    }

/**
 * A value or error with details that few tasks have. Recognized by its private field, because
 * `instanceof` may throw for values that tasks return.
 */
class DetailedResult {
  readonly result: unknown
  readonly #details: AnswerFacts & { readonly output?: ProgramOutput }

  static is(value: unknown): value is DetailedResult {
    return typeof value === 'object' && value !== null && #details in value
  }

  constructor(result: unknown, details: AnswerFacts & { readonly output?: ProgramOutput }) {
    this.result = result
    this.#details = details
  }

  static detailsOf(value: unknown): AnswerFacts & { readonly output?: ProgramOutput } {
    return DetailedResult.is(value) ? value.#details : noDetails
  }

  static resultOf(value: unknown): unknown {
    return DetailedResult.is(value) ? value.result : value
  }
}

const noDetails = Object.freeze({})

/** Keys of the methods by which a ledger claims a task and finds its record. */
export const claimRecord: unique symbol = Symbol('tutti.claim')
export const findRecord: unique symbol = Symbol('tutti.record')
/** The key of `Task`'s getter for `TaskRecord.endNumber`. */
export const endNumber: unique symbol = Symbol('tutti.endNumber')

let endedCount = 0

/** The owner of a record: a ledger, or the ledger's entry for the task. */
export interface TaskHolder {
  /** The ledger, which is the only object that may write the record. */
  readonly ledger: object
  /**
   * When the next attempt is due, in wall-clock seconds; `null` if the task does not wait for one.
   */
  readonly retryAt?: number | null
}

/** The state of a task. It is kept small, because a program may hold a million tasks. */
export class TaskRecord {
  /** The holder; `null` once the task has ended or the claim was withdrawn. */
  holder: TaskHolder | null
  state: TaskState = 'CREATED'
  backend: string | null = null
  /** The task's position in the order in which tasks of this process end; 0 before its end. */
  endNumber = 0
  /** The promise of an awaited task until the task ends; then its value or error. */
  #settlement: unknown = null

  constructor(holder: TaskHolder) {
    this.holder = holder
  }

  get hasEnded(): boolean {
    return this.holder === null && this.state !== 'CREATED'
  }

  /** Whether the claim was withdrawn, so that the task can be claimed again. */
  get isWithdrawn(): boolean {
    return this.holder === null && this.state === 'CREATED'
  }

  /** The value of the task; `undefined` unless the task is DONE. */
  get value(): unknown {
    if (!this.hasEnded || this.state !== 'DONE') return undefined
    return DetailedResult.resultOf(this.#settlement)
  }

  /** Why each answer of a prompt ended; `undefined` for any other task. */
  get finishReasons(): readonly FinishReason[] | undefined {
    return DetailedResult.detailsOf(this.#settlement).finishReasons
  }

  /** Why the task failed or was canceled; `null` for any other state. */
  get error(): TuttiError | null {
    if (!this.hasEnded || this.state === 'DONE') return null
    return DetailedResult.resultOf(this.#settlement) as TuttiError
  }

  /**
   * The output of a program that did not succeed. If a program succeeds, its output is the value.
   */
  get output(): ProgramOutput | undefined {
    return DetailedResult.detailsOf(this.#settlement).output
  }

  settle(outcome: Outcome): void {
    const waiting = this.#settlement as PromiseWithResolvers<unknown> | null
    this.holder = null
    this.state = outcome.state
    this.endNumber = ++endedCount
    if (outcome.state === 'DONE') {
      const { value, facts } = outcome
      const finishReasons = facts?.finishReasons
      const isPlain = finishReasons === undefined
      this.#settlement = isPlain ? value : new DetailedResult(value, { finishReasons })
      waiting?.resolve(value)
    } else {
      const { error, output } = outcome
      this.#settlement = output === undefined ? error : new DetailedResult(error, { output })
      waiting?.reject(error)
    }
  }

  /** Withdraws the claim, and rejects the promise with `error` if the task is awaited. */
  withdraw(error: unknown): void {
    const waiting = this.#settlement as PromiseWithResolvers<unknown> | null
    this.holder = null
    this.#settlement = null
    waiting?.reject(error)
  }

  /**
   * The promise is created lazily, so that a task that nobody awaits causes no unhandled rejection.
   */
  promise(): Promise<unknown> {
    if (this.error !== null) return Promise.reject(this.error)
    if (this.hasEnded) return Promise.resolve(this.value)
    this.#settlement ??= Promise.withResolvers<unknown>()
    return (this.#settlement as PromiseWithResolvers<unknown>).promise
  }
}

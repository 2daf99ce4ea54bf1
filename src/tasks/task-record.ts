/** The mutable part of a task. The ledger that claimed the task writes it, the task reads it. */

import type { TuttiError } from '../foundation/errors.ts'
import type { TaskState } from './lifecycle.ts'
import type { FinishReason } from './spec.ts'

/** A program's exit code, and the part of its output that was kept. Unknown fields are absent. */
export interface ProgramOutput {
  readonly exitCode?: number
  readonly stdout?: string
  readonly stderr?: string
  /** `true` if the program wrote more than was kept. */
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
      /** Set if the task is a program that started. */
      readonly output?: ProgramOutput
    }

/**
 * The settlement of a program that did not succeed, with its output. Recognized by its private
 * field, because `instanceof` may throw for values that tasks return.
 */
class UnsuccessfulProgram {
  readonly error: TuttiError
  readonly #output: ProgramOutput

  static is(value: unknown): value is UnsuccessfulProgram {
    return typeof value === 'object' && value !== null && #output in value
  }

  constructor(error: TuttiError, output: ProgramOutput) {
    this.error = error
    this.#output = output
  }

  get output(): ProgramOutput {
    return this.#output
  }
}

/** The settlement of a prompt: its answers, and why they ended. */
class PromptOutcome {
  readonly value: unknown
  readonly #finishReasons: readonly FinishReason[]

  static is(value: unknown): value is PromptOutcome {
    return typeof value === 'object' && value !== null && #finishReasons in value
  }

  constructor(value: unknown, finishReasons: readonly FinishReason[]) {
    this.value = value
    this.#finishReasons = finishReasons
  }

  get finishReasons(): readonly FinishReason[] {
    return this.#finishReasons
  }
}

/** Keys of the methods by which a ledger claims a task and finds its record. */
export const claimFor: unique symbol = Symbol('tutti.claim')
export const recordFor: unique symbol = Symbol('tutti.record')
/** Key of the task's number in the order in which tasks of the process end; 0 before it ends. */
export const endNumber: unique symbol = Symbol('tutti.endNumber')

let ends = 0

/** The owner of a record: a ledger, or the ledger's entry for the task. */
export interface TaskHolder {
  /** The only object that may write the record. */
  readonly ledger: object
  /** When the next attempt is due, in wall-clock seconds; `null` if the task waits for none. */
  readonly retryAt?: number | null
}

/** Kept small, because a program may hold a million tasks. */
export class TaskRecord {
  /** `null` once the task has ended or the claim was withdrawn. */
  holder: TaskHolder | null
  state: TaskState = 'CREATED'
  /** The assigned backend. */
  backend: string | null = null
  /** 1 for the first task of the process that ended; 0 until this task ends. */
  endNumber = 0
  /** The promise of an awaited task until the task ends; then its value or error. */
  #settlement: unknown = null

  constructor(holder: TaskHolder) {
    this.holder = holder
  }

  get hasEnded(): boolean {
    return this.holder === null && this.state !== 'CREATED'
  }

  /** Whether the task was not submitted after all, so that it can be claimed again. */
  get isWithdrawn(): boolean {
    return this.holder === null && this.state === 'CREATED'
  }

  /** `undefined` unless the task is DONE. */
  get value(): unknown {
    if (!this.hasEnded || this.state !== 'DONE') return undefined
    const settlement = this.#settlement
    return PromptOutcome.is(settlement) ? settlement.value : settlement
  }

  /** Why each answer of a prompt ended; `undefined` for any other task. */
  get finishReasons(): readonly FinishReason[] | undefined {
    const settlement = this.#settlement
    return PromptOutcome.is(settlement) ? settlement.finishReasons : undefined
  }

  /** `null` unless the task FAILED or was CANCELED. */
  get error(): TuttiError | null {
    if (!this.hasEnded || this.state === 'DONE') return null
    const settlement = this.#settlement as TuttiError | UnsuccessfulProgram
    return UnsuccessfulProgram.is(settlement) ? settlement.error : settlement
  }

  /** The output of a program that did not succeed. A successful program returns it as value. */
  get output(): ProgramOutput | undefined {
    const settlement = this.#settlement
    return UnsuccessfulProgram.is(settlement) ? settlement.output : undefined
  }

  /** Stores the outcome of the task, and settles its promise. */
  settle(outcome: Outcome): void {
    const waiting = this.#settlement as PromiseWithResolvers<unknown> | null
    this.holder = null
    this.state = outcome.state
    this.endNumber = ++ends
    if (outcome.state === 'DONE') {
      const { value, facts } = outcome
      const reasons = facts?.finishReasons
      this.#settlement = reasons === undefined ? value : new PromptOutcome(value, reasons)
      waiting?.resolve(outcome.value)
    } else {
      const { error, output } = outcome
      this.#settlement = output === undefined ? error : new UnsuccessfulProgram(error, output)
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

  /** Created lazily, so that a task that is not awaited causes no unhandled rejection. */
  promise(): Promise<unknown> {
    if (this.error !== null) return Promise.reject(this.error)
    if (this.hasEnded) return Promise.resolve(this.value)
    this.#settlement ??= Promise.withResolvers<unknown>()
    return (this.#settlement as PromiseWithResolvers<unknown>).promise
  }
}

/** The types of wrapped functions, of their arguments, and of the handles that they return. */

import type { TuttiError } from '../foundation/errors.ts'
import type { TaskState } from '../tasks/lifecycle.ts'

/** Marks handles for the compiler; has no runtime value. */
export declare const handleBrand: unique symbol

interface NotHandle {
  readonly [handleBrand]?: never
}

/**
 * A task of a workflow. Awaiting it returns its value. If it is passed to another call, it is a
 * dependency of that call and is replaced with its value. A failed handle that nobody awaits raises
 * no unhandledRejection.
 */
export interface Handle<T> extends Promise<T> {
  /** Distinguishes handles from values with the same members. For the compiler only. */
  readonly [handleBrand]: true
  readonly uid: string
  /** The display name: the option `name`, or the function's name. */
  readonly name: string
  readonly state: TaskState
  /** Why the task failed or was canceled; `null` otherwise. */
  readonly error: TuttiError | null
  /**
   * When the next attempt is due, in wall-clock seconds; `null` unless the task waits for a retry.
   */
  readonly retryAt: number | null
  /**
   * Cancels the task and its dependents. If the task is a block, also cancels the tasks that it has
   * created. Returns `false` if the task has ended or was already canceled.
   */
  cancel(reason?: string): boolean
}

/** A value, a handle for it, or an array or object that contains handles instead of values. */
export type Deferrable<T> = Handle<T> | DeferrableParts<T>

/**
 * `NotHandle` prevents a handle from matching an object type with the same members. Arrays are
 * matched before objects, because recursive types would not terminate otherwise.
 */
type DeferrableParts<T> = T extends OpaqueValue
  ? T & NotHandle
  : T extends readonly (infer E)[]
    ? number extends T['length']
      ? (T | readonly Deferrable<E>[]) & NotHandle
      : (T | { readonly [K in keyof T]: Deferrable<T[K]> }) & NotHandle
    : T extends object
      ? (T | { readonly [K in keyof T]: Deferrable<T[K]> }) & NotHandle
      : T

/** Types that are not searched for handles. */
type OpaqueValue =
  | ((...args: never[]) => unknown)
  | Date
  | RegExp
  | Error
  | ArrayBufferView
  | ArrayBufferLike
  | ReadonlyMap<unknown, unknown>
  | ReadonlySet<unknown>
  | PromiseLike<unknown>

/** The arguments of a function, each of which may be or contain a handle. */
export type DeferrableArgs<A extends readonly unknown[]> = {
  readonly [K in keyof A]: Deferrable<A[K]>
}

/** A wrapped function. It accepts handles as arguments, and returns a handle immediately. */
export interface TaskFunction<A extends readonly unknown[], T, Options extends object = object> {
  (...args: DeferrableArgs<A>): Handle<T>
  /**
   * Returns a copy of the function with some options replaced. A `uid` that is a string can be used
   * for one call only.
   *
   * @example
   * import { NoopBackend } from 'tutti'
   * import { WorkflowEngine } from 'tutti/workflow'
   *
   * await using flow = await WorkflowEngine.create({ backend: new NoopBackend() })
   * const parse = flow.functionTask(async (file: string) => file.length)
   * const page = parse.with({ uid: 'parse-a.pdf', name: 'parse a scan', retries: 2 })('a.pdf')
   */
  with(options: Options): TaskFunction<A, T, Options>
}

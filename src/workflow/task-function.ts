/** The types of wrapped functions, of their arguments, and of the handles that they return. */

import type { TuttiError } from '../foundation/errors.ts'
import type { TaskState } from '../tasks/lifecycle.ts'

/** A type-level brand without a runtime value. */
export declare const mark: unique symbol

/** Any type that is not a handle. */
interface NoHandle {
  readonly [mark]?: never
}

/**
 * A task of a workflow. Awaiting it returns its value. As an argument of another call, it is a
 * dependency and is replaced by its value. A failed handle that nobody awaits raises no
 * unhandledRejection.
 */
export interface Handle<T> extends Promise<T> {
  /** A brand for the compiler, which distinguishes handles from values with the same members. */
  readonly [mark]: true
  readonly uid: string
  /** The display name: the option `name`, or the function's name. */
  readonly name: string
  readonly state: TaskState
  /** Why the task failed or was canceled; `null` otherwise. */
  readonly error: TuttiError | null
  /** When the next attempt is due, in wall-clock seconds; `null` unless waiting for a retry. */
  readonly retryAt: number | null
  /**
   * Cancels the task and its dependents, and for a block also the tasks created inside. Returns
   * `false` if the task has ended or was already canceled.
   */
  cancel(reason?: string): boolean
}

/** A value, a handle for it, or an array or object with handles in place of values. */
export type Deferrable<T> = Handle<T> | DeferrableParts<T>

/**
 * `NoHandle` prevents a handle from matching an object type with the same members. Arrays are
 * matched before objects, because recursive types would not terminate otherwise.
 */
type DeferrableParts<T> = T extends Whole
  ? T & NoHandle
  : T extends readonly (infer E)[]
    ? number extends T['length']
      ? (T | readonly Deferrable<E>[]) & NoHandle
      : (T | { readonly [K in keyof T]: Deferrable<T[K]> }) & NoHandle
    : T extends object
      ? (T | { readonly [K in keyof T]: Deferrable<T[K]> }) & NoHandle
      : T

/** Types that are not searched for handles. */
type Whole =
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
   * Returns the same function with some options replaced, for one call or several. A `uid` that is
   * a string can be used for one call only.
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

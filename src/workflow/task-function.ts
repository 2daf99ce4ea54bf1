/** The types of wrapped functions, of their arguments, and of the handles that they return. */

import type { TuttiError } from '../foundation/errors.ts'
import type { TaskState } from '../tasks/lifecycle.ts'

/** A type-level brand: no such value exists. */
export declare const mark: unique symbol

/** Any type that is not a handle. */
interface NoHandle {
  readonly [mark]?: never
}

/**
 * A task of a workflow. Awaiting it gives its value; passed as an argument, it is a dependency and
 * is replaced by its value. A failed handle that is never awaited raises no unhandledRejection.
 */
export interface Handle<T> extends Promise<T> {
  /** Exists for the compiler only: distinguishes a handle from values with the same members. */
  readonly [mark]: true
  readonly uid: string
  /** The label for people: the option `name`, or the function's name. */
  readonly name: string
  readonly state: TaskState
  /** Why it failed or was canceled; `null` otherwise. */
  readonly error: TuttiError | null
  /** When its next attempt is due, in wall-clock seconds, while it waits for one; else `null`. */
  readonly retryAt: number | null
  /**
   * Cancels the task and its dependents, and for a block also the tasks created inside. Returns
   * `true` once, and `false` after its end.
   */
  cancel(reason?: string): boolean
}

/** A value, a handle of it, or an array or object that holds handles in place of values. */
export type Deferrable<T> = Handle<T> | DeferrableParts<T>

/**
 * `NoHandle` keeps a handle from passing for an object type with the same members. Arrays are
 * matched before objects: recursive types would not terminate otherwise.
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

/** The arguments of a function, each of which may be a handle or hold some. */
export type DeferrableArgs<A extends readonly unknown[]> = {
  readonly [K in keyof A]: Deferrable<A[K]>
}

/** A wrapped function: its arguments may be handles, and it returns a handle at once. */
export interface TaskFunction<A extends readonly unknown[], T, Options extends object = object> {
  (...args: DeferrableArgs<A>): Handle<T>
  /**
   * The same function with other options, for one call or several; options that it does not name
   * stay. A `uid` that is a string suits one call.
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

/** The types of arguments that may be handles, anywhere inside. No code. */

import type { Handle, NoHandle } from './handle.ts'

/** A value, a handle of it, or an array or object that has handles in the places of values. */
export type Deferrable<T> = Handle<T> | DeferrableParts<T>

/**
 * A handle has members like any object: it must not pass for an object of another type. Arrays
 * come before objects, since types that contain themselves would never end there.
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

/** What is never looked into. */
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

/** A wrapped function: its arguments may be handles, and it returns one at once. */
export type TaskFunction<A extends readonly unknown[], T> = (
  ...args: DeferrableArgs<A>
) => Handle<T>

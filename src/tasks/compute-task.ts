/** A program or a function to run. */

import { ExecutableFailedError } from '../foundation/task-errors.ts'
import {
  type AnyFunction,
  checkComputeOptions,
  ComputeFields,
  type ExecutableOptions,
  type FunctionOptions,
} from './compute-options.ts'
import type { TaskDefinition } from './define-task.ts'
import type { ResourceRequest } from './resources.ts'
import { Task } from './task.ts'

export type { ExecutableOptions, FunctionOptions } from './compute-options.ts'

/** What a program left behind. */
export interface ExecutableResult {
  readonly stdout: string
  readonly stderr: string
  readonly exitCode: number
}

/**
 * Makes a function's task of options that were checked, without checking anything again. The
 * arguments belong to it from now on. Not for applications.
 */
type LikeChecked = (
  fields: ComputeFields,
  args: readonly unknown[],
  inNameOf: Task | null,
) => ComputeTask<unknown>
type Repeatable = new (...given: Parameters<LikeChecked>) => ComputeTask<unknown>

export let likeChecked: LikeChecked

/**
 * Exactly one of `executable` and `function`. Options are checked at once; nothing runs before
 * submission.
 */
export class ComputeTask<
  T = ExecutableResult,
  A extends readonly unknown[] = readonly unknown[],
> extends Task<T> {
  readonly kind: 'compute' | 'function'
  /** The binary's path, or the function's name. */
  readonly executable: string
  readonly arguments: readonly string[]
  readonly function: AnyFunction | null
  readonly args: readonly unknown[]
  /** Where a worker finds the function; `null` for a program and for a closure. */
  readonly definition: TaskDefinition | null
  readonly cwd: string | null
  readonly env: Readonly<Record<string, string | undefined>> | null
  readonly stdin: string | Uint8Array | null
  readonly shell: boolean
  readonly captureStdio: { readonly stdout?: string; readonly stderr?: string } | null
  readonly resources: ResourceRequest

  static {
    likeChecked = (fields, args, inNameOf) =>
      new (ComputeTask as unknown as Repeatable)(fields, args, inNameOf)
  }

  constructor(options: ExecutableOptions & { readonly function?: never })
  constructor(options: FunctionOptions<T, A> & { readonly executable?: never })
  constructor(given: object, args: readonly unknown[] = [], inNameOf: Task | null = null) {
    const isChecked = given instanceof ComputeFields
    const { task, work, surroundings, resources } = isChecked ? given : checkComputeOptions(given)
    super(task, isChecked ? inNameOf : null)
    this.kind = work.kind
    this.executable = work.executable
    this.arguments = work.arguments
    this.function = work.function
    this.args = isChecked ? args : work.args
    this.definition = work.definition
    this.cwd = surroundings.cwd
    this.env = surroundings.env
    this.stdin = surroundings.stdin
    this.shell = surroundings.shell
    this.captureStdio = surroundings.captureStdio
    this.resources = resources
  }

  /** What awaiting gives; `undefined` until the task is DONE. */
  get returnValue(): T | undefined {
    return this.value
  }

  /** What the program wrote, whole or head and tail; `undefined` for a function. */
  get stdout(): string | undefined {
    return this.#result?.stdout
  }

  get stderr(): string | undefined {
    return this.#result?.stderr ?? this.#failure?.stderr
  }

  /** `undefined` for a function, before the end, and after an end by a signal. */
  get exitCode(): number | undefined {
    return this.#result?.exitCode ?? this.#failure?.exitCode ?? undefined
  }

  get #result(): ExecutableResult | undefined {
    return this.kind === 'compute' ? (this.value as ExecutableResult | undefined) : undefined
  }

  get #failure(): ExecutableFailedError | undefined {
    return this.error instanceof ExecutableFailedError ? this.error : undefined
  }
}

/** A program or a function to run. */

import {
  checkComputeOptions,
  type ComputeSpec,
  type ExecutableOptions,
  type FunctionOptions,
} from './compute-options.ts'
import type { TaskDefinition } from './define-task.ts'
import { programName } from './program-options.ts'
import type { ResourceRequest } from './resources.ts'
import type { ProgramSpec } from './spec.ts'
import type { ProgramOutput } from './task-record.ts'
import { Task } from './task.ts'

export type { ExecutableOptions, FunctionOptions } from './compute-options.ts'

/** The result of a task that runs a program. */
export interface ExecutableResult {
  readonly stdout: string
  readonly stderr: string
  readonly exitCode: number
  /** `true` if the middle of `stdout` was left out because it was too long. */
  readonly stdoutTruncated?: true
  readonly stderrTruncated?: true
}

/**
 * A task that runs a program or calls a function: exactly one of `executable` and `function` must
 * be given. The constructor validates the options; nothing runs before the submission.
 *
 * @example
 * const program = new ComputeTask({
 *   executable: './simulate',
 *   arguments: ['--rate', '0.1'],
 *   timeoutSeconds: 60,
 *   retries: { times: 2, delaySeconds: 1 },
 *   resources: { cores: 2 },
 * })
 * const call = new ComputeTask({ function: square, args: [7] }) // with or without `defineTask`
 * await session.submitTasks([program, call])
 * const { stdout } = await program
 * const result: number = await call
 */
export class ComputeTask<
  T = ExecutableResult,
  A extends readonly unknown[] = readonly unknown[],
> extends Task<T> {
  /** The task as plain data, as its backend receives it. */
  readonly spec: ComputeSpec
  /** The function to call; `null` for a program. */
  readonly function: ((...args: never[]) => unknown) | null
  readonly args: readonly unknown[]

  constructor(
    options:
      | (ExecutableOptions & { readonly function?: undefined })
      | (FunctionOptions<T, A> & { readonly executable?: undefined }),
  ) {
    const given: object = options
    const { task, spec, function: body, args } = checkComputeOptions(given)
    super(task)
    this.spec = spec
    this.function = body
    this.args = args
  }

  /** The `task_type` in events: `compute` for a program, `function` for a function. */
  get kind(): 'compute' | 'function' {
    return this.spec.kind === 'program' ? 'compute' : 'function'
  }

  /** The time limit of each attempt, in seconds; `null` for no limit. */
  get timeoutSeconds(): number | null {
    return this.spec.timeoutSeconds
  }

  /** Tasks with a higher priority run earlier. */
  get priority(): number {
    return this.spec.priority
  }

  /**
   * The option `name`. Default: the function's name, or the program's name with its script, such as
   * `python3 mesh.py`.
   */
  get name(): string {
    const program = this.#program
    if (program === null) return this.givenName ?? this.spec.executable
    return this.givenName ?? programName(program)
  }

  /** The program's path, or the function's name. */
  get executable(): string {
    return this.spec.executable
  }

  /** The arguments of a program; empty for a function. */
  get arguments(): readonly string[] {
    return this.#program?.arguments ?? noArguments
  }

  /** Where a worker finds the function; `null` for a program and for a closure. */
  get definition(): TaskDefinition | null {
    return this.spec.kind === 'function' ? this.spec.definition : null
  }

  /** The option `cwd`; `null` for the working directory of the session or the backend. */
  get cwd(): string | null {
    return this.#program?.cwd ?? null
  }

  /** Changes to the inherited environment; `undefined` removes a variable. */
  get env(): Readonly<Record<string, string | undefined>> | null {
    const env = this.#program?.env ?? null
    if (env === null) return null
    const entries = Object.entries(env).map(([name, value]) => [name, value ?? undefined])
    return Object.freeze(Object.fromEntries(entries))
  }

  /** The standard input of the program; `null` for none. */
  get stdin(): string | Uint8Array | null {
    const stdin = this.#program?.stdin ?? null
    if (stdin === null || typeof stdin === 'string') return stdin
    return new Uint8Array(Buffer.from(stdin.base64, 'base64'))
  }

  /** Whether a shell interprets `executable` as a command line. */
  get shell(): boolean {
    return this.#program?.shell ?? false
  }

  /** The files that the output is written to; `null` if it is kept in memory. */
  get captureStdio(): ProgramSpec['captureStdio'] {
    return this.#program?.captureStdio ?? null
  }

  /**
   * Whether the other processes in the program's process group are killed when the program exits.
   */
  get killBackground(): boolean {
    return this.#program?.killBackground ?? false
  }

  /** The resources that the task holds while it runs, with defaults filled in. */
  get resources(): ResourceRequest {
    return this.spec.resources
  }

  /** The value that awaiting returns; `undefined` until the task is DONE. */
  get returnValue(): T | undefined {
    return this.value
  }

  /**
   * The output of the program's last attempt, even if it failed, was killed, timed out or was
   * canceled. Of long output, only the beginning and the end are kept. `undefined` for a function,
   * before the task has ended, if the program never started, and if its launcher or node was lost.
   */
  get stdout(): string | undefined {
    return this.#output?.stdout
  }

  /** The error output of the program. The same rules apply as for `stdout`. */
  get stderr(): string | undefined {
    return this.#output?.stderr
  }

  /** Whether part of `stdout` was left out; `undefined` if `stdout` is `undefined`. */
  get stdoutTruncated(): boolean | undefined {
    return this.#truncated('stdoutTruncated')
  }

  /** Whether part of `stderr` was left out; `undefined` if `stderr` is `undefined`. */
  get stderrTruncated(): boolean | undefined {
    return this.#truncated('stderrTruncated')
  }

  /**
   * The exit code of the program. `undefined` for a function, until the program has exited, and if
   * a signal ended it.
   */
  get exitCode(): number | undefined {
    return this.#output?.exitCode
  }

  #truncated(which: 'stdoutTruncated' | 'stderrTruncated'): boolean | undefined {
    const output = this.#output
    return output?.stdout === undefined ? undefined : (output[which] ?? false)
  }

  get #program(): ProgramSpec | null {
    return this.spec.kind === 'program' ? this.spec : null
  }

  get #output(): ProgramOutput | undefined {
    if (this.kind !== 'compute') return undefined
    return (this.value as ExecutableResult | undefined) ?? this.unsuccessfulOutput
  }
}

const noArguments: readonly string[] = Object.freeze([])

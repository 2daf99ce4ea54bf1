/** A program or a function to run. */

import { ValueError } from '../foundation/errors.ts'
import { ExecutableFailedError } from '../foundation/task-errors.ts'
import { expectBoolean, expectFunction, invalid } from '../foundation/options.ts'
import { definitionOf, type TaskDefinition } from './define-task.ts'
import {
  expectArguments,
  expectCaptureStdio,
  expectEnvironment,
  expectNoBatchFile,
  expectPath,
  expectStdin,
} from './program-options.ts'
import { type ResourceRequest, resolveResources } from './resources.ts'
import { expectTaskOptions, Task, taskOptionNames, type TaskOptions } from './task.ts'

/** What a program left behind. */
export interface ExecutableResult {
  readonly stdout: string
  readonly stderr: string
  readonly exitCode: number
}

type AnyFunction = (...args: never[]) => unknown

interface ComputeOptions extends TaskOptions {
  readonly resources?: Partial<ResourceRequest>
}

export interface ExecutableOptions extends ComputeOptions {
  /** A path, or a name that is looked up in `PATH`. */
  readonly executable: string
  readonly arguments?: readonly string[]
  /** Default: the session's. */
  readonly cwd?: string
  /** Merged over the parent's environment; `undefined` removes a variable. */
  readonly env?: Readonly<Record<string, string | undefined>>
  readonly stdin?: string | Uint8Array
  /** Runs `executable` as a shell's command line. Default `false`: nothing is ever interpreted. */
  readonly shell?: boolean
  /** Files for stdout and stderr, instead of strings of bounded length. */
  readonly captureStdio?: { readonly stdout?: string; readonly stderr?: string }
}

export interface FunctionOptions<T, A extends readonly unknown[]> extends ComputeOptions {
  /**
   * From `defineTask`, to run on a worker; a plain closure runs in this process, on its event loop.
   */
  readonly function: (...args: A) => T | PromiseLike<T>
  readonly args?: Readonly<NoInfer<A>>
}

/** What a function has none of, with what it has instead. */
const programOnly = {
  arguments: 'args',
  cwd: null,
  env: null,
  stdin: null,
  shell: null,
  captureStdio: null,
}
const known = [
  ...taskOptionNames,
  'resources',
  'executable',
  'function',
  'args',
  ...Object.keys(programOnly),
]

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

  constructor(options: ExecutableOptions & { readonly function?: never })
  constructor(options: FunctionOptions<T, A> & { readonly executable?: never })
  constructor(options: Partial<ExecutableOptions> & Partial<FunctionOptions<T, A>>) {
    expectTaskOptions('ComputeTask', options, known)
    super(options)
    this.resources = resolveResources(options.resources)
    const isProgram = options.executable !== undefined
    if (isProgram === (options.function !== undefined)) {
      const expected = 'exactly one of `executable` and `function`'
      const got = isProgram ? 'both' : 'neither'
      const text = `Expected ${expected}, got ${got}`
      throw new ValueError(text, { field: 'executable', expected, got })
    }
    this.kind = isProgram ? 'compute' : 'function'
    const work = isProgram ? resolveProgram(options) : resolveFunction(options)
    this.executable = work.executable
    this.arguments = work.arguments
    this.function = work.function
    this.args = work.args
    this.definition = work.definition
    this.cwd = options.cwd === undefined ? null : expectPath('cwd', options.cwd)
    this.env = options.env === undefined ? null : expectEnvironment(options.env)
    this.stdin = options.stdin === undefined ? null : expectStdin(options.stdin)
    const { shell = false } = options
    this.shell = expectBoolean('shell', shell)
    this.captureStdio =
      options.captureStdio === undefined ? null : expectCaptureStdio(options.captureStdio)
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

interface Work {
  readonly executable: string
  readonly arguments: readonly string[]
  readonly function: AnyFunction | null
  readonly args: readonly unknown[]
  readonly definition: TaskDefinition | null
}

const none: readonly never[] = Object.freeze([])

function resolveProgram(options: {
  executable?: unknown
  arguments?: unknown
  args?: unknown
  shell?: unknown
}): Work {
  refuse(options, { args: 'arguments' }, 'a function')
  const executable = expectPath('executable', options.executable)
  expectNoBatchFile(executable, options.shell === true, process.platform)
  return {
    executable,
    arguments: options.arguments === undefined ? none : expectArguments(options.arguments),
    function: null,
    args: none,
    definition: null,
  }
}

function resolveFunction(options: { function?: unknown; args?: unknown }): Work {
  refuse(options, programOnly, 'an executable')
  const { args = none } = options
  expectFunction('function', options.function)
  const work = options.function as AnyFunction
  if (!Array.isArray(args)) throw invalid('args', 'an array of arguments', args)
  return {
    executable: work.name === '' ? 'anonymous' : work.name,
    arguments: none,
    function: work,
    args: args.length === 0 ? none : Object.freeze([...(args as readonly unknown[])]),
    definition: definitionOf(work) ?? null,
  }
}

/** `names` are the wrong ones, each with the right one if there is any. */
function refuse(
  options: object,
  names: Readonly<Record<string, string | null>>,
  belongsTo: string,
): void {
  const given = options as Readonly<Record<string, unknown>>
  const wrong = Object.keys(names).find((name) => given[name] !== undefined)
  if (wrong === undefined) return
  const right = names[wrong] ?? null
  const instead = right === null ? '' : `; did you mean "${right}"?`
  const text = `\`${wrong}\` belongs to ${belongsTo}, which this task does not run${instead}`
  throw new ValueError(text, { field: wrong })
}

/** The options of tasks that run programs or functions, and their validation. */

import { ValueError } from '../foundation/errors.ts'
import { expectBoolean, expectFunction, invalid } from '../foundation/options.ts'
import { type AnyFunction, definitionOf, type TaskDefinition } from './define-task.ts'
import {
  expectArguments,
  expectCaptureStdio,
  expectEnvironment,
  expectNoBatchFile,
  expectPath,
  expectStdin,
} from './program-options.ts'
import { type ResourceRequest, resolveResources } from './resources.ts'
import type { ClosureSpec, FunctionSpec, ProgramSpec } from './spec.ts'
import {
  checkTaskOptions,
  expectTaskOptions,
  type TaskFields,
  taskOptionNames,
  type TaskOptions,
} from './task-fields.ts'

/** Options that programs and functions share. */
export interface ComputeOptions extends TaskOptions {
  readonly resources?: Partial<ResourceRequest>
}

/** Options of a `ComputeTask` that runs a program, without a shell unless `shell` is set. */
export interface ExecutableOptions extends ComputeOptions {
  /** A path, or a name that is looked up in `PATH`. */
  readonly executable: string
  readonly arguments?: readonly string[]
  /** The working directory. Default: `workDir` of the session. */
  readonly cwd?: string
  /** Changes to the inherited environment; `undefined` removes a variable. */
  readonly env?: Readonly<Record<string, string | undefined>>
  readonly stdin?: string | Uint8Array
  /** Whether to run `executable` as a shell command line. Default `false`: no shell is used. */
  readonly shell?: boolean
  /** Files for stdout and stderr. Without them, the output is kept as text of limited length. */
  readonly captureStdio?: { readonly stdout?: string; readonly stderr?: string }
  /**
   * Whether other processes in the program's process group, such as background jobs of a shell,
   * are killed when the program exits. Default `false`: they live until the session closes.
   */
  readonly killBackground?: boolean
}

/** Options of a `ComputeTask` that calls a function, on a worker or in this process. */
export type FunctionOptions<T, A extends readonly unknown[]> = ComputeOptions & {
  /**
   * A function from `defineTask` runs on a worker; a plain closure runs in this process, on its
   * event loop.
   */
  readonly function: (...args: A) => T | PromiseLike<T>
} & ArgsOption<A>

/** Makes `args` optional only if the function can be called without arguments. */
export type ArgsOption<A extends readonly unknown[]> = [] extends A
  ? { readonly args?: Readonly<NoInfer<A>> }
  : { readonly args: Readonly<NoInfer<A>> }

/**
 * Options that only programs have. Each is mapped to the equivalent option of functions, or to
 * `null` if there is none.
 */
const programOnly = {
  arguments: 'args',
  cwd: null,
  env: null,
  stdin: null,
  shell: null,
  captureStdio: null,
  killBackground: null,
}
const optionNames = [
  ...taskOptionNames,
  'resources',
  'executable',
  'function',
  'args',
  ...Object.keys(programOnly),
]

/** What a `ComputeTask` runs, as plain data. */
export type ComputeSpec = FunctionSpec | ClosureSpec | ProgramSpec

export interface CheckedComputeOptions {
  readonly task: TaskFields
  readonly spec: ComputeSpec
  /** The function to call; `null` for a program. */
  readonly function: AnyFunction | null
  readonly args: readonly unknown[]
}

/** The spec of another call of the same function. Freezes `args`. */
export function withArgs(spec: FunctionSpec, args: readonly unknown[]): FunctionSpec {
  // The fields are listed, because V8 is slow to spread a frozen object.
  const { executable, resources, definition } = spec
  return toFunctionSpec(spec, executable, resources, definition, Object.freeze(args))
}

/** A spec that runs the function as a closure in this process. */
export function toClosure({ executable, resources, ...limits }: ComputeSpec): ClosureSpec {
  return toClosureSpec(limits, executable, resources)
}

type GivenOptions = Partial<ExecutableOptions> &
  Partial<FunctionOptions<unknown, readonly unknown[]>>

export function checkComputeOptions(options: GivenOptions): CheckedComputeOptions {
  expectTaskOptions('ComputeTask', options, optionNames)
  const task = checkTaskOptions(options)
  const resources = resolveResources(options.resources)
  const isProgram = options.executable !== undefined
  if (isProgram === (options.function !== undefined)) {
    const expected = 'exactly one of `executable` and `function`'
    const got = isProgram ? 'both' : 'neither'
    const text = `Expected ${expected}, got ${got}`
    throw new ValueError(text, { field: 'executable', expected, got })
  }
  return isProgram
    ? { task, spec: resolveProgram(options, task, resources), function: null, args: noArgs }
    : resolveFunction(options, task, resources)
}

const noArgs: readonly never[] = Object.freeze([])

function resolveProgram(
  options: GivenOptions,
  { priority, timeoutSeconds }: TaskFields,
  resources: ResourceRequest,
): ProgramSpec {
  rejectOptions(options, { args: 'arguments' }, 'a function')
  const { cwd, env, stdin, shell = false, captureStdio, killBackground = false } = options
  const executable = expectPath('executable', options.executable)
  expectNoBatchFile(executable, shell, process.platform)
  return {
    kind: 'program',
    executable,
    priority,
    timeoutSeconds,
    resources,
    workDir: null,
    arguments: options.arguments === undefined ? noArgs : expectArguments(options.arguments),
    cwd: cwd === undefined ? null : expectPath('cwd', cwd),
    env: env === undefined ? null : expectEnvironment(env),
    stdin: stdin === undefined ? null : expectStdin(stdin),
    shell: expectBoolean('shell', shell),
    captureStdio: captureStdio === undefined ? null : expectCaptureStdio(captureStdio),
    killBackground: expectBoolean('killBackground', killBackground),
    namedCores: options.resources?.cores === undefined ? null : resources.cores,
  }
}

function resolveFunction(
  options: { readonly function?: unknown; readonly args?: unknown },
  task: TaskFields,
  resources: ResourceRequest,
): CheckedComputeOptions {
  rejectOptions(options, programOnly, 'an executable')
  expectFunction('function', options.function)
  const body = options.function as AnyFunction
  const args = options.args === undefined ? noArgs : expectArgs(options.args)
  // In `{ function: () => 5 }`, JavaScript names the arrow function `function`, after the property.
  const isNamed = body.name !== '' && body.name !== 'function'
  const executable = isNamed ? body.name : 'anonymous'
  const definition = definitionOf(body)
  const spec =
    definition === undefined
      ? toClosureSpec(task, executable, resources)
      : toFunctionSpec(task, executable, resources, definition, args)
  return { task, spec, function: body, args }
}

function expectArgs(args: unknown): readonly unknown[] {
  if (!Array.isArray(args)) throw invalid('args', 'an array of arguments', args)
  return args.length === 0 ? noArgs : Object.freeze([...(args as readonly unknown[])])
}

function toFunctionSpec(
  { priority, timeoutSeconds }: Pick<TaskFields, 'priority' | 'timeoutSeconds'>,
  executable: string,
  resources: ResourceRequest,
  definition: TaskDefinition,
  args: readonly unknown[],
): FunctionSpec {
  return {
    kind: 'function',
    executable,
    priority,
    timeoutSeconds,
    resources,
    workDir: null,
    definition,
    args,
  }
}

function toClosureSpec(
  { priority, timeoutSeconds }: Pick<TaskFields, 'priority' | 'timeoutSeconds'>,
  executable: string,
  resources: ResourceRequest,
): ClosureSpec {
  return {
    kind: 'closure',
    executable,
    priority,
    timeoutSeconds,
    resources,
    workDir: null,
  }
}

function rejectOptions(
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

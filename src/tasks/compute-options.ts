/** The options of tasks that run programs or functions, and their validation. */

import { ValueError } from '../foundation/errors.ts'
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
import type { ClosureSpec, FunctionSpec, ProgramSpec } from './spec.ts'
import {
  checkTaskOptions,
  expectTaskOptions,
  type TaskFields,
  taskOptionNames,
  type TaskOptions,
} from './task-fields.ts'

export type AnyFunction = (...args: never[]) => unknown

/** Options that functions and programs share. */
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
  /** Merged over the inherited environment; `undefined` removes a variable. */
  readonly env?: Readonly<Record<string, string | undefined>>
  readonly stdin?: string | Uint8Array
  /** Runs `executable` as a shell command line. Default `false`: no shell is involved. */
  readonly shell?: boolean
  /** Files to write stdout and stderr to, instead of keeping text of limited length. */
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

/** `args` is optional only for a function that can be called without arguments. */
export type ArgsOption<A extends readonly unknown[]> = [] extends A
  ? { readonly args?: Readonly<NoInfer<A>> }
  : { readonly args: Readonly<NoInfer<A>> }

/** Options that only programs have, each with the equivalent option of functions, or `null`. */
const programOnly = {
  arguments: 'args',
  cwd: null,
  env: null,
  stdin: null,
  shell: null,
  captureStdio: null,
  killBackground: null,
}
const known = [
  ...taskOptionNames,
  'resources',
  'executable',
  'function',
  'args',
  ...Object.keys(programOnly),
]

/** The spec of a `ComputeTask`. */
export type ComputeSpec = FunctionSpec | ClosureSpec | ProgramSpec

/** Validated options. */
export interface CheckedComputeOptions {
  readonly task: TaskFields
  readonly spec: ComputeSpec
  /** `null` for a program. */
  readonly function: AnyFunction | null
  readonly args: readonly unknown[]
}

/** The spec of another call of the same function. Freezes `args`. */
export function withArgs(spec: FunctionSpec, args: readonly unknown[]): FunctionSpec {
  // Not spread, because V8 copies the properties of a frozen object one by one.
  const { executable, resources, definition } = spec
  return toFunctionSpec(spec, executable, resources, definition, Object.freeze(args))
}

/** Converts the spec, so that the function runs as a closure in this process. */
export function asClosure({ executable, resources, ...limits }: ComputeSpec): ClosureSpec {
  return toClosureSpec(limits, executable, resources)
}

type Options = Partial<ExecutableOptions> & Partial<FunctionOptions<unknown, readonly unknown[]>>

export function checkComputeOptions(options: Options): CheckedComputeOptions {
  expectTaskOptions('ComputeTask', options, known)
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
    ? { task, spec: resolveProgram(options, task, resources), function: null, args: none }
    : resolveFunction(options, task, resources)
}

const none: readonly never[] = Object.freeze([])

function resolveProgram(
  options: Options,
  { priority, timeoutSeconds }: TaskFields,
  resources: ResourceRequest,
): ProgramSpec {
  refuse(options, { args: 'arguments' }, 'a function')
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
    arguments: options.arguments === undefined ? none : expectArguments(options.arguments),
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
  refuse(options, programOnly, 'an executable')
  expectFunction('function', options.function)
  const body = options.function as AnyFunction
  const args = options.args === undefined ? none : expectArgs(options.args)
  // JavaScript names the arrow function in `{ function: () => 5 }` after the property.
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
  return args.length === 0 ? none : Object.freeze([...(args as readonly unknown[])])
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

/** `names` maps each wrong option to the right one, or to `null`. */
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

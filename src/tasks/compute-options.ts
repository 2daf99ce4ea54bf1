/** What a caller may ask of a program or a function, and the check of what was asked. */

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
import {
  checkTaskOptions,
  expectTaskOptions,
  type TaskFields,
  taskOptionNames,
  type TaskOptions,
} from './task-fields.ts'

export type AnyFunction = (...args: never[]) => unknown

interface ComputeOptions extends TaskOptions {
  readonly resources?: Partial<ResourceRequest>
}

/** A `ComputeTask` that runs a program, without a shell unless `shell` asks for one. */
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

/** A `ComputeTask` that calls a function: one of `defineTask` on a worker, a closure right here. */
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

/** What is to run. */
interface Work {
  readonly kind: 'compute' | 'function'
  readonly executable: string
  readonly arguments: readonly string[]
  readonly function: AnyFunction | null
  readonly args: readonly unknown[]
  readonly definition: TaskDefinition | null
}

/** What a program is started with. */
interface Surroundings {
  readonly cwd: string | null
  readonly env: Readonly<Record<string, string | undefined>> | null
  readonly stdin: string | Uint8Array | null
  readonly shell: boolean
  readonly captureStdio: { readonly stdout?: string; readonly stderr?: string } | null
}

/** Options that were checked: any number of tasks can be made of them. */
export class ComputeFields {
  readonly task: TaskFields
  readonly resources: ResourceRequest
  readonly work: Work
  readonly surroundings: Surroundings

  constructor(
    task: TaskFields,
    resources: ResourceRequest,
    work: Work,
    surroundings: Surroundings = noSurroundings,
  ) {
    this.task = task
    this.resources = resources
    this.work = work
    this.surroundings = surroundings
  }

  /** The same with another body. */
  withFunction(body: AnyFunction): ComputeFields {
    const { task, resources, work } = this
    return new ComputeFields(task, resources, { ...work, function: body })
  }
}

type Options = Partial<ExecutableOptions> & Partial<FunctionOptions<unknown, readonly unknown[]>>

export function checkComputeOptions(options: Options): ComputeFields {
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
    ? new ComputeFields(task, resources, resolveProgram(options), checkSurroundings(options))
    : new ComputeFields(task, resources, resolveFunction(options))
}

const noSurroundings: Surroundings = Object.freeze({
  cwd: null,
  env: null,
  stdin: null,
  shell: false,
  captureStdio: null,
})

function checkSurroundings({
  cwd,
  env,
  stdin,
  shell = false,
  captureStdio,
}: Options): Surroundings {
  return {
    cwd: cwd === undefined ? null : expectPath('cwd', cwd),
    env: env === undefined ? null : expectEnvironment(env),
    stdin: stdin === undefined ? null : expectStdin(stdin),
    shell: expectBoolean('shell', shell),
    captureStdio: captureStdio === undefined ? null : expectCaptureStdio(captureStdio),
  }
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
    kind: 'compute',
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
    kind: 'function',
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

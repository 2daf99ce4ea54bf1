/** The options of a workflow's tasks, checked when a function is wrapped. */

import { expectKnownKeys, expectObject, invalid } from '../foundation/options.ts'
import { samplingNames, type SamplingOptions } from '../tasks/ai-task.ts'
import type { ExecutableOptions } from '../tasks/compute-task.ts'
import type { ResourceRequest } from '../tasks/resources.ts'
import {
  checkTaskOptions,
  expectTaskName,
  type TaskFields,
  type TaskOptions,
} from '../tasks/task-fields.ts'

/** Options of `block`, for every call of the wrapped function. */
export interface BlockOptions extends Omit<TaskOptions, 'uid' | 'name' | 'backend'> {
  /** The label for people. Default: the function's name. */
  readonly name?: string
}

/** How calls are compared before a task runs. */
export interface CacheOptions<A extends readonly unknown[]> {
  /** Replaces the arguments: calls with the same key have the same result. */
  readonly key: string | ((...args: A) => string)
}

interface WorkflowTaskOptions<A extends readonly unknown[]> extends BlockOptions {
  /** The name of the backend to use. Default: the first that can run it. */
  readonly backend?: string
  /** Reuses a stored result of the same function and arguments. Default `false`. */
  readonly cache?: boolean | CacheOptions<A>
}

/** Options of `functionTask`, for every call of the wrapped function. */
export interface FunctionTaskOptions<
  A extends readonly unknown[] = readonly unknown[],
> extends WorkflowTaskOptions<A> {
  readonly resources?: Partial<ResourceRequest>
}

/** Options of `executableTask`; the body returns which program to run. */
export interface ExecutableTaskOptions<
  A extends readonly unknown[] = readonly unknown[],
> extends FunctionTaskOptions<A> {}

/** Options of `promptTask`; those that the body returns with its prompt take precedence. */
export interface PromptTaskOptions<A extends readonly unknown[] = readonly unknown[]>
  extends WorkflowTaskOptions<A>, SamplingOptions {
  readonly model?: string
}

/** What the body of an executable task returns; never a shell command line. */
export type ProgramCall =
  | readonly [executable: string, ...args: string[]]
  | Omit<ExecutableOptions, keyof TaskOptions | 'resources' | 'shell'>

const common = ['name', 'timeoutSeconds', 'signal', 'retries', 'priority', 'attributes']
const onBackends = [...common, 'backend', 'cache']
const known = {
  functionTask: [...onBackends, 'resources'],
  executableTask: [...onBackends, 'resources'],
  promptTask: [...onBackends, 'model', ...samplingNames],
  block: common,
}

/** Any of the options above. */
export type AnyTaskOptions = PromptTaskOptions<never[]> & FunctionTaskOptions<never[]>

/** The options, grouped by their reader. */
export interface ResolvedTaskOptions {
  readonly name: string
  readonly functionName: string
  /** Whether the name was chosen, as an option or as the function's name. */
  readonly isNamed: boolean
  /** Options of each call's task. */
  readonly task: TaskFields
  /** Options of the work that runs for it. */
  readonly work: Omit<AnyTaskOptions, 'name' | 'cache' | 'signal' | 'attributes' | 'retries'>
  readonly cache: CacheOptions<never[]> | boolean
}

export function resolveTaskOptions(
  method: keyof typeof known,
  body: { readonly name: string },
  options: unknown,
): ResolvedTaskOptions {
  const given = expectObject('options', options)
  expectKnownKeys(method, given, known[method])
  const { name, cache = false, signal, attributes, retries, ...work } = given as AnyTaskOptions
  const { backend, timeoutSeconds, priority } = work
  const task = { backend, timeoutSeconds, priority, signal, attributes, retries }
  const functionName = body.name === '' ? 'anonymous' : body.name
  const chosen = Object.entries(task).filter(([, value]) => value !== undefined)
  return {
    name: name === undefined ? functionName : expectTaskName(name),
    functionName,
    isNamed: name !== undefined || body.name !== '',
    task: checkTaskOptions(Object.fromEntries(chosen)),
    work,
    cache: expectCache(cache),
  }
}

function expectCache(cache: unknown): CacheOptions<never[]> | boolean {
  if (typeof cache === 'boolean') return cache
  const given = expectObject('cache', cache)
  expectKnownKeys('cache', given, ['key'], 'cache.')
  const { key } = given
  if (typeof key === 'function' || (typeof key === 'string' && key !== '')) {
    return given as unknown as CacheOptions<never[]>
  }
  throw invalid('cache.key', 'a function or a non-empty string', key)
}

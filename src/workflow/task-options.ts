/** The options of a workflow's tasks. They are checked when a function is wrapped. */

import {
  definedFields,
  expectId,
  expectKnownKeys,
  expectObject,
  invalid,
} from '../foundation/options.ts'
import { samplingNames, type SamplingOptions } from '../tasks/ai-task.ts'
import type { ExecutableOptions } from '../tasks/compute-task.ts'
import type { ResourceRequest } from '../tasks/resources.ts'
import {
  checkTaskOptions,
  expectTaskName,
  type TaskFields,
  type TaskOptions,
  expectUid,
} from '../tasks/task-fields.ts'
import type { DeferrableArgs } from './task-function.ts'

/** A text for all calls, or a function of a call's arguments, which may contain handles. */
export type CallText<A extends readonly unknown[]> =
  | string
  | ((...args: DeferrableArgs<A>) => string)

/** Options of `block`, for every call of the wrapped function. */
export interface BlockOptions<A extends readonly unknown[] = readonly unknown[]> extends Omit<
  TaskOptions,
  'uid' | 'name' | 'backend'
> {
  /**
   * The uid of a call, which must be unique in the engine. Either a function of the arguments, or a
   * string for one call (see `with`). A handle among the arguments has a `uid` and a `name`, but no
   * value yet. Default: generated.
   */
  readonly uid?: CallText<A>
  /**
   * The display name of all calls, or a function of the arguments. Default: the function's name.
   */
  readonly name?: CallText<A>
}

/** How calls are compared before a task runs. */
export interface CacheOptions<A extends readonly unknown[]> {
  /** Replaces the arguments in the comparison. Calls with the same key share a result. */
  readonly key: string | ((...args: A) => string)
}

interface WorkflowTaskOptions<A extends readonly unknown[]> extends BlockOptions<A> {
  /** The name of the backend to use. Default: the first backend that can run the task. */
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

/** Options of `executableTask`, whose body returns the program to run. */
export interface ExecutableTaskOptions<
  A extends readonly unknown[] = readonly unknown[],
> extends FunctionTaskOptions<A> {}

/** Options of `promptTask`. Options that the body returns with its prompt take precedence. */
export interface PromptTaskOptions<A extends readonly unknown[] = readonly unknown[]>
  extends WorkflowTaskOptions<A>, SamplingOptions {
  readonly model?: string
}

/** The program that the body of an executable task returns; never a shell command line. */
export type ProgramCall =
  | readonly [executable: string, ...args: string[]]
  | Omit<ExecutableOptions, keyof TaskOptions | 'resources' | 'shell'>

const commonNames = ['uid', 'name', 'timeoutSeconds', 'signal', 'retries', 'priority', 'attributes']
const backendTaskNames = [...commonNames, 'backend', 'cache']
const optionNames = {
  functionTask: [...backendTaskNames, 'resources'],
  executableTask: [...backendTaskNames, 'resources'],
  promptTask: [...backendTaskNames, 'model', ...samplingNames],
  block: commonNames,
}

export type AnyTaskOptions = PromptTaskOptions<never[]> & FunctionTaskOptions<never[]>

/**
 * The uid and name of a call. `null` means a generated uid, or the name of the wrapped function.
 */
export type CallLabels = Pick<TaskFields, 'uid' | 'name'>

/** The options `uid` and `name`, if they may differ between calls. */
export interface CallLabelOptions {
  readonly uid?: CallText<never[]>
  readonly name?: CallText<never[]>
}

/** The validated options, grouped by the code that uses them. */
export interface ResolvedTaskOptions {
  /** The option `name` if it is a string, or else the function's name. */
  readonly name: string
  readonly functionName: string
  /** Whether the option `name` is set or the function has a name. */
  readonly isNamed: boolean
  /** The options `uid` and `name`; `null` if all calls have generated uids and the same name. */
  readonly labelOptions: CallLabelOptions | null
  readonly task: TaskFields
  readonly work: Omit<
    AnyTaskOptions,
    'uid' | 'name' | 'cache' | 'signal' | 'attributes' | 'retries'
  >
  readonly cache: CacheOptions<never[]> | boolean
}

export function resolveTaskOptions(
  method: keyof typeof optionNames,
  body: { readonly name: string },
  options: unknown,
): ResolvedTaskOptions {
  const given = expectObject('options', options)
  expectKnownKeys(method, given, optionNames[method])
  const { uid, name, cache = false, signal, attributes, retries, ...work } = given as AnyTaskOptions
  const { backend, timeoutSeconds, priority } = work
  const task = { backend, timeoutSeconds, priority, signal, attributes, retries }
  const functionName = body.name === '' ? 'anonymous' : body.name
  const hasNoFixedName = name === undefined || typeof name === 'function'
  return {
    name: hasNoFixedName ? functionName : expectTaskName(name),
    functionName,
    isNamed: name !== undefined || body.name !== '',
    labelOptions: resolveLabelOptions({ uid, name: hasNoFixedName ? name : undefined }),
    task: checkTaskOptions(definedFields(task)),
    work,
    cache: expectCache(cache),
  }
}

/**
 * Validates the options `uid` and `name` if they are strings. The results of functions are
 * validated with each call.
 */
export function resolveLabelOptions({
  uid,
  name,
}: Record<string, unknown>): CallLabelOptions | null {
  if (uid === undefined && name === undefined) return null
  if (typeof uid !== 'function' && uid !== undefined) expectId('uid', uid)
  if (typeof name !== 'function' && name !== undefined) expectTaskName(name)
  return definedFields({ uid, name }) as CallLabelOptions
}

export function toCallLabels(
  { uid, name }: CallLabelOptions,
  args: readonly unknown[],
): CallLabels {
  const textOf = (text: CallText<never[]> | undefined): unknown =>
    typeof text === 'function' ? text(...(args as never[])) : text
  const [callUid, callName] = [textOf(uid), textOf(name)]
  return {
    uid: uid === undefined ? null : expectUid(callUid),
    name: name === undefined ? null : expectTaskName(callName),
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

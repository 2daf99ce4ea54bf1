/** Runs one function task per item of a list. */

import type { SessionCore } from '../core/session-core.ts'
import {
  expectBoolean,
  expectFunction,
  expectKnownKeys,
  expectObject,
  notAnArray,
} from '../foundation/options.ts'
import type { ComputeOptions } from '../tasks/compute-options.ts'
import { ComputeTask } from '../tasks/compute-task.ts'
import { taskOptionNames } from '../tasks/task-fields.ts'
import { waitForAll } from './wait.ts'

/** Options of `session.map`. The options of function tasks apply to every task. */
export interface MapOptions<I> extends Omit<ComputeOptions, 'uid' | 'name'> {
  /** The uid of each task. A string is allowed only for a list of one item. Default: generated. */
  readonly uid?: string | ((item: I, index: number) => string)
  /** One name for all tasks, or a function of the item. Default: the function's name. */
  readonly name?: string | ((item: I, index: number) => string)
  /**
   * Whether to resolve with the outcomes of all tasks, like `Promise.allSettled`. Default `false`.
   */
  readonly settle?: boolean
}

const optionNames = [...taskOptionNames, 'resources', 'settle']

type MapCore = Pick<SessionCore, 'submit' | 'clock' | 'checks' | 'find'>

/** Runs a task per item. Resolves with the tasks, in the order of the list, when all have ended. */
export async function mapTasks<I, T>(
  core: MapCore,
  fn: (item: I) => T | PromiseLike<T>,
  list: readonly I[],
  options: MapOptions<I>,
): Promise<readonly ComputeTask<T>[]> {
  expectFunction('fn', fn)
  if (!Array.isArray(list)) throw notAnArray('list', 'items', list, '[item]')
  expectKnownKeys('map', expectObject('options', options), optionNames)
  const { uid, name, settle, ...others } = options
  if (settle !== undefined) expectBoolean('settle', settle)
  // `Array.from` treats a hole in the list as an item, as `Promise.all` does.
  const tasks = Array.from(list as readonly I[], (item, index) => {
    const labels = { uid: resolveOption(uid, item, index), name: resolveOption(name, item, index) }
    return new ComputeTask<T>({ ...others, ...labels, function: fn, args: [item] } as never)
  })
  await core.submit(tasks)
  await waitForAll(core, tasks, {})
  return tasks
}

const resolveOption = <I>(
  option: string | ((item: I, index: number) => string) | undefined,
  item: I,
  index: number,
): string | undefined => (typeof option === 'function' ? option(item, index) : option)

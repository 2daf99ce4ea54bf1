/** The task that the running code belongs to. Backends set it, spans read it. */

import { AsyncLocalStorage } from 'node:async_hooks'

/** What code that runs in a task can learn of it. */
export interface CurrentTask {
  readonly uid: string
}

interface RunningTask extends CurrentTask {
  readonly onWait: (() => void) | null
}

const running = new AsyncLocalStorage<RunningTask>()

/**
 * Runs `callback` as part of the task `uid`, across everything it awaits. `onWait` is called when
 * it starts to wait for another task, so that the backend can release the slot it occupies.
 */
export function runInTask<T>(
  uid: string,
  callback: () => T,
  onWait: (() => void) | null = null,
): T {
  const task = { uid, onWait }
  if (wrappers.size === 0) return running.run(task, callback)
  let wrapped = callback
  for (const wrapper of wrappers) {
    const inner = wrapped
    wrapped = () => wrapper(uid, inner)
  }
  return running.run(task, wrapped)
}

/** Runs the code of a task, such as inside the task's span. Must return what the code returns. */
export type TaskWrapper = <T>(uid: string, callback: () => T) => T

const wrappers = new Set<TaskWrapper>()

/** Wraps the code of all tasks that begin from now on, until the returned function is called. */
export function wrapTasks(wrapper: TaskWrapper): () => void {
  wrappers.add(wrapper)
  return () => void wrappers.delete(wrapper)
}

/** The task that the calling code runs in, if any. */
export function currentTask(): CurrentTask | undefined {
  return running.getStore()
}

/** To be called before waiting for a task: calls `onWait` of the running task. */
export function announceWait(): void {
  running.getStore()?.onWait?.()
}

/** The functions that the backend contract submits. Workers import this module. */

import { currentTask } from '../foundation/task-context.ts'
import { defineTask } from '../tasks/define-task.ts'

export const echo = defineTask(import.meta.url, function echo(value: unknown): unknown {
  return value
})

export const fail = defineTask(import.meta.url, function fail(message: string): never {
  throw new RangeError(message)
})

/** Runs until it is stopped. */
export const wait = defineTask(import.meta.url, async function wait(): Promise<void> {
  await new Promise<never>(() => {})
})

/** Returns the uid of the task in which it runs. */
export const ownUid = defineTask(import.meta.url, function ownUid(): string | undefined {
  return currentTask()?.uid
})

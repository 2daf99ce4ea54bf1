/** Reads what the views of a record do not keep about a task: its limit and its failure. */

import { isPipe, readSessionStart } from '../checkpoint/chain.ts'
import { type FailureExample, toFailureExample } from '../views/panels/failures.ts'
import { numberOf } from '../views/panel.ts'
import type { TaskLimit } from '../views/texts/task-story.ts'
import { TaskHistory } from './task-history.ts'

/** Returns the limit of the session for tasks with this name; `null` if there is none. */
export async function readNameLimit(
  files: readonly string[],
  name: string,
): Promise<TaskLimit | null> {
  const file = files.at(-1)
  if (file === undefined || isPipe(file)) return null
  const limits = (await readSessionStart(file))?.attributes['tutti.limits']
  if (typeof limits !== 'object' || limits === null || !Object.hasOwn(limits, name)) return null
  const found = (limits as Record<string, Readonly<Record<string, unknown>> | null>)[name]
  const [concurrent, perSecond] = [numberOf(found?.['concurrent']), numberOf(found?.['per_second'])]
  return { concurrent, per_second: perSecond }
}

/** Returns the failure of a task; `null` if it did not fail. The views keep only one per group. */
export async function readTaskFailure(
  files: readonly string[],
  uid: string,
): Promise<FailureExample | null> {
  if (files.some(isPipe)) return null
  const history = new TaskHistory(uid, files)
  await history.read()
  const end = history.end?.event
  return end?.event_type === 'TaskFailed' ? toFailureExample(end) : null
}

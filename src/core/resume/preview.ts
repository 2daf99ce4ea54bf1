/** Predicts what a resume would run. Only reads the record; uses no lock and no backend. */

import type { AnyTask } from '../../backends/backend.ts'
import { systemClock } from '../../foundation/clock.ts'
import type { Log } from '../../foundation/log.ts'
import { maskSecrets } from '../../foundation/secrets.ts'
import { definitionHash } from '../../tasks/definition-hash.ts'
import { toSubmissionError } from '../routing.ts'
import { readRecord } from './read-record.ts'
import { type ResolvedResumeOptions, Resumption, type TaskToRun } from './resumption.ts'

export interface ResumePreview {
  readonly runs: readonly TaskToRun[]
  readonly total: number
  /** The number of tasks that run again only if their definition has changed. */
  readonly unnamed: number
}

/** Writes no warnings about tasks that run again, because the preview lists these tasks. */
const silentLog: Log = { warn() {} }

/**
 * Predicts which tasks a resume would run. `tasks` are the programs of a task file or an array;
 * `null` for a script, whose tasks are known only from the record. Rejects as the resume itself
 * would, but does not check whether another process has locked or continued the record.
 */
export async function previewResume(
  path: string,
  options: ResolvedResumeOptions,
  tasks: readonly AnyTask[] | null,
): Promise<ResumePreview> {
  const nextTurn = (): Promise<void> => new Promise((resolve) => systemClock.nextTurn(resolve))
  const record = await readRecord(path, { keepFailures: options.keepFailed, nextTurn })
  using resumption = new Resumption(record, options, silentLog)
  const { unnamed, done, failed, canceled, unfinished } = resumption.summary
  if (tasks === null) {
    const total = done + failed + canceled + unfinished
    return { runs: resumption.previewRecord(), total, unnamed }
  }
  return { runs: previewTasks(tasks, resumption), total: tasks.length, unnamed: 0 }
}

function previewTasks(tasks: readonly AnyTask[], resumption: Resumption): TaskToRun[] {
  const owner = {}
  const wrong = tasks.flatMap((task, at) => {
    const hash = (): string | null => definitionHash(task, owner)
    const problem = resumption.findProblem(task.uid, task.spec.executable, hash)
    return problem === null ? [] : { ...problem, at }
  })
  if (wrong.length > 0) throw toSubmissionError(wrong)
  return tasks.flatMap((task) => {
    const name = maskSecrets(task.name)
    const plan = resumption.plan(task.uid, { name, hash: definitionHash(task, owner) })
    const reason = resumption.findRunReason(plan)
    return reason === null ? [] : { uid: plan.task?.uid ?? task.uid, name, reason }
  })
}

/** What a resume would run, from its record alone. Only reads: no lock, no file, no backend. */

import type { AnyTask } from '../../backends/backend.ts'
import { systemClock } from '../../foundation/clock.ts'
import type { Log } from '../../foundation/log.ts'
import { maskSecrets } from '../../foundation/secrets.ts'
import { definitionHash } from '../../tasks/definition-hash.ts'
import { toSubmissionError } from '../routing.ts'
import { readRecord } from './read-record.ts'
import type { ResolvedResumeOptions } from './resume-options.ts'
import { Resumption, type TaskToRun } from './resumption.ts'

export interface ResumePreview {
  readonly runs: readonly TaskToRun[]
  /** The number of tasks that were looked at. */
  readonly total: number
  /** The number of tasks that do not run, but would if their definition had changed. */
  readonly unnamed: number
}

/** The counts are part of the preview, so nothing is warned about. */
const silent: Log = { warn() {} }

/**
 * `tasks` are the programs of a task file or an array; `null` for a script, of which only the tasks
 * of the record are known. Rejects as the resume itself would, except that nobody is asked whether
 * the record is locked or continued.
 */
export async function previewResume(
  path: string,
  options: ResolvedResumeOptions,
  tasks: readonly AnyTask[] | null,
): Promise<ResumePreview> {
  const nextTurn = (): Promise<void> => new Promise((resolve) => systemClock.nextTurn(resolve))
  const record = await readRecord(path, { keepFailures: options.keepFailed, nextTurn })
  using resumption = new Resumption(record, options, silent)
  const { unnamed, done, failed, canceled, unfinished } = resumption.summary
  if (tasks === null) {
    const total = done + failed + canceled + unfinished
    return { runs: resumption.runsOfRecord(), total, unnamed }
  }
  return { runs: runsOf(tasks, resumption), total: tasks.length, unnamed: 0 }
}

function runsOf(tasks: readonly AnyTask[], resumption: Resumption): TaskToRun[] {
  const owner = {}
  const wrong = tasks.flatMap((task, at) => {
    const hash = (): string | null => definitionHash(task, owner)
    const problem = resumption.problemOf(task.uid, task.spec.executable, hash)
    return problem === null ? [] : { ...problem, at }
  })
  if (wrong.length > 0) throw toSubmissionError(wrong)
  return tasks.flatMap((task) => {
    const name = maskSecrets(task.name)
    const planned = resumption.plan(task.uid, { name, hash: definitionHash(task, owner) })
    const reason = resumption.reasonOf(planned)
    return reason === null ? [] : { uid: resumption.uidOf(planned) ?? task.uid, name, reason }
  })
}

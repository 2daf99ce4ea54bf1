/** How a Slurm job has ended, from its state or from the files of its launch. */

import { BackendError } from '../../foundation/errors.ts'
import type { JobReport } from '../slurm/job-report.ts'
import type { LaunchFolder } from './launch-folder.ts'

/** How a job has ended. */
export interface LaunchEnd {
  /** The script's exit code; `null` if it was killed with all processes of the job. */
  readonly code: number | null
  /**
   * `AllocationLostError` if the end of the job ended the script; `null` if the script ended
   * itself.
   */
  readonly lost: BackendError | null
  /** The state as Slurm reported it; `null` if it was not asked or has forgotten the job. */
  readonly state: string | null
}

export const exitOf = (code: number, state: string | null = null): LaunchEnd => ({
  code,
  lost: null,
  state,
})

export const lostEnd = (
  { jobId, folder }: { readonly jobId: string; readonly folder: LaunchFolder },
  report: EndReport | null,
  code: number | null,
): LaunchEnd => ({
  code,
  lost: lostError(jobId, report, folder),
  state: report?.state ?? null,
})

type EndReport = Pick<JobReport, 'state' | 'reason'>

/**
 * The end according to the files, if Slurm does not report it; `null` if Slurm did not end the
 * script.
 */
export function endByFiles(folder: LaunchFolder): EndReport | null {
  const { lostState: state } = folder
  if (state === null) return null
  // The job was requeued and has not started again.
  return { state, reason: state === 'REQUEUED' ? 'forgotten by Slurm' : 'None' }
}

/** `report` is `null` if Slurm has forgotten the job, whose first node must see `folder`. */
export function lostError(
  jobId: string,
  report: EndReport | null,
  folder?: LaunchFolder,
): BackendError {
  const code = 'AllocationLostError'
  const state = report === null ? 'forgotten by Slurm' : report.state
  const why = report === null || report.reason === 'None' ? '' : ` (${report.reason})`
  const text = `job ${jobId} is ${state}${why}`
  // A job that failed before it began probably could not open a file; Slurm does not say which.
  const hasBegun = folder === undefined || folder.hasStarted || report?.state !== 'FAILED'
  if (hasBegun) return new BackendError(text, { code })
  return new BackendError(`${text}: it has not begun; its node may not see ${folder.path}`, {
    code,
    hint: 'Start it in a folder on a shared file system. For details: npx tutti launch --check',
  })
}

/** Whether the job could never have started, so that none of its files is worth keeping. */
export const isRefusal = (error: unknown): boolean =>
  BackendError.isInstance(error) && error.code === 'AllocationRefusedError'

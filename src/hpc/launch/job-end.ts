/** How a job of Slurm has ended, by its state or by the files of its launch. */

import { BackendError } from '../../foundation/errors.ts'
import type { JobReport } from '../slurm/job-report.ts'
import type { LaunchFolder } from './launch-folder.ts'

/** How a job has ended. */
export interface LaunchEnd {
  /** Of the script; `null` if it has none, because it was killed with all processes of the job. */
  readonly code: number | null
  /** `AllocationLostError`, if the job has ended the script; `null` if that has ended itself. */
  readonly lost: BackendError | null
  /** In Slurm's words; `null` where it was not asked, or has forgotten the job. */
  readonly state: string | null
}

export const ownEnd = (code: number, state: string | null = null): LaunchEnd => ({
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

/** Where Slurm does not tell; `null` if it has not ended the script. */
export function endByFiles(folder: LaunchFolder): EndReport | null {
  const { lostState: state } = folder
  if (state === null) return null
  // It was put back into the queue, and has not begun again.
  return { state, reason: state === 'REQUEUED' ? 'forgotten by Slurm' : 'None' }
}

/** `null`: Slurm does not know the job any more. With the folder that its first node must see. */
export function lostError(
  jobId: string,
  report: EndReport | null,
  folder?: LaunchFolder,
): BackendError {
  const code = 'AllocationLostError'
  const state = report === null ? 'forgotten by Slurm' : report.state
  const why = report === null || report.reason === 'None' ? '' : ` (${report.reason})`
  const text = `job ${jobId} is ${state}${why}`
  // Slurm does not say which file it could not open.
  const hasBegun = folder === undefined || folder.hasStarted || report?.state !== 'FAILED'
  if (hasBegun) return new BackendError(text, { code })
  return new BackendError(`${text}: it has not begun; its node may not see ${folder.path}`, {
    code,
    hint: 'Start it in a folder on a shared file system. `npx tutti launch --check` tells more.',
  })
}

/** Whether the job would never have begun: nothing of it is worth keeping. */
export const isRefusal = (error: unknown): boolean =>
  BackendError.isInstance(error) && error.code === 'AllocationRefusedError'

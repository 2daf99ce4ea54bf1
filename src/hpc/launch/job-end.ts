/** Determines how a Slurm job has ended, from its state or from the files of its launch. */

import { BackendError } from '../../foundation/errors.ts'
import type { JobReport } from '../slurm/job-report.ts'
import type { LaunchFolder } from './launch-folder.ts'

export interface LaunchEnd {
  /** The script's exit code; `null` if the script was killed with the job. */
  readonly code: number | null
  /** `AllocationLostError` if the script ended because its job was ended; otherwise `null`. */
  readonly lost: BackendError | null
  /** The state that Slurm reported; `null` if Slurm was not queried or has forgotten the job. */
  readonly state: string | null
}

export const toExit = (code: number, state: string | null = null): LaunchEnd => ({
  code,
  lost: null,
  state,
})

export const toLostEnd = (
  { jobId, folder }: { readonly jobId: string; readonly folder: LaunchFolder },
  report: EndState | null,
  code: number | null,
): LaunchEnd => ({
  code,
  lost: toLostError(jobId, report, folder),
  state: report?.state ?? null,
})

type EndState = Pick<JobReport, 'state' | 'reason'>

/** Returns the job's state according to its log; `null` if Slurm did not end the script. */
export function readEndFromFiles(folder: LaunchFolder): EndState | null {
  const { lostState: state } = folder
  if (state === null) return null
  // If Slurm has forgotten a requeued job, the job has not started again.
  return { state, reason: state === 'REQUEUED' ? 'forgotten by Slurm' : 'None' }
}

/** `report` is `null` if Slurm has forgotten the job. `folder` helps to explain a failed start. */
export function toLostError(
  jobId: string,
  report: EndState | null,
  folder?: LaunchFolder,
): BackendError {
  const code = 'AllocationLostError'
  const state = report === null ? 'forgotten by Slurm' : report.state
  const why = report === null || report.reason === 'None' ? '' : ` (${report.reason})`
  const text = `job ${jobId} is ${state}${why}`
  // A job that failed before its start probably could not open a file.
  const hasBegun = folder === undefined || folder.hasStarted || report?.state !== 'FAILED'
  if (hasBegun) return new BackendError(text, { code })
  return new BackendError(`${text}: it has not begun; its node may not see ${folder.path}`, {
    code,
    hint: 'Start it in a folder on a shared file system. For details: npx tutti launch --check',
  })
}

/** Whether the job could never start, so that its files can be removed. */
export const isRefusal = (error: unknown): boolean =>
  BackendError.isInstance(error) && error.code === 'AllocationRefusedError'

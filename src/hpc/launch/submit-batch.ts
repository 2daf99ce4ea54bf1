/** Submits a batch script to Slurm, and makes sure that no unknown job is left behind. */

import type { Clock } from '../../foundation/clock.ts'
import { SchedulerError, type SlurmCommands, unexpectedOutput } from '../slurm/slurm-commands.ts'
import { mayHaveSubmitted, withdrawRequest } from './folder-jobs.ts'
import type { LaunchFolder } from './launch-folder.ts'

/** How long to search for the job of a request that the scheduler did not answer. */
const withdrawMs = 60_000
/** How long to wait for the answer after an abort, and again for the search for an unknown job. */
export const answerMs = 10_000

export interface SubmitOptions {
  readonly clock: Clock
  /** How long to search for the job if `sbatch` got no answer; 0 leaves that to the caller. */
  readonly withdrawMs?: number | undefined
  /** After an abort, a scheduler that does not answer is waited for only briefly. */
  readonly signal: AbortSignal
}

/** Resolves with the job's id. If it rejects, no job is left, or the error says that one may be. */
export async function submitBatch(
  commands: SlurmCommands,
  batch: readonly string[],
  folder: LaunchFolder,
  { clock, withdrawMs: maxMs = withdrawMs, signal }: SubmitOptions,
): Promise<string> {
  try {
    return await within(signal, answerMs, clock, (late) => {
      return submit(commands.endedBy(late), batch, folder)
    })
  } catch (error) {
    if (!mayHaveSubmitted(error) || maxMs === 0) throw error
    const isGone = await within(signal, answerMs, clock, (late) => {
      return withdrawRequest(folder, commands.endedBy(late), { clock, maxMs, signal: late })
    })
    throw isGone ? error : withLeftoverHint(error)
  }
}

/** Runs a function with a signal that is aborted `ms` after the given one. */
export async function within<T>(
  signal: AbortSignal,
  ms: number,
  clock: Clock,
  run: (late: AbortSignal) => Promise<T>,
): Promise<T> {
  const late = new AbortController()
  let cancel = (): void => {}
  const begin = (): void => {
    cancel = clock.after(ms, () => late.abort())
  }
  if (signal.aborted) begin()
  else signal.addEventListener('abort', begin, { once: true })
  try {
    return await run(late.signal)
  } finally {
    signal.removeEventListener('abort', begin)
    cancel()
  }
}

/** Adds the hint that a job may be left. It would end at once, because its folder is removed. */
export function withLeftoverHint(error: unknown): unknown {
  if (!(error instanceof SchedulerError)) return error
  const { message, code, command, stderr } = error
  const hint = 'Slurm may have taken the job nevertheless: look with squeue, and cancel it.'
  return new SchedulerError(message, { code, command, stderr, hint })
}

async function submit(
  commands: SlurmCommands,
  batch: readonly string[],
  folder: LaunchFolder,
): Promise<string> {
  const output = await commands.submit(...batch, folder.file('script'))
  // A federation appends the name of the cluster, and a site may print additional lines.
  const ids = output.split('\n').flatMap((line) => /^(\d+)(?:;\S+)?$/.exec(line.trim())?.[1] ?? [])
  const [id] = ids
  if (id === undefined || ids.length > 1) throw unexpectedOutput('sbatch --parsable', output)
  return id
}

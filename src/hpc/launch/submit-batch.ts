/** Submits a batch script to Slurm: nobody is left with a job that nobody knows. */

import type { Clock } from '../../foundation/clock.ts'
import { SchedulerError, type SlurmCommands, unexpectedOutput } from '../slurm/slurm-commands.ts'
import { mayHaveSubmitted, withdrawRequest } from './folder-jobs.ts'
import type { LaunchFolder } from './launch-folder.ts'

/** How long a scheduler that did not answer is asked what became of the request. */
const withdrawMs = 60_000
/** What a signal leaves to the answer, and once more to the look for a job without one. */
export const answerMs = 10_000

export interface SubmitOptions {
  readonly clock: Clock
  /** How long a request without an answer is looked for; with 0 that is the caller's. */
  readonly withdrawMs?: number | undefined
  /** A scheduler that does not answer is not waited for when it has come. */
  readonly signal: AbortSignal
}

/** Resolves with the job's id. If it rejects, no job is left, or the error says one may come. */
export async function submitBatch(
  commands: SlurmCommands,
  batch: readonly string[],
  folder: LaunchFolder,
  { clock, withdrawMs: longestMs = withdrawMs, signal }: SubmitOptions,
): Promise<string> {
  try {
    return await within(signal, answerMs, clock, (late) => {
      return submit(commands.endedBy(late), batch, folder)
    })
  } catch (error) {
    if (!mayHaveSubmitted(error) || longestMs === 0) throw error
    const isGone = await within(signal, answerMs, clock, (late) => {
      return withdrawRequest(folder, commands.endedBy(late), { clock, longestMs, signal: late })
    })
    throw isGone ? error : mayBeLeft(error)
  }
}

/** Runs something with a signal that comes some time after the given one. */
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

/** The folder is removed, so such a job ends as soon as it begins. */
export function mayBeLeft(error: unknown): unknown {
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
  // A federation adds the name of the cluster, and a site may print lines of its own.
  const ids = output.split('\n').flatMap((line) => /^(\d+)(?:;\S+)?$/.exec(line.trim())?.[1] ?? [])
  const [id] = ids
  if (id === undefined || ids.length > 1) throw unexpectedOutput('sbatch --parsable', output)
  return id
}

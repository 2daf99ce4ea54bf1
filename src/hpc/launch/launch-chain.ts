/**
 * The jobs of one launch, which run one after another. If the allocation ended the script, the next
 * job continues its record. Otherwise, the remaining jobs are canceled.
 */

import { SlurmJob } from '../slurm/slurm-job.ts'
import { isUnknownJob, type SlurmCommands } from '../slurm/slurm-commands.ts'
import { followJob, type FollowOptions, isRefusal, type LaunchEnd } from './launch.ts'
import type { LaunchFolder } from './launch-folder.ts'
import {
  withLeftoverHint,
  submitBatch,
  type SubmitOptions,
  runWithDeadline,
} from './submit-batch.ts'

export interface ChainLink {
  readonly jobId: string
  readonly folder: LaunchFolder
}

/**
 * Submits all jobs, or none if one is refused. `optionsOf` returns the `sbatch` options of a job
 * that follows the job `after`.
 */
export async function submitChain(
  commands: SlurmCommands,
  folders: readonly LaunchFolder[],
  optionsOf: (folder: LaunchFolder, after?: string) => readonly string[],
  options: SubmitOptions,
): Promise<readonly ChainLink[]> {
  const links: ChainLink[] = []
  try {
    for (const folder of folders) {
      const batch = optionsOf(folder, links.at(-1)?.jobId)
      const jobId = await submitBatch(commands, batch, folder, options)
      links.push({ jobId, folder })
      folder.write('facts', JSON.stringify({ ...folder.facts(), jobId }))
    }
    return links
  } catch (error) {
    const { signal, clock } = options
    // After an abort, waits only briefly for a scheduler that does not answer.
    const isGone = await runWithDeadline(signal, clock, (late) =>
      cancelLinks(commands.withSignal(late), links),
    ).then(
      () => true,
      () => false,
    )
    for (const folder of folders) folder.remove()
    throw isGone ? error : withLeftoverHint(error)
  }
}

/** Returns the submitted jobs of the folder's launch. */
export const readLinks = (folder: LaunchFolder): readonly ChainLink[] =>
  folder.chain.flatMap((one) => {
    const { jobId } = one.facts() ?? {}
    return jobId === undefined ? [] : [{ jobId, folder: one }]
  })

/** Cancels the last job first, so that none starts because the one before it was canceled. */
export async function cancelLinks(
  commands: SlurmCommands,
  links: readonly ChainLink[],
): Promise<void> {
  for (const { jobId } of links.toReversed()) {
    await commands.run('scancel', jobId).catch((error: unknown) => {
      if (!isUnknownJob(error)) throw error
    })
  }
}

/** Whether the next job of a chain continues the record of a job that has ended like this. */
export const shouldContinue = (
  { code, state }: Omit<LaunchEnd, 'lost'>,
  folder: LaunchFolder,
): boolean => state !== 'CANCELLED' && folder.classifyEnd(code) === 'allocation'

export interface ChainOptions extends Omit<FollowOptions, 'jobId' | 'folder'> {
  readonly onLink: (link: ChainLink) => void
}

/**
 * Resolves with the exit code of the last job that ran; `null` if the signal was aborted. Rejects
 * with `AllocationLostError` if the last job was lost.
 */
export async function followChain(
  links: readonly ChainLink[],
  options: ChainOptions,
): Promise<number | null> {
  const { commands, view, onLink } = options
  for (const [at, link] of links.entries()) {
    onLink(link)
    const count = links.length
    const status = (line: string | null): void =>
      view.status(line === null || count === 1 ? line : `link ${at + 1} of ${count}, ${line}`)
    const rest = links.slice(at + 1)
    // Ignores failures. A job that cannot be canceled ends by itself as soon as it starts.
    const cancelRest = (): Promise<void> => cancelLinks(commands, rest).catch(() => {})
    const followed = followJob({ ...options, ...link, view: { ...view, status } })
    const end = await followed.catch(async (error: unknown) => {
      await cancelRest()
      if (isRefusal(error)) for (const { folder } of links.slice(at)) folder.remove()
      throw error
    })
    if (end === null) return null
    const [next] = rest
    if (next === undefined || !link.folder.hasStarted || !shouldContinue(end, link.folder)) {
      await cancelRest()
      if (next !== undefined && end.code !== 0) view.notice(describeStop(link, end))
      if (end.lost !== null) throw end.lost
      return end.code
    }
    const what = end.lost === null ? 'has used up its time' : `is ${end.state ?? 'lost'}`
    const nextState = (await isCanceled(next, options))
      ? 'was canceled while it waited'
      : 'continues'
    view.notice(
      `job ${link.jobId} ${what}: link ${at + 2} of ${count}, job ${next.jobId}, ${nextState}`,
    )
  }
  return null
}

/** Whether the job was canceled. A job that Slurm forgot before it started counts as canceled. */
async function isCanceled(
  { jobId, folder }: ChainLink,
  { commands, clock }: Pick<ChainOptions, 'commands' | 'clock'>,
): Promise<boolean> {
  const report = await new SlurmJob(jobId, commands, clock).report().catch(() => undefined)
  const isGone = report === null || report?.state === 'CANCELLED'
  return isGone && !folder.hasStarted
}

function describeStop({ jobId }: ChainLink, { code, lost, state }: LaunchEnd): string {
  const lostState = state ?? 'forgotten by Slurm'
  const why = lost === null ? `the script has ended with exit code ${code}` : `it is ${lostState}`
  return `job ${jobId}: ${why}; the jobs after it are canceled`
}

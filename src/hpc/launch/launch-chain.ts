/**
 * The jobs of one launch, which run one after the other. Each job waits for the end of the previous
 * one, and continues its record if the end of the allocation ended the script. Otherwise it is
 * canceled: the script ended by itself, or a user canceled a job of the chain.
 */

import { SlurmJob } from '../slurm/slurm-job.ts'
import { isUnknownJob, type SlurmCommands } from '../slurm/slurm-commands.ts'
import { isRefusal, type LaunchEnd } from './job-end.ts'
import { followJob, type FollowOptions } from './launch.ts'
import type { LaunchFolder } from './launch-folder.ts'
import {
  answerMs,
  withLeftoverHint,
  submitBatch,
  type SubmitOptions,
  within,
} from './submit-batch.ts'

/** A job of a chain, and its folder. */
export interface ChainLink {
  readonly jobId: string
  readonly folder: LaunchFolder
}

/**
 * Submits all jobs at once, so that the later ones already queue while the first one runs. If one
 * is refused, the others are canceled. `optionsOf` returns the sbatch options of a job that follows
 * the job `after`.
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
    const isGone = await cancelSoon(commands, links, options).then(
      () => true,
      () => false,
    )
    for (const folder of folders) folder.remove()
    throw isGone ? error : withLeftoverHint(error)
  }
}

/** Waits only briefly after the signal for a scheduler that does not answer. */
const cancelSoon = (
  commands: SlurmCommands,
  links: readonly ChainLink[],
  { signal, clock }: Pick<SubmitOptions, 'signal' | 'clock'>,
): Promise<void> =>
  within(signal, answerMs, clock, (late) => cancelLinks(commands.endedBy(late), links))

/** The submitted jobs of the launch to which the folder belongs. */
export const linksOf = (folder: LaunchFolder): readonly ChainLink[] =>
  folder.chain.flatMap((one) => {
    const { jobId } = one.facts() ?? {}
    return jobId === undefined ? [] : [{ jobId, folder: one }]
  })

/** Cancels the last job first, so that none starts. Jobs that have ended are ignored. */
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

/** Whether the next job continues the record of this one. */
export const shouldContinue = (
  { code, state }: Omit<LaunchEnd, 'lost'>,
  folder: LaunchFolder,
): boolean => state !== 'CANCELLED' && folder.endOf(code) === 'allocation'

export interface ChainOptions extends Omit<FollowOptions, 'jobId' | 'folder'> {
  /** Called before a job is followed. */
  readonly onLink: (link: ChainLink) => void
}

/**
 * Follows one job after the other, each from its first line of output. Resolves with the exit code
 * of the last job that ran, or with `null` if the signal aborted it. Rejects with
 * `AllocationLostError` if the last job was lost.
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
    // If canceling fails, the jobs end by themselves as soon as they start.
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
    const goes = (await isCanceled(next, options)) ? 'was canceled while it waited' : 'continues'
    view.notice(`job ${link.jobId} ${what}: link ${at + 2} of ${count}, job ${next.jobId}, ${goes}`)
  }
  return null
}

/** Whether a job was canceled before it started. Slurm forgets a canceled job after minutes. */
async function isCanceled(
  { jobId, folder }: ChainLink,
  { commands, clock }: Pick<ChainOptions, 'commands' | 'clock'>,
): Promise<boolean> {
  const report = await new SlurmJob(jobId, commands, clock).report().catch(() => undefined)
  const isGone = report === null || report?.state === 'CANCELLED'
  return isGone && !folder.hasStarted
}

function describeStop({ jobId }: ChainLink, { code, lost, state }: LaunchEnd): string {
  const gone = state ?? 'forgotten by Slurm'
  const why = lost === null ? `the script has ended with exit code ${code}` : `it is ${gone}`
  return `job ${jobId}: ${why}; the jobs after it are canceled`
}

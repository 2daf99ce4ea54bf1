/** Launches with new Slurm jobs: submitted and followed, or held for a script on this machine. */

import { basename, extname, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import {
  readCommandOf,
  readRecordOf,
  type RunRequest,
  runVariable,
  writeRequest,
} from '../../checkpoint/run-file.ts'
import { systemClock } from '../../foundation/clock.ts'
import { BackendError, ValueError } from '../../foundation/errors.ts'
import { type BatchRequest, toBatchOptions, toBatchScript } from '../../hpc/launch/batch-job.ts'
import { FolderGuard } from '../../hpc/launch/folder-jobs.ts'
import { endAllocations, PlaceholderJob, lifeMinutes } from '../../hpc/launch/placeholder-job.ts'
import {
  cancelLinks,
  type ChainLink,
  followChain,
  linksOf,
  submitChain,
} from '../../hpc/launch/launch-chain.ts'
import { LaunchFolder, launchParent } from '../../hpc/launch/launch-folder.ts'
import { SchedulerError, SlurmCommands } from '../../hpc/slurm/slurm-commands.ts'
import { launchVariable } from '../../hpc/start-method.ts'
import type { Output } from '../output.ts'
import { reportRecord, resumeCommand } from '../run/resume-command.ts'
import {
  createBeginLine,
  createStatusLine,
  Interruption,
  type InterruptionOptions,
} from './following.ts'

export interface JobCommandOptions extends Omit<BatchRequest, 'more'>, InterruptionOptions {
  readonly detach?: boolean
  /** The work folder of the agents on their nodes. */
  readonly workDir?: string
}

/** The request to Slurm and to the script. */
interface JobLaunch {
  readonly options: JobCommandOptions
  /** Additional options of sbatch. */
  readonly more: readonly string[]
  readonly request: RunRequest
}

/** Runs the script on this machine and reports its process id. */
type RunScript = (onStart: (pid: number) => void) => Promise<number>

const maxTailLength = 65_536
const variables = { facts: launchVariable, request: runVariable }

/** Runs the script on the first node of a new job; one folder per job. */
export async function submitJobs(
  { words, options, more, request }: JobLaunch & { readonly words: readonly string[] },
  folders: readonly LaunchFolder[],
  output: Output,
): Promise<number> {
  const { command } = request
  const { workDir } = options
  const optionsOf = (folder: LaunchFolder, after?: string): string[] => {
    const asked = { ...options, more, mayRequeue: true, ...(after === undefined ? {} : { after }) }
    return toBatchOptions(asked, basename(command.file), folder)
  }
  const extension = extname(import.meta.url)
  const program = (name: string): string[] => [
    process.execPath,
    fileURLToPath(new URL(`./${name}${extension}`, import.meta.url)),
  ]
  const programs = { begin: program('begin-run'), end: program('end-run') }
  const names = folders.map(({ path }) => basename(path))
  for (const [at, folder] of folders.entries()) {
    // Validates the options before anything is written.
    optionsOf(folder)
    const chain = folders.length === 1 ? {} : { chain: { at, folders: names } }
    folder.write('facts', JSON.stringify({ method: 'slurm', workDir, ...chain }))
    writeRequest(folder.file('request'), request)
    const script = { words, cwd: command.folder, variables, ...programs }
    folder.write('script', toBatchScript(script, folder))
  }
  // A signal during submission applies to all jobs, including those not yet submitted.
  const interruption = new Interruption('', options, output)
  const { signal } = interruption
  const how = { clock: systemClock, signal }
  const submitting = submitChain(new SlurmCommands(), folders, optionsOf, how)
  const links = await submitting.catch((error: unknown) => {
    interruption.release()
    return interruption.codeAfter(error)
  })
  if (typeof links === 'number') return links
  const isFollowed = options.detach !== true || signal.aborted
  if (isFollowed) return follow(links, interruption, output)
  interruption.release()
  const [job_id = '', ...later] = links.map(({ jobId }) => jobId)
  output.result({ job_id, ...(later.length === 0 ? {} : { later_job_ids: later }) }, [job_id])
  return 0
}

/** Runs the script on this machine with the nodes of a job that only holds them. */
export async function holdAndRun(
  launched: JobLaunch & { readonly run: RunScript },
  folder: LaunchFolder,
  output: Output,
): Promise<number> {
  const { more, request, run } = launched
  const { workDir } = launched.options
  const batch = toBatchOptions(
    { ...launched.options, more },
    basename(request.command.file),
    folder,
  )
  folder.write('facts', JSON.stringify({ method: 'slurm' }))
  writeRequest(folder.file('request'), request)
  return withGuard(folder, output, async (guard, commands) => {
    const interruption = new Interruption('', { cancelOnSignal: true }, output)
    const { signal } = interruption
    const onStatus = createStatusLine(output)
    const options = { batch, folder, commands, clock: systemClock, onStatus, signal }
    const opening = PlaceholderJob.open(options).finally(() => interruption.release())
    const held = await opening.catch((error: unknown) => interruption.codeAfter(error))
    if (held === null) return interruption.exitCode
    if (typeof held === 'number') return held
    try {
      const { jobId } = held
      folder.write('facts', JSON.stringify({ method: 'slurm', jobId, driver: 'here', workDir }))
      createBeginLine(output)?.(
        jobId,
        held.allocation.nodes.map(({ name }) => name),
      )
      const code = await run((pid) => guard.scriptStarted(pid))
      // A script that requests allocations itself may continue without these nodes.
      if (!folder.isElastic)
        await held.expectHeld().catch((error: unknown) => warnOfSilence(error, output))
      return code
    } finally {
      await held.close()
    }
  })
}

/** Makes sure that no job of the launch remains, even if this process is killed. */
async function withGuard(
  folder: LaunchFolder,
  output: Output,
  run: (guard: FolderGuard, commands: SlurmCommands) => Promise<number>,
): Promise<number> {
  const commands = new SlurmCommands()
  const guard = new FolderGuard(folder, commands)
  try {
    return await run(guard, commands)
  } finally {
    await endAllocations(folder, commands).catch((error: unknown) => warnOfSilence(error, output))
    guard.close()
  }
}

/** Only warns if Slurm does not answer at the end: the exit code stays that of the script. */
function warnOfSilence(error: unknown, output: Output): void {
  if (!(error instanceof SchedulerError)) throw error
  const left = `jobs that are left end within ${lifeMinutes} minutes of their start`
  output.problem(`warning: ${error.message}; ${left}`)
}

/** Runs the script on this machine; it requests nodes itself, and all of them are released. */
export async function runAlone(
  request: RunRequest,
  { workDir }: JobCommandOptions,
  run: RunScript,
  folder: LaunchFolder,
  output: Output,
): Promise<number> {
  folder.write('facts', JSON.stringify({ method: 'slurm', driver: 'here', workDir }))
  writeRequest(folder.file('request'), request)
  return withGuard(folder, output, (guard) => run((pid) => guard.scriptStarted(pid)))
}

export async function attachToJob(
  jobId: string,
  options: JobCommandOptions,
  output: Output,
): Promise<number> {
  const folder = LaunchFolder.find(resolve(launchParent), jobId)
  if (folder === null) {
    const text = `--attach: no launch of job ${jobId} in ${launchParent}`
    throw new ValueError(text, { field: '--attach' })
  }
  const links = linksOf(folder)
  return follow(links, new Interruption(links[0]?.jobId ?? '', options, output), output)
}

async function follow(
  links: readonly ChainLink[],
  interruption: Interruption,
  output: Output,
): Promise<number> {
  const commands = new SlurmCommands()
  const { signal } = interruption
  interruption.jobId = links[0]?.jobId ?? ''
  /** The end of the job's stderr, where the batch script prints how to resume. */
  let tail = ''
  const view = {
    stdout: (chunk: Buffer) => void process.stdout.write(chunk),
    stderr: (chunk: Buffer) => {
      tail = (tail + chunk.toString()).slice(-maxTailLength)
      process.stderr.write(chunk)
    },
    status: createStatusLine(output),
    notice: (line: string) => output.problem(line),
    putBack: () => {
      tail = ''
    },
    begun: createBeginLine(output),
  }
  const onLink = ({ jobId }: ChainLink): void => {
    interruption.jobId = jobId
  }
  try {
    const parts = { commands, clock: systemClock, view, signal, onLink }
    const code = await followChain(links, parts)
    if (code !== null) {
      const record = recordOf(links)
      if (record !== null) reportRecord(record, output)
      return code
    }
    const { jobId } = interruption
    const all = links.map((link) => link.jobId).join(', ')
    if (interruption.isCancel && !(await isCanceled(commands, links, output))) {
      return interruption.exitCode
    }
    const attach = `npx tutti launch --attach ${jobId}`
    const canceled = links.length === 1 ? `job ${all} is canceled` : `jobs ${all} are canceled`
    const left = `job ${jobId} continues; attach to it with: ${attach}`
    output.problem(interruption.isCancel ? canceled : left)
    if (interruption.isCancel) printResume(links, output)
    return interruption.exitCode
  } catch (error) {
    const isLost = BackendError.isInstance(error) && error.code === 'AllocationLostError'
    if (isLost && !/^resume {2}/m.test(tail)) printResume(links, output)
    throw error
  } finally {
    interruption.release()
  }
}

/** Only warns if Slurm does not answer: the exit code stays that of the signal. */
async function isCanceled(
  commands: SlurmCommands,
  links: readonly ChainLink[],
  output: Output,
): Promise<boolean> {
  try {
    await cancelLinks(commands, links)
    return true
  } catch (error) {
    if (!(error instanceof SchedulerError)) throw error
    const ids = links.map(({ jobId }) => jobId).join(' ')
    output.problem(`not canceled: ${error.message}; try: scancel ${ids}`)
    return false
  }
}

/** The record of the last job that has written one. */
const recordOf = (links: readonly ChainLink[]): string | null =>
  links.map(({ folder }) => readRecordOf(folder.file('request'))).findLast((one) => one !== null) ??
  null

/** Prints how to resume the record of a canceled job. */
function printResume(links: readonly ChainLink[], output: Output): void {
  const record = recordOf(links)
  const command = record === null ? null : readCommandOf([record])
  if (record !== null && command !== null) {
    output.problem(`resume  ${resumeCommand(record, command)}`)
  }
}

/** Launches with new Slurm jobs, which run the script or hold nodes for it. */

import { basename, extname, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { readRequestRecord, type RunRequest } from '../../checkpoint/run-file.ts'
import { runVariable, writeRequest } from '../../checkpoint/run-file.ts'
import { systemClock } from '../../foundation/clock.ts'
import { BackendError, ValueError } from '../../foundation/errors.ts'
import { type BatchRequest, toBatchOptions, toBatchScript } from '../../hpc/launch/batch-job.ts'
import { FolderGuard } from '../../hpc/launch/submit-batch.ts'
import {
  cancelAllocations,
  PlaceholderJob,
  maxSilentMinutes,
} from '../../hpc/launch/placeholder-job.ts'
import {
  cancelLinks,
  type ChainLink,
  followChain,
  readLinks,
  submitChain,
} from '../../hpc/launch/launch-chain.ts'
import { LaunchFolder, launchParent } from '../../hpc/launch/launch-folder.ts'
import { SchedulerError, SlurmCommands } from '../../hpc/slurm/slurm-commands.ts'
import { launchVariable } from '../../hpc/start-method.ts'
import type { Output } from '../output.ts'
import { reportRecord, resumeLine } from '../run/resume-command.ts'
import { openRunDashboard } from '../dashboard/run-dashboard.ts'
import { createStartNotice, createStatusLine } from './following.ts'
import { Interruption, type InterruptionOptions } from './following.ts'

export interface JobCommandOptions extends Omit<BatchRequest, 'more'>, InterruptionOptions {
  readonly detach?: boolean
  readonly workDir?: string
  readonly dashboard?: boolean
}

interface JobLaunch {
  readonly options: JobCommandOptions
  readonly more: readonly string[]
  readonly request: RunRequest
}

type RunScript = (onStart: (pid: number) => void) => Promise<number>

const maxStderrTail = 65_536
const variables = { facts: launchVariable, request: runVariable }

/**
 * Runs the script on the first node of a new job. A chain has several jobs, with one folder each.
 */
export async function submitJobs(
  { words, options, more, request }: JobLaunch & { readonly words: readonly string[] },
  folders: readonly LaunchFolder[],
  output: Output,
): Promise<number> {
  const { command } = request
  const { workDir } = options
  const optionsOf = (folder: LaunchFolder, after?: string): string[] => {
    const batchRequest = {
      ...options,
      more,
      mayRequeue: true,
      ...(after === undefined ? {} : { after }),
    }
    return toBatchOptions(batchRequest, basename(command.file), folder)
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
  // A signal during submission also applies to jobs that are not submitted yet.
  const interruption = new Interruption('', options, output)
  const { signal } = interruption
  const context = { clock: systemClock, signal }
  const submitting = submitChain(new SlurmCommands(), folders, optionsOf, context)
  const links = await submitting.catch((error: unknown) => {
    interruption.release()
    return interruption.exitCodeFor(error)
  })
  if (typeof links === 'number') return links
  const isFollowed = options.detach !== true || signal.aborted
  if (isFollowed) return follow(links, interruption, options, output)
  interruption.release()
  const [job_id = '', ...later] = links.map(({ jobId }) => jobId)
  output.result({ job_id, ...(later.length === 0 ? {} : { later_job_ids: later }) }, [job_id])
  return 0
}

/** Runs the script on this machine, with the nodes of a job that only holds them. */
export async function runWithHeldNodes(
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
    const heldJob = await opening.catch((error: unknown) => interruption.exitCodeFor(error))
    if (heldJob === null) return interruption.exitCode
    if (typeof heldJob === 'number') return heldJob
    try {
      const { jobId } = heldJob
      folder.write('facts', JSON.stringify({ method: 'slurm', jobId, driver: 'here', workDir }))
      createStartNotice(output)?.(
        jobId,
        heldJob.allocation.nodes.map(({ name }) => name),
      )
      const code = await run((pid) => guard.scriptStarted(pid))
      // Throws if the nodes were lost. This is not checked for a script that requests nodes itself,
      // because such a script may continue without the held nodes.
      if (!folder.isElastic)
        await heldJob.expectRunning().catch((error: unknown) => warnNoAnswer(error, output))
      return code
    } finally {
      await heldJob.close()
    }
  })
}

/** Calls `run`, and then ends all jobs of the launch, even if this process is killed. */
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
    await cancelAllocations(folder, commands).catch((error: unknown) => warnNoAnswer(error, output))
    guard.close()
  }
}

/** Warns that Slurm does not answer at the end. The exit code of the script stays the same. */
function warnNoAnswer(error: unknown, output: Output): void {
  if (!(error instanceof SchedulerError)) throw error
  const limitText = `jobs that are left end within ${maxSilentMinutes} minutes of their start`
  output.problem(`warning: ${error.message}; ${limitText}`)
}

/** Runs the script on this machine. The script requests nodes, which are released afterwards. */
export async function runWithoutNodes(
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
  const links = readLinks(folder)
  const interruption = new Interruption(links[0]?.jobId ?? '', options, output)
  return follow(links, interruption, options, output)
}

async function follow(
  links: readonly ChainLink[],
  interruption: Interruption,
  { dashboard }: JobCommandOptions,
  output: Output,
): Promise<number> {
  await using _ = await openRunDashboard(dashboard, () => findLastRecord(links), output)
  const commands = new SlurmCommands()
  const { signal } = interruption
  interruption.jobId = links[0]?.jobId ?? ''
  // The last part of stderr, where the batch script prints how to resume.
  let tail = ''
  const view = {
    stdout: (chunk: Buffer) => void process.stdout.write(chunk),
    stderr: (chunk: Buffer) => {
      tail = (tail + chunk.toString()).slice(-maxStderrTail)
      process.stderr.write(chunk)
    },
    status: createStatusLine(output),
    notice: (line: string) => output.problem(line),
    onRequeued: () => {
      tail = ''
    },
    onRunStarted: createStartNotice(output),
  }
  const onLink = ({ jobId }: ChainLink): void => {
    interruption.jobId = jobId
  }
  try {
    const parts = { commands, clock: systemClock, view, signal, onLink }
    const code = await followChain(links, parts)
    if (code !== null) {
      const record = findLastRecord(links)
      if (record !== null) reportRecord(record, output)
      return code
    }
    const { jobId } = interruption
    const jobIds = links.map((link) => link.jobId).join(', ')
    if (interruption.shouldCancel && !(await tryCancel(commands, links, output))) {
      return interruption.exitCode
    }
    const attach = `npx tutti launch --attach ${jobId}`
    const canceled =
      links.length === 1 ? `job ${jobIds} is canceled` : `jobs ${jobIds} are canceled`
    const continues = `job ${jobId} continues; attach to it with: ${attach}`
    output.problem(interruption.shouldCancel ? canceled : continues)
    if (interruption.shouldCancel) printResume(links, output)
    return interruption.exitCode
  } catch (error) {
    const isLost = BackendError.isInstance(error) && error.code === 'AllocationLostError'
    if (isLost && !/^resume {2}/m.test(tail)) printResume(links, output)
    throw error
  } finally {
    interruption.release()
  }
}

/**
 * Cancels the jobs. If Slurm does not answer, prints how to cancel them and resolves with `false`.
 */
async function tryCancel(
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

const findLastRecord = (links: readonly ChainLink[]): string | null =>
  links
    .map(({ folder }) => readRequestRecord(folder.file('request')))
    .findLast((one) => one !== null) ?? null

function printResume(links: readonly ChainLink[], output: Output): void {
  const line = resumeLine(findLastRecord(links))
  if (line !== null) output.problem(line)
}

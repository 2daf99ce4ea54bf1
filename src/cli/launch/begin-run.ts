/**
 * Called by the batch script of a launch before every run but the first: Slurm has requeued the
 * job, or it is a later job of a chain. Makes the script resume the record of the earlier runs.
 * Prints `stop` if the script must not run.
 */

import { dirname } from 'node:path'
import { findLastFile, readSessionStart } from '../../checkpoint/chain.ts'
import { expectUnlocked, lockPathOf, remoteJobOf } from '../../checkpoint/lock.ts'
import { parseRecordPath, recordsIn } from '../../checkpoint/record-names.ts'
import { readRequest, readRecordOf, writeRequest } from '../../checkpoint/run-file.ts'
import { systemClock } from '../../foundation/clock.ts'
import { messageOf, StateError, TuttiError } from '../../foundation/errors.ts'
import { type ChainLink, shouldContinue, linksOf } from '../../hpc/launch/launch-chain.ts'
import { LaunchFolder } from '../../hpc/launch/launch-folder.ts'
import { SlurmCommands } from '../../hpc/slurm/slurm-commands.ts'
import { SlurmJob } from '../../hpc/slurm/slurm-job.ts'
import { exitCodes } from '../exit.ts'
import { createOutput, type Output } from '../output.ts'
import { endedJobOf } from '../reading/record-writer.ts'

/** Resume options for a request that had none, if there is a record by now. */
const asRecorded = { changed: 'refuse', keep_failed: false } as const

/** Resolves with whether the script should run. */
async function beginRun(folder: LaunchFolder, output: Output): Promise<boolean> {
  const { place, chain } = folder
  const links = linksOf(folder).slice(0, place + 1)
  const jobId = process.env['SLURM_JOB_ID'] ?? ''
  const link = `link ${place + 1} of ${chain.length} (job ${jobId})`
  const name = chain.length === 1 ? `job ${jobId}` : link
  if (!folder.hasStarted) {
    const why = await whyStop(links.at(-2))
    if (why !== null) {
      output.problem(`${name} does not begin: ${why}`)
      return false
    }
  }
  const request = readRequest(folder.file('request'))
  if (request === null) throw new StateError(`${folder.file('request')} is missing or damaged`)
  const folders = chain.slice(0, place + 1)
  const record = await findRecord(folders, request.session_id ?? '', jobId)
  const resume = record === null ? request.resume : { ...asRecorded, ...request.resume, ...record }
  writeRequest(folder.file('request'), { ...request, resume })
  const what = folder.hasStarted ? ' was put back into the queue, and' : ''
  const how =
    resume === null
      ? 'starts from the beginning: nothing was recorded'
      : `continues ${resume.record}`
  output.problem(`${name}${what} ${how}`)
  return true
}

/** Why this job must not run; `null` if the previous job could not finish the run. */
async function whyStop(before: ChainLink | undefined): Promise<string | null> {
  if (before === undefined || !before.folder.hasStarted) return 'the previous job was canceled'
  const { jobId, folder } = before
  const job = new SlurmJob(jobId, new SlurmCommands(), systemClock)
  // Some minutes after the end of a job, Slurm no longer knows it.
  const report = await job.report().catch(() => null)
  const code = folder.exitCode()
  if (shouldContinue({ code, state: report?.state ?? null }, folder)) return null
  const isOwn = folder.endOf(code) === 'own'
  return isOwn ? `the script has ended with exit code ${code}` : `job ${jobId} was canceled`
}

/** The last record that the runs of these folders have written; `null` if there is none. */
async function findRecord(
  folders: readonly LaunchFolder[],
  sessionId: string,
  ownJob: string,
): Promise<{ readonly record: string; readonly session_id: string } | null> {
  const named = folders.map((one) => readRecordOf(one.file('request'))).findLast((one) => one)
  // Records are beside the launch folders, unless the script chose another folder.
  const place = dirname(named ?? folders[0]?.path ?? '')
  const id = (named && parseRecordPath(named)?.sessionId) || sessionId
  const lock = lockPathOf(place, id)
  const holder = remoteJobOf(lock)
  const jobs = folders.map((one) => one.facts()?.jobId)
  // Slurm has ended the earlier runs, otherwise this one could not have started.
  const isEarlier = holder !== null && (holder.id === ownJob || jobs.includes(holder.id))
  expectUnlocked(lock, isEarlier ? holder : await endedJobOf(lock))
  const last = await findLastFile(recordsIn(place).filter((one) => one.sessionId === id))
  if (last === null) return null
  const started = await readSessionStart(last.path)
  return { record: last.path, session_id: started?.session_id ?? id }
}

const output = createOutput('text', process.stdout, process.stderr)
try {
  const isStop = !(await beginRun(new LaunchFolder(process.argv[2] ?? ''), output))
  if (isStop) process.stdout.write('stop\n')
} catch (error) {
  if (TuttiError.isInstance(error)) output.failure(error)
  else output.problem(messageOf(error))
  process.exitCode = exitCodes.usage
}

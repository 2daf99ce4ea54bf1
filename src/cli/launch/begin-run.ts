/**
 * Called by the batch script of a launch if the job was requeued, or if it is a later job of a
 * chain. Makes the script resume the earlier record. Prints `stop` if the script must not run.
 */

import { dirname } from 'node:path'
import { findLastFile, readSessionStart } from '../../checkpoint/chain.ts'
import { expectUnlocked, lockPathOf, readRemoteJob } from '../../checkpoint/lock.ts'
import { parseRecordPath, listRecords } from '../../checkpoint/record-names.ts'
import { readRequest, readRequestRecord, writeRequest } from '../../checkpoint/run-file.ts'
import { systemClock } from '../../foundation/clock.ts'
import { messageOf, StateError, TuttiError } from '../../foundation/errors.ts'
import { type ChainLink, shouldContinue, readLinks } from '../../hpc/launch/launch-chain.ts'
import { LaunchFolder } from '../../hpc/launch/launch-folder.ts'
import { SlurmCommands } from '../../hpc/slurm/slurm-commands.ts'
import { SlurmJob } from '../../hpc/slurm/slurm-job.ts'
import { exitCodes } from '../exit.ts'
import { createOutput, type Output } from '../output.ts'
import { findEndedJob } from '../reading/record-writer.ts'

/** The options with which a record is resumed if the first request was for a new run. */
const defaultResume = { changed: 'refuse', keep_failed: false } as const

async function beginRun(folder: LaunchFolder, output: Output): Promise<boolean> {
  const { chainIndex, chain } = folder
  const links = readLinks(folder).slice(0, chainIndex + 1)
  const jobId = process.env['SLURM_JOB_ID'] ?? ''
  const link = `link ${chainIndex + 1} of ${chain.length} (job ${jobId})`
  const name = chain.length === 1 ? `job ${jobId}` : link
  if (!folder.hasStarted) {
    const stopReason = await findStopReason(links.at(-2))
    if (stopReason !== null) {
      output.problem(`${name} does not begin: ${stopReason}`)
      return false
    }
  }
  const request = readRequest(folder.file('request'))
  if (request === null) throw new StateError(`${folder.file('request')} is missing or damaged`)
  const folders = chain.slice(0, chainIndex + 1)
  const record = await findLastRecord(folders, request.session_id ?? '', jobId)
  const resume =
    record === null ? request.resume : { ...defaultResume, ...request.resume, ...record }
  writeRequest(folder.file('request'), { ...request, resume })
  const requeueText = folder.hasStarted ? ' was put back into the queue, and' : ''
  const startText =
    resume === null
      ? 'starts from the beginning: nothing was recorded'
      : `continues ${resume.record}`
  output.problem(`${name}${requeueText} ${startText}`)
  return true
}

async function findStopReason(before: ChainLink | undefined): Promise<string | null> {
  if (before === undefined || !before.folder.hasStarted) return 'the previous job was canceled'
  const { jobId, folder } = before
  const job = new SlurmJob(jobId, new SlurmCommands(), systemClock)
  // Ignores errors, because Slurm forgets a job some minutes after its end.
  const report = await job.report().catch(() => null)
  const code = folder.exitCode()
  if (shouldContinue({ code, state: report?.state ?? null }, folder)) return null
  const isOwn = folder.classifyEnd(code) === 'own'
  return isOwn ? `the script has ended with exit code ${code}` : `job ${jobId} was canceled`
}

async function findLastRecord(
  folders: readonly LaunchFolder[],
  sessionId: string,
  ownJob: string,
): Promise<{ readonly record: string; readonly session_id: string } | null> {
  const named = folders.map((one) => readRequestRecord(one.file('request'))).findLast((one) => one)
  // Records are next to the launch folders, unless the script chose another folder.
  const recordFolder = dirname(named ?? folders[0]?.path ?? '')
  const id = (named && parseRecordPath(named)?.sessionId) || sessionId
  const lock = lockPathOf(recordFolder, id)
  const holder = readRemoteJob(lock)
  const jobs = folders.map((one) => one.facts()?.jobId)
  // The earlier jobs have ended, because Slurm has started this one.
  const isEarlier = holder !== null && (holder.id === ownJob || jobs.includes(holder.id))
  expectUnlocked(lock, isEarlier ? holder : await findEndedJob(lock))
  const last = await findLastFile(listRecords(recordFolder).filter((one) => one.sessionId === id))
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

/**
 * Called by the batch script of a launch after its script has ended: cancels later jobs of a chain
 * that are not needed, and prints how to resume unless the run continues by itself. Arguments: the
 * folder of the launch, and the exit code.
 */

import { readCommandOf, readRecordOf } from '../../checkpoint/run-file.ts'
import { systemClock } from '../../foundation/clock.ts'
import { cancelLinks, linksOf } from '../../hpc/launch/launch-chain.ts'
import { LaunchFolder } from '../../hpc/launch/launch-folder.ts'
import { parseFields, phaseOf } from '../../hpc/slurm/job-report.ts'
import { SlurmCommands } from '../../hpc/slurm/slurm-commands.ts'
import { SlurmJob } from '../../hpc/slurm/slurm-job.ts'
import { resumeCommand } from '../run/resume-command.ts'

const [, , path = '', code = '0'] = process.argv
const folder = new LaunchFolder(path)
const commands = new SlurmCommands()
const later = linksOf(folder).slice(folder.place + 1)
const isOver = folder.endOf(Number(code)) !== 'allocation'
// A job that cannot be canceled from here ends by itself right after its start.
if (isOver) await cancelLinks(commands, later).catch(() => {})
const isDone = code === '0' && !folder.hasEnded
if (!isDone && (isOver || !((await isPutBack()) || (await isFollowed())))) printResume()

/**
 * Whether Slurm requeues the job: then it has counted another restart. Also `true` if Slurm does
 * not answer, because the command that follows the job then prints how to resume.
 */
async function isPutBack(): Promise<boolean> {
  const { SLURM_JOB_ID: id = '', SLURM_RESTART_COUNT: count = '0' } = process.env
  const text = await commands.ask('scontrol', 'show', 'job', id).catch(() => null)
  return text === null || Number(parseFields(text).get('Restarts') ?? 0) > Number(count)
}

/** Whether the next job of the chain is waiting. */
async function isFollowed(): Promise<boolean> {
  const [next] = later
  if (next === undefined) return false
  const report = await new SlurmJob(next.jobId, commands, systemClock).report().catch(() => null)
  return report !== null && phaseOf(report) === 'waiting'
}

function printResume(): void {
  const record = readRecordOf(folder.file('request'))
  const command = record === null ? null : readCommandOf([record])
  if (record === null || command === null) return
  process.stdout.write(`resume  ${resumeCommand(record, command)}\n`)
}

/**
 * Run by the batch script of a launch when its script has ended: cancels the later jobs of a chain
 * if they are not needed, and prints how to go on, unless the run goes on by itself. Its arguments
 * are the folder of the launch and the exit code.
 */

import { readCommandOf, readToldRecord } from '../../checkpoint/run-file.ts'
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
// A job that cannot be canceled from here ends as soon as it begins.
if (isOver) await cancelLinks(commands, later).catch(() => {})
const isDone = code === '0' && !folder.hasEnded
if (!isDone && (isOver || !((await isPutBack()) || (await isFollowed())))) tellResume()

/**
 * Slurm counts a restart when it ends the job for it. Without an answer it may be one: whoever
 * follows the job tells how to go on, if it does not go on by itself.
 */
async function isPutBack(): Promise<boolean> {
  const { SLURM_JOB_ID: id = '', SLURM_RESTART_COUNT: count = '0' } = process.env
  const text = await commands.ask('scontrol', 'show', 'job', id).catch(() => null)
  return text === null || Number(parseFields(text).get('Restarts') ?? 0) > Number(count)
}

/** Whether the next job of the chain waits. */
async function isFollowed(): Promise<boolean> {
  const [next] = later
  if (next === undefined) return false
  const report = await new SlurmJob(next.jobId, commands, systemClock).report().catch(() => null)
  return report !== null && phaseOf(report) === 'waiting'
}

function tellResume(): void {
  const record = readToldRecord(folder.file('request'))
  const command = record === null ? null : readCommandOf([record])
  if (record === null || command === null) return
  process.stdout.write(`resume  ${resumeCommand(record, command)}\n`)
}

/**
 * Called by the batch script of a launch after the script has ended. Cancels later jobs that are
 * not needed, and prints how to resume unless another job continues the run. The arguments are the
 * folder of the launch and the exit code.
 */

import { readRequestRecord } from '../../checkpoint/run-file.ts'
import { systemClock } from '../../foundation/clock.ts'
import { cancelLinks, readLinks } from '../../hpc/launch/launch-chain.ts'
import { LaunchFolder } from '../../hpc/launch/launch-folder.ts'
import { parseFields, phaseOf } from '../../hpc/slurm/slurm-output.ts'
import { SlurmCommands } from '../../hpc/slurm/slurm-commands.ts'
import { SlurmJob } from '../../hpc/slurm/slurm-job.ts'
import { resumeLine } from '../run/resume-command.ts'

const [, , path = '', code = '0'] = process.argv
const folder = new LaunchFolder(path)
const commands = new SlurmCommands()
const later = readLinks(folder).slice(folder.chainIndex + 1)
const isOver = folder.classifyEnd(Number(code)) !== 'allocation'
// Ignores failures. A later job that is not canceled ends right after its start.
if (isOver) await cancelLinks(commands, later).catch(() => {})
const isDone = code === '0' && !folder.hasLostTasks
if (!isDone && (isOver || !((await isRequeued()) || (await hasNextJob())))) printResume()

/**
 * Whether Slurm has requeued the job, which increases its restart count. Returns `true` if Slurm
 * does not answer; the command that follows the job then prints how to resume.
 */
async function isRequeued(): Promise<boolean> {
  const { SLURM_JOB_ID: id = '', SLURM_RESTART_COUNT: count = '0' } = process.env
  const text = await commands.query('scontrol', 'show', 'job', id).catch(() => null)
  return text === null || Number(parseFields(text).get('Restarts') ?? 0) > Number(count)
}

async function hasNextJob(): Promise<boolean> {
  const [next] = later
  if (next === undefined) return false
  const report = await new SlurmJob(next.jobId, commands, systemClock).report().catch(() => null)
  return report !== null && phaseOf(report) === 'waiting'
}

function printResume(): void {
  const line = resumeLine(readRequestRecord(folder.file('request')))
  if (line !== null) process.stdout.write(`${line}\n`)
}

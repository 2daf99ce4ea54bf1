/**
 * The jobs whose batch scripts are in the folder of a launch. Slurm reports the script of a job, so
 * the jobs are found even if their ids are unknown: `sbatch` may be killed, or its answer be lost,
 * after it has submitted a job.
 */

import { spawn } from 'node:child_process'
import type { Clock } from '../../foundation/clock.ts'
import { poll } from '../../runtime/retry.ts'
import { SchedulerError, type SlurmCommands } from '../slurm/slurm-commands.ts'
import type { LaunchFolder } from './launch-folder.ts'

const listing = ['-h', '--me', '-o', '%i %o']

/** Cancels the folder's jobs and those with the given ids. Jobs that have ended are ignored. */
export async function cancelJobsOf(
  folder: LaunchFolder,
  commands: SlurmCommands,
  known: readonly string[] = [],
): Promise<void> {
  const found = await commands.ask('squeue', ...listing)
  const ids = new Set([...known, ...parseJobsOf(folder.path, found)])
  if (ids.size > 0) await commands.run('scancel', '--quiet', ...ids)
}

/** Parses the ids of the jobs from lines of an id and the path of the batch script. */
export function parseJobsOf(path: string, output: string): string[] {
  return output.split('\n').flatMap((line) => {
    const [, id = '', script = ''] = /^(\S+) (.*)$/.exec(line) ?? []
    return script.startsWith(`${path}/`) ? [id] : []
  })
}

/** Whether `sbatch` may have submitted a job although it failed. */
export function mayHaveSubmitted(error: unknown): error is SchedulerError {
  if (!(error instanceof SchedulerError)) return false
  const isSilent = error.code === 'SchedulerTimeoutError' || error.code === 'SchedulerOutputError'
  return isSilent || /timed out/i.test(error.stderr)
}

/** The time between two searches for a job that may have been submitted. */
const lookMs = 5000

export interface WithdrawOptions {
  readonly clock: Clock
  /** How long to keep asking a scheduler that does not answer. */
  readonly maxMs: number
  /** Stops the attempts. */
  readonly signal?: AbortSignal
}

/**
 * Call after `mayHaveSubmitted`: a controller that did not answer may process the request later and
 * create a job that no process follows. Finds and cancels that job. Searches twice, because the
 * controller may answer the first search before it processes the request. Resolves with whether it
 * is certain that no job is left.
 */
export async function withdrawRequest(
  folder: LaunchFolder,
  commands: SlurmCommands,
  { clock, maxMs, signal }: WithdrawOptions,
): Promise<boolean> {
  const untilMs = clock.monotonicMs() + maxMs
  let answers = 0
  const search = async (): Promise<'canceled' | 'unanswered' | false> => {
    try {
      await cancelJobsOf(folder, commands)
      return ++answers === 2 && 'canceled'
    } catch {
      return clock.monotonicMs() >= untilMs && 'unanswered'
    }
  }
  return (await poll({ delayMs: lookMs }, search, { clock, signal })) === 'canceled'
}

/** Searches twice, to find a job that the script's `sbatch` submitted while it was being killed. */
const guardScript = `pid=
while read -r line; do
  [ "$line" != end ] || exit 0
  pid=$line
done
lives() { kill -0 "$pid" && case "$(ps -o stat= -p "$pid")" in Z*) false ;; esac; }
while [ -n "$pid" ] && lives; do sleep 1; done
for _ in 1 2; do
  squeue ${listing.map((word) => `'${word}'`).join(' ')} | while read -r id script; do
    case "$script" in "$0"/*) scancel --quiet "$id" ;; esac
  done
  sleep 5
done`

/**
 * Cancels the jobs of a folder if this process is killed, as soon as its script has ended. A shell
 * waits for the end of a pipe that only this process holds open.
 */
export class FolderGuard {
  readonly #shell

  constructor(folder: LaunchFolder, commands: SlurmCommands) {
    this.#shell = spawn('/bin/sh', ['-c', guardScript, folder.path], {
      stdio: ['pipe', 'ignore', 'ignore'],
      detached: true,
      env: commands.env,
    })
    // If the shell cannot be started, the launch continues without it.
    this.#shell.on('error', () => {})
    this.#shell.stdin.on('error', () => {})
  }

  /** The process id of the script, which may release its nodes by itself. */
  scriptStarted(pid: number): void {
    this.#shell.stdin.write(`${pid}\n`)
  }

  /** Ends the shell; nothing is canceled from now on. */
  close(): void {
    this.#shell.stdin.end('end\n')
  }
}

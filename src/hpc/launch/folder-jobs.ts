/**
 * The jobs whose batch scripts are in the folder of a launch. Slurm names the script of a job, so
 * they are found without their ids: `sbatch` may be ended, or its answer be lost, after it has
 * submitted one.
 */

import { spawn } from 'node:child_process'
import { type Clock, sleep } from '../../foundation/clock.ts'
import { SchedulerError, type SlurmCommands } from '../slurm/slurm-commands.ts'
import type { LaunchFolder } from './launch-folder.ts'

const listing = ['-h', '--me', '-o', '%i %o']

/** Cancels them, with those of the given ids. Fine for jobs that have ended. */
export async function cancelJobsOf(
  folder: LaunchFolder,
  commands: SlurmCommands,
  known: readonly string[] = [],
): Promise<void> {
  const found = await commands.ask('squeue', ...listing)
  const ids = new Set([...known, ...parseJobsOf(folder.path, found)])
  if (ids.size > 0) await commands.run('scancel', '--quiet', ...ids)
}

/** Their ids, from lines of an id and the path of the batch script. */
export function parseJobsOf(path: string, output: string): string[] {
  return output.split('\n').flatMap((line) => {
    const [, id = '', script = ''] = /^(\S+) (.*)$/.exec(line) ?? []
    return script.startsWith(`${path}/`) ? [id] : []
  })
}

/** Whether `sbatch` may have submitted a job although it has failed. */
export function mayHaveSubmitted(error: unknown): error is SchedulerError {
  if (!(error instanceof SchedulerError)) return false
  const isSilent = error.code === 'SchedulerTimeoutError' || error.code === 'SchedulerOutputError'
  return isSilent || /timed out/i.test(error.stderr)
}

/** Between two looks for a job that may have been submitted. */
const lookMs = 5000

export interface WithdrawOptions {
  readonly clock: Clock
  /** How long a scheduler that does not answer is asked. */
  readonly longestMs: number
  /** Ends the tries. */
  readonly signal?: AbortSignal
}

/**
 * After `mayHaveSubmitted`: a controller that did not answer takes the request, when it goes on,
 * and makes a job that nobody follows. It is canceled, by a second look also if the controller has
 * answered a first question before that request. Resolves with whether none is left.
 */
export async function withdrawRequest(
  folder: LaunchFolder,
  commands: SlurmCommands,
  { clock, longestMs, signal }: WithdrawOptions,
): Promise<boolean> {
  const startMs = clock.monotonicMs()
  for (let answers = 0; ;) {
    const hasAnswered = await cancelJobsOf(folder, commands).then(
      () => true,
      () => false,
    )
    if (hasAnswered && ++answers === 2) return true
    const isOver = clock.monotonicMs() - startMs >= longestMs
    if (isOver && !hasAnswered) return false
    if (signal?.aborted === true) return false
    await sleep(clock, lookMs, signal === undefined ? {} : { signal }).catch(() => {})
  }
}

/** A second look finds what an `sbatch` of the script has submitted while that was killed. */
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
 * Cancels the jobs of a folder when this process is killed, as soon as its script has ended: a
 * shell waits for the end of a pipe that only this process holds.
 */
export class FolderGuard {
  readonly #shell

  constructor(folder: LaunchFolder, commands: SlurmCommands) {
    this.#shell = spawn('/bin/sh', ['-c', guardScript, folder.path], {
      stdio: ['pipe', 'ignore', 'ignore'],
      detached: true,
      env: commands.env,
    })
    // Without it the launch goes on nevertheless.
    this.#shell.on('error', () => {})
    this.#shell.stdin.on('error', () => {})
  }

  /** That of the script, which may give its nodes back by itself. */
  scriptStarted(pid: number): void {
    this.#shell.stdin.write(`${pid}\n`)
  }

  /** Ends it; from now on nothing is canceled. */
  close(): void {
    this.#shell.stdin.end('end\n')
  }
}

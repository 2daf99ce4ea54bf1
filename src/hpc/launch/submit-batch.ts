/**
 * Submits batch scripts. Finds the jobs whose scripts are in the folder of a launch, even if the
 * answer of `sbatch` with a job's id was lost.
 */

import { spawn } from 'node:child_process'
import type { Clock } from '../../foundation/clock.ts'
import { poll, type RepeatOptions } from '../../runtime/retry.ts'
import { SchedulerError, type SlurmCommands, unexpectedOutput } from '../slurm/slurm-commands.ts'
import type { LaunchFolder } from './launch-folder.ts'

const withdrawMs = 60_000
/** How long to wait for an answer after an abort. */
const answerTimeoutMs = 10_000

export interface SubmitOptions {
  readonly clock: Clock
  /** How long to search for the job if `sbatch` got no answer; 0 disables the search. */
  readonly withdrawMs?: number | undefined
  /** After an abort, the submission waits only briefly for a scheduler that does not answer. */
  readonly signal: AbortSignal
}

/** Resolves with the job's id. If it rejects, no job is left, unless the error says otherwise. */
export async function submitBatch(
  commands: SlurmCommands,
  batch: readonly string[],
  folder: LaunchFolder,
  { clock, withdrawMs: timeoutMs = withdrawMs, signal }: SubmitOptions,
): Promise<string> {
  try {
    return await runWithDeadline(signal, clock, (late) => {
      return runSbatch(commands.withSignal(late), batch, folder)
    })
  } catch (error) {
    if (!mayHaveSubmitted(error) || timeoutMs === 0) throw error
    const isGone = await runWithDeadline(signal, clock, (late) => {
      return withdrawRequest(folder, commands.withSignal(late), { clock, timeoutMs, signal: late })
    })
    throw isGone ? error : withLeftoverHint(error)
  }
}

/** Calls `run` with a signal that is aborted `answerTimeoutMs` after `signal`. */
export async function runWithDeadline<T>(
  signal: AbortSignal,
  clock: Clock,
  run: (late: AbortSignal) => Promise<T>,
): Promise<T> {
  const lateAbort = new AbortController()
  let cancel = (): void => {}
  const startTimer = (): void => {
    cancel = clock.after(answerTimeoutMs, () => lateAbort.abort())
  }
  if (signal.aborted) startTimer()
  else signal.addEventListener('abort', startTimer, { once: true })
  try {
    return await run(lateAbort.signal)
  } finally {
    signal.removeEventListener('abort', startTimer)
    cancel()
  }
}

/**
 * Adds the hint that a job may be left. Such a job ends when it starts, because its folder is gone.
 */
export function withLeftoverHint(error: unknown): unknown {
  if (!(error instanceof SchedulerError)) return error
  const { message, code, command, stderr } = error
  const hint = 'Slurm may have taken the job nevertheless: look with squeue, and cancel it.'
  return new SchedulerError(message, { code, command, stderr, hint })
}

async function runSbatch(
  commands: SlurmCommands,
  batch: readonly string[],
  folder: LaunchFolder,
): Promise<string> {
  const output = await commands.submit(...batch, folder.file('script'))
  // Ignores the cluster's name, and other lines that a site may print.
  const ids = output.split('\n').flatMap((line) => /^(\d+)(?:;\S+)?$/.exec(line.trim())?.[1] ?? [])
  const [id] = ids
  if (id === undefined || ids.length > 1) throw unexpectedOutput('sbatch --parsable', output)
  return id
}

const listOptions = ['-h', '--me', '-o', '%i %o']

/** Cancels the folder's jobs and the given jobs. Ignores jobs that have ended. */
export async function cancelFolderJobs(
  folder: LaunchFolder,
  commands: SlurmCommands,
  known: readonly string[] = [],
): Promise<void> {
  const found = await commands.query('squeue', ...listOptions)
  const ids = new Set([...known, ...parseFolderJobs(folder.path, found)])
  if (ids.size > 0) await commands.run('scancel', '--quiet', ...ids)
}

/** Each line of `output` has a job id and the path of the job's batch script. */
export function parseFolderJobs(path: string, output: string): string[] {
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

const searchIntervalMs = 5000

/**
 * Cancels the job of an unanswered request. Searches twice, because the controller may answer
 * before it processes the request. Resolves with `true` if certainly no job is left.
 */
export async function withdrawRequest(
  folder: LaunchFolder,
  commands: SlurmCommands,
  { clock, timeoutMs, signal }: RepeatOptions & { readonly timeoutMs: number },
): Promise<boolean> {
  const untilMs = clock.monotonicMs() + timeoutMs
  let answers = 0
  const search = async (): Promise<'canceled' | 'unanswered' | false> => {
    try {
      await cancelFolderJobs(folder, commands)
      return ++answers === 2 && 'canceled'
    } catch {
      return clock.monotonicMs() >= untilMs && 'unanswered'
    }
  }
  return (await poll({ delayMs: searchIntervalMs }, search, { clock, signal })) === 'canceled'
}

/**
 * The script of `FolderGuard`. Searches for jobs twice, because a killed `sbatch` may still have
 * submitted one.
 */
const guardScript = `pid=
while read -r line; do
  [ "$line" != end ] || exit 0
  pid=$line
done
lives() { kill -0 "$pid" && case "$(ps -o stat= -p "$pid")" in Z*) false ;; esac; }
while [ -n "$pid" ] && lives; do sleep 1; done
for _ in 1 2; do
  squeue ${listOptions.map((word) => `'${word}'`).join(' ')} | while read -r id script; do
    case "$script" in "$0"/*) scancel --quiet "$id" ;; esac
  done
  sleep 5
done`

/**
 * A shell that cancels the jobs of a folder if this process is killed, but not before the launched
 * script has ended. The shell detects the kill when the pipe from this process closes.
 */
export class FolderGuard {
  readonly #shell

  constructor(folder: LaunchFolder, commands: SlurmCommands) {
    this.#shell = spawn('/bin/sh', ['-c', guardScript, folder.path], {
      stdio: ['pipe', 'ignore', 'ignore'],
      detached: true,
      env: commands.env,
    })
    // The launch continues without the shell if it cannot be started.
    this.#shell.on('error', () => {})
    this.#shell.stdin.on('error', () => {})
  }

  /** Makes the shell wait for this script, which may release its nodes by itself. */
  scriptStarted(pid: number): void {
    this.#shell.stdin.write(`${pid}\n`)
  }

  /** Ends the shell without canceling anything. */
  close(): void {
    this.#shell.stdin.end('end\n')
  }
}

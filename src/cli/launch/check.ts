/** `tutti launch --check`: tries a launch on one node and reports what is missing. */

import { rmSync } from 'node:fs'
import { resolve } from 'node:path'
import { findNatsServer } from '../../cluster/broker/nats-program.ts'
import { systemClock } from '../../foundation/clock.ts'
import { BackendError, messageOf, TuttiError } from '../../foundation/errors.ts'
import { newUuid } from '../../foundation/ids.ts'
import { type BatchRequest, toBatchOptions } from '../../hpc/launch/batch-job.ts'
import { type LaunchCheck, readChecks, toCheckScript } from '../../hpc/launch/check-script.ts'
import { toFirstNodeCommand, type PlacedCommand } from '../../hpc/launch/first-node.ts'
import { readHostFile } from '../../hpc/host-list-allocation.ts'
import { followLaunch } from '../../hpc/launch/launch.ts'
import { LaunchFolder, launchParent } from '../../hpc/launch/launch-folder.ts'
import { submitBatch } from '../../hpc/launch/submit-batch.ts'
import { parseFields } from '../../hpc/slurm/slurm-output.ts'
import { SlurmCommands } from '../../hpc/slurm/slurm-commands.ts'
import { SlurmJob } from '../../hpc/slurm/slurm-job.ts'
import { countText } from '../../views/readable.ts'
import { exitCodes } from '../exit.ts'
import type { Output } from '../output.ts'
import { runScriptChild } from '../script-child.ts'
import { createStatusLine, Interruption } from './following.ts'

export interface CheckOptions extends Omit<BatchRequest, 'more'> {
  /** A file with host names, used instead of Slurm. */
  readonly hosts?: string
  readonly workDir?: string
}

const jobMinutes = '2'
/** Leaves time to cancel the job, so that the command ends within a minute. */
const checkTimeoutMs = 50_000
const commandTimeoutSeconds = 10
const pollIntervalMs = 100

/** `more` are additional options of sbatch. */
export async function checkLaunch(
  options: CheckOptions,
  more: readonly string[],
  output: Output,
): Promise<number> {
  const folder = LaunchFolder.of(resolve(launchParent), `check-${newUuid().slice(0, 8)}`)
  const batch = toBatchOptions({ ...options, more }, 'tutti-check', folder)
  const hosts = options.hosts === undefined ? null : readHostFile(options.hosts)
  const jobId = process.env['SLURM_JOB_ID']
  const method = hosts === null ? 'slurm' : 'hosts'
  const facts = { method, jobId, hosts: hosts?.slice(0, 1), workDir: options.workDir }
  const place = runCheck('record folder', () => {
    folder.write('facts', JSON.stringify(facts))
    return folder.path
  })
  const server = runCheck('nats-server', findNatsServer)
  try {
    // Without the folder, no checks can run on the node.
    if (place.state !== 'ok') return printChecks([place, server], output)
    const checks = [server]
    using trial = new CheckRun(folder, checks, output)
    if (hosts !== null) await trial.runLocally(['sh', '-c', trial.script])
    else if (jobId !== undefined) await trial.runInJob(jobId)
    else {
      const oneNode = toBatchOptions(
        { ...options, nodes: 1, time: jobMinutes, more },
        'tutti-check',
        folder,
      )
      const code = await trial.runInNewJob(batch, oneNode)
      if (code !== null) return code
    }
    return printChecks(checks, output)
  } finally {
    rmSync(folder.path, { recursive: true, force: true })
  }
}

class CheckRun {
  readonly script: string
  readonly #folder: LaunchFolder
  readonly #checks: LaunchCheck[]
  readonly #output: Output
  readonly #commands = new SlurmCommands({ timeoutSeconds: commandTimeoutSeconds })
  readonly #status: (line: string | null) => void
  readonly #timeout = new AbortController()
  readonly #cancelTimers: (() => void)[] = []

  constructor(folder: LaunchFolder, checks: LaunchCheck[], output: Output) {
    this.script = toCheckScript(folder, process.cwd())
    this.#folder = folder
    this.#checks = checks
    this.#output = output
    this.#status = createStatusLine(output)
    this.#cancelTimers.push(systemClock.after(checkTimeoutMs, () => this.#timeout.abort()))
    this.#showProgress()
  }

  [Symbol.dispose](): void {
    this.#status(null)
    for (const cancel of this.#cancelTimers) cancel()
  }

  #showProgress(): void {
    const checks = this.#folder.hasStarted ? readChecks(this.#folder, 0, 'the node') : []
    const last = checks.at(-1)
    if (last !== undefined) this.#status(`${last.where}: ${last.name} ${last.state}, continuing`)
    this.#cancelTimers[1] = systemClock.after(pollIntervalMs, () => this.#showProgress())
  }

  async runLocally(command: readonly string[], stop: PlacedCommand['stop'] = null): Promise<void> {
    this.#status('checking the first node')
    const { signal } = this.#timeout
    const onStart = (pid: number): void => {
      signal.addEventListener('abort', () => void process.kill(pid, 'SIGTERM'), { once: true })
    }
    const code = await runScriptChild(command, { env: {}, stdout: 'ignore', stop, onStart })
    this.#checks.push(...readChecks(this.#folder, signal.aborted ? null : code, 'here'))
  }

  async runInJob(jobId: string): Promise<void> {
    try {
      const words = ['sh', '-c', this.script]
      const pidFile = this.#folder.file('pid')
      const nodeCommand = await toFirstNodeCommand(
        jobId,
        words,
        { pidFile },
        this.#commands,
        systemClock,
      )
      await this.runLocally(nodeCommand.words, nodeCommand.stop)
    } catch (error) {
      this.#checks.push(toProblem('job', error))
    }
  }

  /** Resolves with the exit code for the signal that stopped the check; `null` if no signal did. */
  async runInNewJob(batch: readonly string[], oneNode: readonly string[]): Promise<number | null> {
    const folder = this.#folder
    folder.write('script', this.script)
    const interruption = new Interruption('', { cancelOnSignal: true }, this.#output)
    const signal = AbortSignal.any([interruption.signal, this.#timeout.signal])
    this.#status('asking Slurm whether it accepts the request')
    try {
      // Asks Slurm whether it would accept the complete request.
      const commands = this.#commands.withSignal(signal)
      await commands.submit(...batch, '--test-only', folder.file('script'))
      this.#checks.push(toCheck('request', 'Slurm accepts it'))
      // The output goes to /dev/null, because a node that does not see the folder cannot open a
      // file in it.
      const options = [...oneNode, '--output=/dev/null']
      const context = { clock: systemClock, signal }
      interruption.jobId = await submitBatch(this.#commands, options, folder, context)
      return await this.#follow(interruption, signal)
    } catch (error) {
      if (interruption.signal.aborted) return interruption.exitCodeFor(error)
      this.#checks.push(toProblem('request', error))
      return null
    } finally {
      interruption.release()
    }
  }

  async #follow(interruption: Interruption, signal: AbortSignal): Promise<number | null> {
    const { jobId } = interruption
    const commands = this.#commands
    const folder = this.#folder
    const job = new SlurmJob(jobId, commands, systemClock)
    // Ignores `null`, because once the job runs, `#showProgress` shows the checks of the node.
    const status = (line: string | null): void => {
      if (line !== null) this.#status(line)
    }
    const view = { stdout() {}, stderr() {}, notice() {}, status }
    try {
      const followOptions = { jobId, folder, commands, clock: systemClock, view, signal }
      const code = await followLaunch(followOptions).catch((error: unknown) =>
        this.#readExitCode(jobId, error),
      )
      if (interruption.signal.aborted) return interruption.exitCode
      if (code !== null || folder.hasStarted) {
        this.#checks.push(...readChecks(folder, code, 'the node'))
      } else this.#checks.push(await this.#describeWait(job))
      return null
    } finally {
      await job.cancel()
    }
  }

  /**
   * Asks Slurm for the exit code of a job that could write nothing. Throws `error` if the code is
   * 0.
   */
  async #readExitCode(jobId: string, error: unknown): Promise<number> {
    const fields = parseFields(await this.#commands.query('scontrol', 'show', 'job', jobId))
    const code = Number(fields.get('ExitCode')?.split(':')[0])
    if (code > 0) return code
    throw error
  }

  async #describeWait(job: SlurmJob): Promise<LaunchCheck> {
    const found = await job.report()
    const state = found === null ? 'unknown' : `${found.state} (${found.reason})`
    const text = `none within ${checkTimeoutMs / 1000} s: job ${job.id} was ${state}`
    return toProblem('node', new BackendError(text, { hint: 'Try another partition, or later.' }))
  }
}

const toCheck = (name: string, detail: string): LaunchCheck => ({
  name,
  state: 'ok',
  where: 'here',
  detail,
  hint: null,
})

function toProblem(name: string, error: unknown): LaunchCheck {
  const hint = TuttiError.isInstance(error) ? (error.hint ?? null) : null
  return { name, state: 'problem', where: 'here', detail: messageOf(error), hint }
}

function runCheck(name: string, find: () => string): LaunchCheck {
  try {
    return toCheck(name, find())
  } catch (error) {
    return toProblem(name, error)
  }
}

function printChecks(checks: readonly LaunchCheck[], output: Output): number {
  const failedChecks = checks.filter(({ state }) => state !== 'ok')
  const widest = Math.max(...checks.map(({ name }) => name.length))
  const failed = `a launch would fail: ${countText(failedChecks.length, 'check')} above failed`
  const last = failedChecks.length === 0 ? 'a launch works' : failed
  output.result({ ok: failedChecks.length === 0, checks }, [
    ...checks.flatMap((check) => formatCheck(check, widest)),
    last,
  ])
  return failedChecks.length === 0 ? exitCodes.ok : exitCodes.backendFailed
}

function formatCheck({ name, state, where, detail, hint }: LaunchCheck, widest: number): string[] {
  const text = detail.trim().replaceAll(/\s*\n\s*/g, '; ')
  const line = `${state.padEnd(7)}  ${name.padEnd(widest)}  ${where}: ${text}`
  return hint === null ? [line] : [line, `  hint: ${hint}`]
}

/** Runs the commands of Slurm with a time limit, unaffected by the caller's Slurm variables. */

import { execFile, type ExecFileException } from 'node:child_process'
import { BackendError, type ErrorDetails, errnoOf, markErrors } from '../../foundation/errors.ts'
import { maskSecrets } from '../../foundation/secrets.ts'
import { countText } from '../../views/readable.ts'

/** The details of a `SchedulerError`. */
export interface SchedulerErrorDetails extends ErrorDetails {
  readonly command: string
  readonly stderr: string
}

/** A command of the scheduler failed, did not answer in time, or printed unexpected output. */
export class SchedulerError extends BackendError {
  /** The command with its arguments. */
  readonly command: string
  readonly stderr: string

  constructor(message: string, details: SchedulerErrorDetails) {
    super(message, details)
    this.command = details.command
    this.stderr = details.stderr
  }
}

markErrors({ SchedulerError })

export interface SlurmCommandsOptions {
  /** The caller's environment. Default: this process's. */
  readonly env?: NodeJS.ProcessEnv
  /** The time limit of each command. Default 30. */
  readonly timeoutSeconds?: number
  /** Ends running commands when it is aborted, as the time limit does. Default: none. */
  readonly signal?: AbortSignal
}

const maxOutputLength = 16 * 2 ** 20
const maxShownLength = 2000

/** The `SLURM_*` variables that commands need; all others are options of the caller's own calls. */
const kept = new Set(['SLURM_CONF', 'SLURM_CONF_SERVER', 'SLURM_JWT', 'SLURM_CLUSTERS'])

/** Variables of `sbatch` for options that a launch sets itself: `reserved` in `batch-job.ts`. */
const ofLaunch = new Set(
  ['WAIT', 'ARRAY_INX', 'OUTPUT', 'ERROR', 'INPUT', 'EXPORT', 'REQUEUE', 'WRAP', 'CHDIR'].map(
    (name) => `SBATCH_${name}`,
  ),
)

/** Messages of `sbatch` about a request for more nodes, or larger nodes, than exist. */
const aboutNodes = /node (?:count|configuration)/i

export class SlurmCommands {
  readonly #env: NodeJS.ProcessEnv
  readonly #timeoutSeconds: number
  readonly #signal: AbortSignal | undefined

  constructor({ env = process.env, timeoutSeconds = 30, signal }: SlurmCommandsOptions = {}) {
    this.#env = env
    this.#timeoutSeconds = timeoutSeconds
    this.#signal = signal
  }

  /** The same commands, which are ended when the signal is aborted. */
  endedBy(signal: AbortSignal): SlurmCommands {
    return new SlurmCommands({ env: this.#env, timeoutSeconds: this.#timeoutSeconds, signal })
  }

  /** For `srun` and `sbatch`, which pass their environment on. */
  get env(): NodeJS.ProcessEnv {
    return withoutSlurmVariables(this.#env)
  }

  /** For steps whose processes must get only the variables of the step. */
  get plainEnv(): NodeJS.ProcessEnv {
    const names = ['PATH', 'HOME', 'USER', ...kept]
    return Object.fromEntries(
      names.map((name) => [name, this.#env[name]]).filter(([, value]) => value !== undefined),
    ) as NodeJS.ProcessEnv
  }

  /** Resolves with the output; rejects with a `SchedulerError`. */
  run(command: string, ...args: readonly string[]): Promise<string> {
    return this.#execute(command, args, this.env)
  }

  /** Runs `sbatch`, for which users may have defaults in variables such as `SBATCH_ACCOUNT`. */
  async submit(...args: readonly string[]): Promise<string> {
    const own = Object.entries(this.#env).filter(
      ([name]) => name.startsWith('SBATCH_') && !ofLaunch.has(name),
    )
    try {
      return await this.#execute('sbatch', args, { ...this.env, ...Object.fromEntries(own) })
    } catch (error) {
      if (!(error instanceof SchedulerError) || !aboutNodes.test(error.stderr)) throw error
      const partition = args.findLast((one) => one.startsWith('--partition='))?.split('=')[1]
      const { message, code, command, stderr, cause } = error
      const hint = await this.nodesHint(partition)
      throw new SchedulerError(message, { code, command, stderr, cause, hint })
    }
  }

  /** For a request that cannot be met: how many nodes there are. */
  async nodesHint(partition?: string): Promise<string> {
    const where = partition === undefined ? [] : [`--partition=${partition}`]
    const all = ['--noheader', '--Node', '--format=%N', ...where]
    const names = await this.ask('sinfo', ...all).catch(() => '')
    const count = new Set(names.split('\n').filter((name) => name.trim() !== '')).size
    const whose = partition === undefined ? 'The cluster' : `Partition ${partition}`
    const has = count === 0 ? '' : `${whose} has ${countText(count, 'node')}. `
    return `${has}Ask for less, or for another partition.`
  }

  /** Runs a command that only reads. Times are in UTC. */
  ask(command: string, ...args: readonly string[]): Promise<string> {
    return this.#execute(command, args, { ...this.env, TZ: 'UTC', LC_ALL: 'C' })
  }

  #execute(command: string, args: readonly string[], env: NodeJS.ProcessEnv): Promise<string> {
    const limit = {
      timeout: this.#timeoutSeconds * 1000,
      killSignal: 'SIGKILL',
      ...(this.#signal === undefined ? {} : { signal: this.#signal }),
    } as const
    return new Promise((resolve, reject) => {
      execFile(
        command,
        args,
        { ...limit, env, encoding: 'utf8', maxBuffer: maxOutputLength },
        (error, stdout, stderr) => {
          if (error === null) resolve(stdout)
          else reject(this.#toError([command, ...args], error, stderr))
        },
      ).stdin?.end()
    })
  }

  #toError(words: readonly string[], error: ExecFileException, stderrText: string): SchedulerError {
    const [program = ''] = words
    const command = maskSecrets(words.join(' '))
    const stderr = maskSecrets(stderrText.trim()).slice(-maxShownLength)
    const facts = { command, stderr, cause: error }
    const details = `${stderr === '' ? '' : `: ${stderr}`} (${command})`
    if (errnoOf(error) === 'ENOENT') {
      return new SchedulerError(`${program} was not found${details}`, {
        ...facts,
        code: 'SchedulerMissingError',
        hint: 'Run it where the commands of Slurm are on PATH, such as a login node.',
      })
    }
    if (error.name === 'AbortError') {
      const why = `${program} had not answered when it was interrupted`
      return new SchedulerError(`${why}${details}`, { ...facts, code: 'SchedulerTimeoutError' })
    }
    if (error.killed === true) {
      const why = `${program} did not answer within ${this.#timeoutSeconds} s`
      return new SchedulerError(`${why}${details}`, { ...facts, code: 'SchedulerTimeoutError' })
    }
    return new SchedulerError(`${program} failed${details}`, facts)
  }
}

/** Removes the options of the step in which this process runs. */
function withoutSlurmVariables(env: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  const names = Object.keys(env).filter((name) => {
    return (
      kept.has(name) || !/^(?:SLURM|SBATCH|SRUN|SALLOC|SQUEUE|SINFO|SCANCEL|PMI[2X]?)_/.test(name)
    )
  })
  return Object.fromEntries(names.map((name) => [name, env[name]]))
}

/** The error for output that does not match Slurm's documentation. */
export const unexpectedOutput = (command: string, output: string): SchedulerError =>
  new SchedulerError(
    `${command} printed something unexpected: ${output.slice(0, maxShownLength)}`,
    {
      code: 'SchedulerOutputError',
      command,
      stderr: '',
    },
  )

/** Whether the command named a job that Slurm has forgotten, minutes after the job's end. */
export const isUnknownJob = (error: unknown): boolean =>
  error instanceof SchedulerError && /Invalid job id/i.test(error.stderr)

/** Whether the scheduler did not answer, so that the result of the request is unknown. */
export const isSilence = (error: unknown): boolean =>
  error instanceof SchedulerError &&
  (error.code === 'SchedulerTimeoutError' || silences.test(error.stderr))

const silences =
  /Unable to contact slurm controller|Socket timed out|Connection (?:refused|timed out)/i

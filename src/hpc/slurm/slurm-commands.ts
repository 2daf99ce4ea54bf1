/** Runs Slurm commands with a time limit and without the caller's Slurm variables. */

import { execFile, type ExecFileException } from 'node:child_process'
import {
  BackendError,
  type ErrorDetails,
  errnoOf,
  registerErrorClasses,
} from '../../foundation/errors.ts'
import { maskSecrets } from '../../foundation/secrets.ts'
import { countText } from '../../views/readable.ts'

/** The failed command, and what it wrote to stderr. */
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

registerErrorClasses({ SchedulerError })

export interface SlurmCommandsOptions {
  /** Default: the environment of this process. */
  readonly env?: NodeJS.ProcessEnv
  /** The time limit of each command. Default 30. */
  readonly timeoutSeconds?: number
  /** Aborting ends running commands, as the time limit does. */
  readonly signal?: AbortSignal
}

const maxOutputLength = 16 * 2 ** 20
const maxShownLength = 2000

/** The Slurm variables that commands get. Others are removed, because they change options. */
const keptVariables = new Set(['SLURM_CONF', 'SLURM_CONF_SERVER', 'SLURM_JWT', 'SLURM_CLUSTERS'])

/** The variables that set the options in `reservedOptions` of `batch-job.ts`. */
const launchVariables = new Set(
  ['WAIT', 'ARRAY_INX', 'OUTPUT', 'ERROR', 'INPUT', 'EXPORT', 'REQUEUE', 'WRAP', 'CHDIR'].map(
    (name) => `SBATCH_${name}`,
  ),
)

/** Matches messages about a request for more or larger nodes than exist. */
const nodeCountMessage = /node (?:count|configuration)/i

export class SlurmCommands {
  readonly #env: NodeJS.ProcessEnv
  readonly #timeoutSeconds: number
  readonly #signal: AbortSignal | undefined

  constructor({ env = process.env, timeoutSeconds = 30, signal }: SlurmCommandsOptions = {}) {
    this.#env = env
    this.#timeoutSeconds = timeoutSeconds
    this.#signal = signal
  }

  /** Returns the same commands with a signal that ends them. */
  withSignal(signal: AbortSignal): SlurmCommands {
    return new SlurmCommands({ env: this.#env, timeoutSeconds: this.#timeoutSeconds, signal })
  }

  /** The environment of `srun` and `sbatch`, which the processes of the job inherit. */
  get env(): NodeJS.ProcessEnv {
    return withoutSlurmVariables(this.#env)
  }

  /** The environment of `srun` for steps whose processes get only the variables of the step. */
  get minimalEnv(): NodeJS.ProcessEnv {
    const names = ['PATH', 'HOME', 'USER', ...keptVariables]
    return Object.fromEntries(
      names.map((name) => [name, this.#env[name]]).filter(([, value]) => value !== undefined),
    ) as NodeJS.ProcessEnv
  }

  /** Runs a command. Resolves with its output, or rejects with a `SchedulerError`. */
  run(command: string, ...args: readonly string[]): Promise<string> {
    return this.#execute(command, args, this.env)
  }

  /** Runs `sbatch`. Keeps the user's defaults in variables such as `SBATCH_ACCOUNT`. */
  async submit(...args: readonly string[]): Promise<string> {
    const userDefaults = Object.entries(this.#env).filter(
      ([name]) => name.startsWith('SBATCH_') && !launchVariables.has(name),
    )
    try {
      return await this.#execute('sbatch', args, {
        ...this.env,
        ...Object.fromEntries(userDefaults),
      })
    } catch (error) {
      if (!(error instanceof SchedulerError) || !nodeCountMessage.test(error.stderr)) throw error
      const partition = args.findLast((one) => one.startsWith('--partition='))?.split('=')[1]
      const { message, code, command, stderr, cause } = error
      const hint = await this.nodesHint(partition)
      throw new SchedulerError(message, { code, command, stderr, cause, hint })
    }
  }

  /** Returns a hint about the number of nodes, for a request that cannot be met. */
  async nodesHint(partition?: string): Promise<string> {
    const partitionOptions = partition === undefined ? [] : [`--partition=${partition}`]
    const all = ['--noheader', '--Node', '--format=%N', ...partitionOptions]
    const names = await this.query('sinfo', ...all).catch(() => '')
    const count = new Set(names.split('\n').filter((name) => name.trim() !== '')).size
    const clusterText = partition === undefined ? 'The cluster' : `Partition ${partition}`
    const has = count === 0 ? '' : `${clusterText} has ${countText(count, 'node')}. `
    return `${has}Ask for less, or for another partition.`
  }

  /** Runs a read-only command, which prints times in UTC. */
  query(command: string, ...args: readonly string[]): Promise<string> {
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
    const details = { command, stderr, cause: error }
    const suffix = `${stderr === '' ? '' : `: ${stderr}`} (${command})`
    if (errnoOf(error) === 'ENOENT') {
      return new SchedulerError(`${program} was not found${suffix}`, {
        ...details,
        code: 'SchedulerMissingError',
        hint: 'Run it where the commands of Slurm are on PATH, such as a login node.',
      })
    }
    const isAborted = error.name === 'AbortError'
    if (isAborted || error.killed === true) {
      const timeText = isAborted ? 'before it was interrupted' : `within ${this.#timeoutSeconds} s`
      const why = `${program} did not answer ${timeText}${suffix}`
      return new SchedulerError(why, { ...details, code: 'SchedulerTimeoutError' })
    }
    return new SchedulerError(`${program} failed${suffix}`, details)
  }
}

function withoutSlurmVariables(env: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  const names = Object.keys(env).filter((name) => {
    return (
      keptVariables.has(name) ||
      !/^(?:SLURM|SBATCH|SRUN|SALLOC|SQUEUE|SINFO|SCANCEL|PMI[2X]?)_/.test(name)
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

/** Whether Slurm has forgotten the job, as it does minutes after the job's end. */
export const isUnknownJob = (error: unknown): boolean =>
  error instanceof SchedulerError && /Invalid job id/i.test(error.stderr)

/** Whether the scheduler did not answer, so that the result is unknown. */
export const isNoAnswer = (error: unknown): boolean =>
  error instanceof SchedulerError &&
  (error.code === 'SchedulerTimeoutError' || silencePattern.test(error.stderr))

const silencePattern =
  /Unable to contact slurm controller|Socket timed out|Connection (?:refused|timed out)/i

/** The folder of one launch, whose files the batch script and the launcher use to communicate. */

import { closeSync, existsSync, readdirSync } from 'node:fs'
import { readSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { basename, dirname, join, resolve } from 'node:path'
import { makeFolders } from '../../checkpoint/files.ts'
import { messageOf, ValueError } from '../../foundation/errors.ts'
import { openRegularFileSync, readTextFileSync, statOf } from '../../foundation/regular-file.ts'
import {
  elasticFile,
  endedFile,
  launchVariable,
  signaledFile,
  type LaunchFacts,
} from '../start-method.ts'

/** The folder that also holds the records of runs. */
export const launchParent = './telemetry'
export const launchSuffix = '.launch'

/** The files of a launch. */
export const launchFiles = {
  /** Read by the script's backend. */
  facts: 'launch.json',
  script: 'batch.sh',
  /** Slurm's own messages to the batch script. */
  log: 'batch.log',
  /** One line per run; there are several runs if Slurm requeues the job. */
  started: 'started',
  /** The process id of a script that runs on the first node of an existing job. */
  pid: 'pid',
  stdout: 'stdout.log',
  stderr: 'stderr.log',
  exit: 'exit',
  /** The request to the script's first session, such as to resume a record. */
  request: 'request.json',
  ended: endedFile,
  elastic: elasticFile,
  signaled: signaledFile,
} as const

/** Separates the runs in Slurm's messages to the batch script. */
export const beginLine = 'tutti launch: the script begins'

/** How a run of the script has ended. */
export type RunEnd =
  /** It ended by itself, or for a reason that another allocation would not change. */
  | 'own'
  /** Its allocation ended or was lost. */
  | 'allocation'
  /** A user canceled its job. */
  | 'canceled'

export class LaunchFolder {
  readonly path: string

  constructor(path: string) {
    this.path = path
  }

  /** The folder is created by the first `write`. A resumed session has several folders. */
  static of(parent: string, sessionId: string): LaunchFolder {
    const [folder] = LaunchFolder.chainOf(parent, sessionId, 1)
    return folder as LaunchFolder
  }

  /** The folders of `length` jobs that run one after the other. */
  static chainOf(parent: string, sessionId: string, length: number): readonly LaunchFolder[] {
    const folders: LaunchFolder[] = []
    for (let count = 1; folders.length < length; count++) {
      const name = count === 1 ? sessionId : `${sessionId}-${count}`
      const path = join(parent, `${name}${launchSuffix}`)
      if (!existsSync(path)) folders.push(new LaunchFolder(path))
    }
    return folders
  }

  /** The folder of a job that was launched from this directory, or `null`. */
  static find(parent: string, jobId: string): LaunchFolder | null {
    if (!existsSync(parent)) return null
    const names = readdirSync(parent).filter((name) => name.endsWith(launchSuffix))
    const folders = names.map((name) => new LaunchFolder(join(parent, name)))
    return folders.find((folder) => folder.facts()?.jobId === jobId) ?? null
  }

  file(name: keyof typeof launchFiles): string {
    return join(this.path, launchFiles[name])
  }

  /** Throws a `ValueError` on failure. Called before anything is submitted to a scheduler. */
  write(name: keyof typeof launchFiles, content: string): void {
    const file = this.file(name)
    try {
      makeFolders(resolve(this.path))
      writeFileSync(`${file}.new`, content)
      renameSync(`${file}.new`, file)
    } catch (cause) {
      throw unwritable(file, cause)
    }
  }

  /** The folders of the allocations that the script requested; none if the launch was removed. */
  allocations(): LaunchFolder[] {
    if (!existsSync(this.path)) return []
    const names = readdirSync(this.path).filter((name) => name.startsWith(allocationPrefix))
    return names.map((name) => new LaunchFolder(join(this.path, name)))
  }

  /** Whether the script requests nodes by itself. */
  get isElastic(): boolean {
    return existsSync(this.file('elastic'))
  }

  /** Removes the folder of a launch that did not start. */
  remove(): void {
    rmSync(this.path, { recursive: true, force: true })
  }

  facts(): LaunchFacts | null {
    try {
      return JSON.parse(readTextFileSync(this.file('facts'))) as LaunchFacts
    } catch {
      return null
    }
  }

  /** The folders of all jobs of its launch in order, including this one. */
  get chain(): readonly LaunchFolder[] {
    const { folders = [basename(this.path)] } = this.facts()?.chain ?? {}
    return folders.map((name) => new LaunchFolder(join(dirname(this.path), name)))
  }

  /** The index of its job in the launch, from 0. */
  get place(): number {
    return this.facts()?.chain?.at ?? 0
  }

  get hasStarted(): boolean {
    return this.runs > 0
  }

  /** How often the script has been started. */
  get runs(): number {
    const size = statOf(this.file('started'))?.size
    return size === undefined ? 0 : Math.max(1, Math.floor(size / runLine.length))
  }

  /** Whether the end of the allocation ended tasks of the script. */
  get hasEnded(): boolean {
    return existsSync(this.file('ended'))
  }

  /** `code` is the script's exit code; `null` if it was killed with all processes of its job. */
  endOf(code: number | null): RunEnd {
    const reason = endReason(this.#log())
    if (reason === 'canceled') return 'canceled'
    return code === null || reason !== null || this.hasEnded ? 'allocation' : 'own'
  }

  /**
   * The state in which Slurm ended the last run, according to the messages in the log, because
   * Slurm forgets a job after minutes. `null` if the run ended by itself. `REQUEUED` is not a final
   * state.
   */
  get lostState(): string | null {
    const log = this.#log()
    const reason = endReason(log)
    if (reason === 'canceled') return 'CANCELLED'
    const [, state] = lostStates.find(([words]) => words.test(log)) ?? []
    // Slurm omits the reason only if a user canceled the job.
    return state ?? (reason === null ? null : `CANCELLED DUE TO ${reason}`)
  }

  /** Slurm's messages since the last start of the script. */
  #log(): string {
    try {
      const text = readTextFileSync(this.file('log'))
      return text.slice(text.lastIndexOf(`${beginLine}\n`) + 1)
    } catch {
      return ''
    }
  }

  /** The script's exit code; `null` while it runs. */
  exitCode(): number | null {
    try {
      const text = readTextFileSync(this.file('exit')).trim()
      return /^\d+$/.test(text) ? Number(text) : null
    } catch {
      return null
    }
  }
}

/** Slurm's messages to the batch script, and the states of the job that they mean. */
const lostStates = [
  [/ DUE TO TIME LIMIT \*\*\*/i, 'TIMEOUT'],
  [/ DUE TO PREEMPTION \*\*\*/i, 'PREEMPTED'],
  [/ DUE TO NODE FAIL\w*/i, 'NODE_FAIL'],
  [/ DUE TO JOB REQUEUE \*\*\*/i, 'REQUEUED'],
  [/\boom[-_]kill event/i, 'OUT_OF_MEMORY'],
] as const

/** The line that the batch script appends to `started` for each run. */
export const runLine = 'run\n'

/**
 * Why Slurm ended the processes of a job, from its message in their output: `*** JOB 7 ON n1
 * CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***`. `canceled` if a user did it: then the
 * message has no reason, or a signal as the reason. `null` if Slurm did not end them.
 */
function endReason(log: string): string | null {
  const lines = log.matchAll(/\*\*\* JOB \S+ ON \S+ CANCELLED AT \S+(?: DUE TO (.+?))? \*\*\*/gi)
  const last = Array.from(lines).at(-1)
  if (last === undefined) return null
  return last[1] === undefined || /^signal\b/i.test(last[1]) ? 'canceled' : last[1]
}

/** A new folder, within the folder of the launch, for an allocation that the script requests. */
export function newAllocationFolder(): LaunchFolder {
  const parent = dirname(process.env[launchVariable] ?? '')
  for (let count = 1; ; count++) {
    const path = join(parent, `${allocationPrefix}${count}`)
    if (!existsSync(path)) return new LaunchFolder(path)
  }
}

export const allocationPrefix = 'allocation-'

/** Reads what is appended to a file that may not exist yet. */
export class FollowedFile {
  readonly #path: string
  #position = 0

  constructor(path: string) {
    this.#path = path
  }

  /** What was appended since the last call. */
  read(): Buffer {
    if (!existsSync(this.#path)) return Buffer.alloc(0)
    const descriptor = openRegularFileSync(this.#path)
    try {
      const parts: Buffer[] = []
      for (;;) {
        const part = Buffer.alloc(65_536)
        const length = readSync(descriptor, part, 0, part.length, this.#position)
        if (length === 0) return Buffer.concat(parts)
        this.#position += length
        parts.push(part.subarray(0, length))
      }
    } finally {
      closeSync(descriptor)
    }
  }
}

const unwritable = (path: string, cause: unknown): ValueError =>
  new ValueError(`${path} cannot be written: ${messageOf(cause)}`, { cause })

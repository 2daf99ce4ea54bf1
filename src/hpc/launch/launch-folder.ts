/** The folder of one launch: what the batch script and the launcher tell each other by files. */

import { closeSync, existsSync, openSync, readdirSync, readFileSync } from 'node:fs'
import { readSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { basename, dirname, join, resolve } from 'node:path'
import { makeFolders } from '../../checkpoint/files.ts'
import { messageOf, ValueError } from '../../foundation/errors.ts'
import {
  elasticFile,
  endedFile,
  launchVariable,
  signaledFile,
  type LaunchFacts,
} from '../start-method.ts'

/** Beside the records of runs. */
export const launchParent = './telemetry'
const suffix = '.launch'

/** Files that the batch script writes. */
export const launchFiles = {
  /** Read by the script's backend. */
  facts: 'launch.json',
  script: 'batch.sh',
  /** What Slurm itself says to the batch script. */
  log: 'batch.log',
  /** A line for each run: there are several when Slurm puts the job back into the queue. */
  started: 'started',
  /** The process of a script that runs on the first node of a job that was there. */
  pid: 'pid',
  stdout: 'stdout.log',
  stderr: 'stderr.log',
  exit: 'exit',
  /** What is asked of the script's first session. */
  request: 'request.json',
  ended: endedFile,
  elastic: elasticFile,
  signaled: signaledFile,
} as const

/** The line in what Slurm says to the batch script before which another run has ended. */
export const beginLine = 'tutti launch: the script begins'

/** How a run of the script has ended. */
export type RunEnd =
  /** By itself, or by something that another allocation would not change. */
  | 'own'
  /** Its allocation was over, or was lost. */
  | 'allocation'
  /** Somebody has canceled its job. */
  | 'canceled'

export class LaunchFolder {
  readonly path: string

  constructor(path: string) {
    this.path = path
  }

  /** Nothing is there before the first `write`. A session that is resumed has several. */
  static of(parent: string, sessionId: string): LaunchFolder {
    const [folder] = LaunchFolder.chainOf(parent, sessionId, 1)
    return folder as LaunchFolder
  }

  /** For as many jobs, one after the other. */
  static chainOf(parent: string, sessionId: string, length: number): readonly LaunchFolder[] {
    const folders: LaunchFolder[] = []
    for (let count = 1; folders.length < length; count++) {
      const name = count === 1 ? sessionId : `${sessionId}-${count}`
      const path = join(parent, `${name}${suffix}`)
      if (!existsSync(path)) folders.push(new LaunchFolder(path))
    }
    return folders
  }

  /** The folder of a job that was launched from here, or `null`. */
  static find(parent: string, jobId: string): LaunchFolder | null {
    if (!existsSync(parent)) return null
    const names = readdirSync(parent).filter((name) => name.endsWith(suffix))
    const folders = names.map((name) => new LaunchFolder(join(parent, name)))
    return folders.find((folder) => folder.facts()?.jobId === jobId) ?? null
  }

  file(name: keyof typeof launchFiles): string {
    return join(this.path, launchFiles[name])
  }

  /** Throws `ValueError` where it cannot: before anything is asked of a scheduler. */
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

  /** Those of allocations that the script has asked for. None of a launch that was removed. */
  allocations(): LaunchFolder[] {
    if (!existsSync(this.path)) return []
    const names = readdirSync(this.path).filter((name) => name.startsWith(allocationPrefix))
    return names.map((name) => new LaunchFolder(join(this.path, name)))
  }

  /** Whether the script has asked for nodes by itself, or would have. */
  get isElastic(): boolean {
    return existsSync(this.file('elastic'))
  }

  /** Of a launch that did not begin. */
  remove(): void {
    rmSync(this.path, { recursive: true, force: true })
  }

  facts(): LaunchFacts | null {
    try {
      return JSON.parse(readFileSync(this.file('facts'), 'utf8')) as LaunchFacts
    } catch {
      return null
    }
  }

  /** Of all jobs of its launch, in their order, this one among them. */
  get chain(): readonly LaunchFolder[] {
    const { folders = [basename(this.path)] } = this.facts()?.chain ?? {}
    return folders.map((name) => new LaunchFolder(join(dirname(this.path), name)))
  }

  /** Its number among the jobs of its launch, from 0. */
  get place(): number {
    return this.facts()?.chain?.at ?? 0
  }

  get hasStarted(): boolean {
    return this.runs > 0
  }

  /** How often the script has begun. */
  get runs(): number {
    const size = statSync(this.file('started'), { throwIfNoEntry: false })?.size
    return size === undefined ? 0 : Math.max(1, Math.floor(size / runLine.length))
  }

  /** Whether the allocation has ended the script's tasks. */
  get hasEnded(): boolean {
    return existsSync(this.file('ended'))
  }

  /** `code` is that of the script; `null` if it was killed with all processes of its job. */
  endOf(code: number | null): RunEnd {
    const reason = endReason(this.#log())
    if (reason === 'canceled') return 'canceled'
    return code === null || reason !== null || this.hasEnded ? 'allocation' : 'own'
  }

  /**
   * The state in which Slurm has ended the last run, by what it has said there: minutes later it
   * does not know the job any more. `null` if the run has ended by itself. `REQUEUED` is none in
   * which a job stays.
   */
  get lostState(): string | null {
    const log = this.#log()
    const reason = endReason(log)
    if (reason === 'canceled') return 'CANCELLED'
    const [, state] = lostStates.find(([words]) => words.test(log)) ?? []
    // Only a job that somebody has canceled is called so without a reason.
    return state ?? (reason === null ? null : `CANCELLED DUE TO ${reason}`)
  }

  /** What Slurm has said since the last beginning. */
  #log(): string {
    try {
      const text = readFileSync(this.file('log'), 'utf8')
      return text.slice(text.lastIndexOf(`${beginLine}\n`) + 1)
    } catch {
      return ''
    }
  }

  /** Of the script; `null` while it runs. */
  exitCode(): number | null {
    try {
      const text = readFileSync(this.file('exit'), 'utf8').trim()
      return /^\d+$/.test(text) ? Number(text) : null
    } catch {
      return null
    }
  }
}

/** Slurm's words to the batch script, and the state of its job. */
const lostStates = [
  [/ DUE TO TIME LIMIT \*\*\*/i, 'TIMEOUT'],
  [/ DUE TO PREEMPTION \*\*\*/i, 'PREEMPTED'],
  [/ DUE TO NODE FAIL\w*/i, 'NODE_FAIL'],
  [/ DUE TO JOB REQUEUE \*\*\*/i, 'REQUEUED'],
  [/\boom[-_]kill event/i, 'OUT_OF_MEMORY'],
] as const

/** What the batch script adds to `started` for each run. */
export const runLine = 'run\n'

/**
 * Why Slurm has ended the processes of a job, which it says in their output: `*** JOB 7 ON n1
 * CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***`. Without a reason, or with a signal as
 * the reason, somebody has done it: `canceled`. `null`: Slurm has not ended them.
 */
function endReason(log: string): string | null {
  const lines = log.matchAll(/\*\*\* JOB \S+ ON \S+ CANCELLED AT \S+(?: DUE TO (.+?))? \*\*\*/gi)
  const last = Array.from(lines).at(-1)
  if (last === undefined) return null
  return last[1] === undefined || /^signal\b/i.test(last[1]) ? 'canceled' : last[1]
}

/** For an allocation that the script asks for, in the folder of its launch. */
export function newAllocationFolder(): LaunchFolder {
  const parent = dirname(process.env[launchVariable] ?? '')
  for (let count = 1; ; count++) {
    const path = join(parent, `${allocationPrefix}${count}`)
    if (!existsSync(path)) return new LaunchFolder(path)
  }
}

const allocationPrefix = 'allocation-'

/** Reads what is added to a file that may not be there yet. */
export class FollowedFile {
  readonly #path: string
  #position = 0

  constructor(path: string) {
    this.#path = path
  }

  /** What was added since the last call. */
  read(): Buffer {
    if (!existsSync(this.#path)) return Buffer.alloc(0)
    const descriptor = openSync(this.#path, 'r')
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

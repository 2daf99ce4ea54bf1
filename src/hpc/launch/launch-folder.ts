/**
 * The folder of a launch, whose files connect the launcher and the batch script. Launches leave
 * their folders next to the records of their runs.
 */

import { closeSync, type Dirent, existsSync, readdirSync, readSync, renameSync } from 'node:fs'
import { rmSync, writeFileSync } from 'node:fs'
import { basename, dirname, join, resolve } from 'node:path'
import { makeFolders } from '../../checkpoint/files.ts'
import { readRequestRecord } from '../../checkpoint/run-file.ts'
import { systemClock } from '../../foundation/clock.ts'
import { messageOf, ValueError } from '../../foundation/errors.ts'
import { openRegularFileSync, readTextFileSync, statOf } from '../../foundation/regular-file.ts'
import { SlurmCommands } from '../slurm/slurm-commands.ts'
import { hasJobEnded } from '../slurm/slurm-job.ts'
import { type LaunchFacts, launchMarks, launchVariable } from '../start-method.ts'

/** The folder of launch folders. It also contains the records of runs. */
export const launchParent = './telemetry'
const launchSuffix = '.launch'

export const launchFiles = {
  /** Facts about the launch, which the script's backend reads. */
  facts: 'launch.json',
  script: 'batch.sh',
  /** The log of the job, to which Slurm writes its messages. */
  log: 'batch.log',
  /** Contains one line per run. Slurm may requeue the job and run the script again. */
  started: 'started',
  /** The process id of a script on the first node of an existing job. */
  pid: 'pid',
  stdout: 'stdout.log',
  stderr: 'stderr.log',
  exit: 'exit',
  /** A request to the script's first session, such as to resume a record. */
  request: 'request.json',
  ...launchMarks,
} as const

/** The line that separates the runs in the log. */
export const runBeginLine = 'tutti launch: the script begins'

export type RunEndCause =
  /** The script ended by itself. */
  | 'own'
  /** The script's allocation ended or was lost. */
  | 'allocation'
  /** A user canceled the script's job. */
  | 'canceled'

export class LaunchFolder {
  readonly path: string

  constructor(path: string) {
    this.path = path
  }

  /**
   * Returns the first unused folder of the session, because each launch of a resumed session gets
   * its own. The first `write` creates the folder.
   */
  static of(parent: string, sessionId: string): LaunchFolder {
    const [folder] = LaunchFolder.chooseFolders(parent, sessionId, 1)
    return folder as LaunchFolder
  }

  static chooseFolders(parent: string, sessionId: string, length: number): readonly LaunchFolder[] {
    const folders: LaunchFolder[] = []
    for (let count = 1; folders.length < length; count++) {
      const name = count === 1 ? sessionId : `${sessionId}-${count}`
      const path = join(parent, `${name}${launchSuffix}`)
      if (!existsSync(path)) folders.push(new LaunchFolder(path))
    }
    return folders
  }

  /** Returns the folder of the job; `null` if the job was not launched from this directory. */
  static find(parent: string, jobId: string): LaunchFolder | null {
    if (!existsSync(parent)) return null
    const names = readdirSync(parent).filter((name) => name.endsWith(launchSuffix))
    const folders = names.map((name) => new LaunchFolder(join(parent, name)))
    return folders.find((folder) => folder.facts()?.jobId === jobId) ?? null
  }

  file(name: keyof typeof launchFiles): string {
    return join(this.path, launchFiles[name])
  }

  /** Replaces the file atomically. Throws a `ValueError` if that fails. */
  write(name: keyof typeof launchFiles, content: string): void {
    const file = this.file(name)
    try {
      makeFolders(resolve(this.path))
      writeFileSync(`${file}.new`, content)
      renameSync(`${file}.new`, file)
    } catch (cause) {
      throw unwritableError(file, cause)
    }
  }

  allocations(): LaunchFolder[] {
    if (!existsSync(this.path)) return []
    const names = readdirSync(this.path).filter((name) => name.startsWith(allocationPrefix))
    return names.map((name) => new LaunchFolder(join(this.path, name)))
  }

  /** Whether the script requests nodes itself. */
  get isElastic(): boolean {
    return existsSync(this.file('elastic'))
  }

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

  /** The folders of all jobs of this launch, in order. */
  get chain(): readonly LaunchFolder[] {
    const { folders = [basename(this.path)] } = this.facts()?.chain ?? {}
    return folders.map((name) => new LaunchFolder(join(dirname(this.path), name)))
  }

  get chainIndex(): number {
    return this.facts()?.chain?.at ?? 0
  }

  get hasStarted(): boolean {
    return this.runs > 0
  }

  get runs(): number {
    const size = statOf(this.file('started'))?.size
    return size === undefined ? 0 : Math.max(1, Math.floor(size / runLine.length))
  }

  get hasLostTasks(): boolean {
    return existsSync(this.file('ended'))
  }

  /** `code` is the script's exit code; `null` if the script was killed with its job. */
  classifyEnd(code: number | null): RunEndCause {
    const reason = parseCancelReason(this.#log())
    if (reason === 'canceled') return 'canceled'
    return code === null || reason !== null || this.hasLostTasks ? 'allocation' : 'own'
  }

  /** The state with which Slurm ended the last run, from the log; `null` if it ended by itself. */
  get lostState(): string | null {
    const log = this.#log()
    const reason = parseCancelReason(log)
    if (reason === 'canceled') return 'CANCELLED'
    const [, state] = lostStatePatterns.find(([words]) => words.test(log)) ?? []
    // For other reasons, Slurm has no state, so the text of its message is used.
    return state ?? (reason === null ? null : `CANCELLED DUE TO ${reason}`)
  }

  #log(): string {
    try {
      const text = readTextFileSync(this.file('log'))
      return text.slice(text.lastIndexOf(`${runBeginLine}\n`) + 1)
    } catch {
      return ''
    }
  }

  exitCode(): number | null {
    try {
      const text = readTextFileSync(this.file('exit')).trim()
      return /^\d+$/.test(text) ? Number(text) : null
    } catch {
      return null
    }
  }
}

const lostStatePatterns = [
  [/ DUE TO TIME LIMIT \*\*\*/i, 'TIMEOUT'],
  [/ DUE TO PREEMPTION \*\*\*/i, 'PREEMPTED'],
  [/ DUE TO NODE FAIL\w*/i, 'NODE_FAIL'],
  [/ DUE TO JOB REQUEUE \*\*\*/i, 'REQUEUED'],
  [/\boom[-_]kill event/i, 'OUT_OF_MEMORY'],
] as const

/** The line that the batch script appends to `started` for each run. */
export const runLine = 'run\n'

/**
 * The reason in Slurm's last message, such as `TIME LIMIT` in `*** JOB 7 ON n1 CANCELLED AT … DUE
 * TO TIME LIMIT ***`. `canceled` if a user canceled the job, `null` without a message.
 */
function parseCancelReason(log: string): string | null {
  const lines = log.matchAll(/\*\*\* JOB \S+ ON \S+ CANCELLED AT \S+(?: DUE TO (.+?))? \*\*\*/gi)
  const last = Array.from(lines).at(-1)
  if (last === undefined) return null
  return last[1] === undefined || /^signal\b/i.test(last[1]) ? 'canceled' : last[1]
}

/** Chooses a folder for an allocation that the script requests. */
export function newAllocationFolder(): LaunchFolder {
  const parent = dirname(process.env[launchVariable] ?? '')
  for (let count = 1; ; count++) {
    const path = join(parent, `${allocationPrefix}${count}`)
    if (!existsSync(path)) return new LaunchFolder(path)
  }
}

const allocationPrefix = 'allocation-'

/** Reads a growing file that may not exist yet. */
export class GrowingFile {
  readonly #path: string
  #position = 0

  constructor(path: string) {
    this.#path = path
  }

  /** Returns the bytes appended since the last call. */
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

const unwritableError = (path: string, cause: unknown): ValueError =>
  new ValueError(`${path} cannot be written: ${messageOf(cause)}`, { cause })

/** Groups the launch folders by the name of the record that each wrote. Ignores symbolic links. */
export function findLaunches(folder: string): Map<string, LaunchFolder[]> {
  const launches = readEntries(folder)
    .filter((entry) => entry.isDirectory() && entry.name.endsWith(launchSuffix))
    .map(({ name }) => new LaunchFolder(join(folder, name)))
  return Map.groupBy(launches, (launch) =>
    basename(readRequestRecord(launch.file('request')) ?? ''),
  )
}

/** Whether no job of the launch can start the script again; `false` if that is unknown. */
export async function isLaunchOver(launch: LaunchFolder): Promise<boolean> {
  for (const link of launch.chain) {
    const jobId = link.facts()?.jobId ?? null
    if (jobId === null || link.exitCode() !== null) continue
    if (!(await hasJobEnded({ id: jobId, cluster: null }, new SlurmCommands(), systemClock))) {
      return false
    }
  }
  return true
}

/** All names of files of a launch. A session renames the request file when it takes the request. */
const launchFileNames: ReadonlySet<string> = new Set([
  ...Object.values(launchFiles).flatMap((name) => [name, `${name}.new`]),
  ...['taken', 'record'].map((ending) => `${launchFiles.request}.${ending}`),
])

/** The files that a launch wrote, and the folders that contain nothing else, innermost first. */
interface LaunchContents {
  readonly files: readonly string[]
  readonly folders: readonly string[]
}

export function listLaunchContents(path: string): LaunchContents {
  const entries = readEntries(path)
  const ownFiles = entries.filter((entry) => entry.isFile() && launchFileNames.has(entry.name))
  const isAllocation = (entry: Dirent): boolean =>
    entry.isDirectory() && entry.name.startsWith(allocationPrefix)
  const inner = entries.filter(isAllocation).map(({ name }) => listLaunchContents(join(path, name)))
  return {
    files: [
      ...inner.flatMap(({ files }) => files),
      ...ownFiles.map(({ name }) => join(path, name)),
    ],
    folders: [...inner.flatMap(({ folders }) => folders), path],
  }
}

function readEntries(folder: string): readonly Dirent[] {
  try {
    return readdirSync(folder, { withFileTypes: true })
  } catch {
    return []
  }
}

/**
 * The files by which a command and the program that it runs know of each other: what the command
 * asks of the first session of the program, and beside a record the command that made it.
 */

import { chmodSync, existsSync, lstatSync, mkdtempSync, readdirSync, readFileSync } from 'node:fs'
import { renameSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { CheckpointError, errnoOf } from '../foundation/errors.ts'
import { expectObject } from '../foundation/options.ts'
import { findSecretArguments } from '../foundation/secrets.ts'
import { checkpointFailure, readFailure } from './files.ts'
import { holderOf, isHeld } from './lock.ts'

/** The environment variable with the path of the request. */
export const runVariable = 'TUTTI_RUN'

/** The diagnostics channel on which a session tells what it has read of the record to continue. */
export const resumeChannel = 'tutti.resume'

/** How a record was made, so that it can be continued in the same way. */
export interface RunCommand {
  readonly kind: 'script' | 'tasks'
  /** Absolute. */
  readonly file: string
  /** `null` for one that held a secret. */
  readonly arguments: readonly (string | null)[]
  /** The folder in which it ran. */
  readonly folder: string
  /** Of a script that `tutti launch` has started: what was asked of the scheduler. */
  readonly launch?: {
    readonly options: Readonly<Record<string, unknown>>
    /** Further options, in the scheduler's own form. */
    readonly more: readonly string[]
  }
}

/** What a command asks of the first session that starts telemetry. */
export interface RunRequest {
  readonly command: RunCommand
  readonly keep_results: boolean
  /** For a new session that has not chosen its own; default: any. */
  readonly session_id?: string | null
  /** The record to continue, and how. */
  readonly resume: {
    readonly record: string
    readonly session_id: string
    readonly changed: 'refuse' | 'keep' | 'rerun'
    readonly keep_failed: boolean
  } | null
}

const folderPrefix = 'tutti-run-'
/** As `mkdtemp` makes them. */
const folderName = /^tutti-run-[A-Za-z0-9]{6}$/
/** The processes that use the folder of a request; each has a file that names it. */
const holderFiles = { command: 'command.holder', script: 'script.holder' }

/**
 * A request that waits to be taken, in a folder that only the user may read. Those that killed
 * commands have left are removed.
 */
export class SentRequest implements Disposable {
  readonly path: string
  readonly #folder: string

  constructor(request: RunRequest) {
    removeLeftovers(tmpdir())
    this.#folder = mkdtempSync(join(tmpdir(), folderPrefix))
    this.path = join(this.#folder, 'request.json')
    writePrivate(join(this.#folder, holderFiles.command), holderOf(process.pid))
    writeRequest(this.path, request)
  }

  /** The script may outlive this process, and then still needs the folder. */
  sentTo(scriptPid: number): void {
    writePrivate(join(this.#folder, holderFiles.script), holderOf(scriptPid))
  }

  /** Whether a session of the program took it. */
  get isTaken(): boolean {
    return existsSync(`${this.path}.taken`)
  }

  /** The record of the session that took it; `null` if it wrote none. */
  get record(): string | null {
    return readToldRecord(this.path)
  }

  [Symbol.dispose](): void {
    rmSync(this.#folder, { recursive: true, force: true })
  }
}

/** Folders without a holder are just being made, or of an older version. */
function removeLeftovers(parent: string): void {
  for (const name of readdirSync(parent)) {
    const folder = join(parent, name)
    if (folderName.test(name) && isLeftover(folder)) removeQuietly(folder)
  }
}

function isLeftover(folder: string): boolean {
  const found = lstatSync(folder, { throwIfNoEntry: false })
  if (found?.isDirectory() !== true || found.uid !== process.getuid?.()) return false
  const command = join(folder, holderFiles.command)
  return existsSync(command) && !isHeld(command) && !isHeld(join(folder, holderFiles.script))
}

function removeQuietly(folder: string): void {
  try {
    rmSync(folder, { recursive: true, force: true })
  } catch {
    // Another command removes it at the same time, or it stays for the next.
  }
}

/** For a program that is started elsewhere. Only the user may read it. */
export const writeRequest = (path: string, request: RunRequest): void => writePrivate(path, request)

/** A request that was written here, whether it was taken or not; `null` if there is none. */
export function readRequest(path: string): RunRequest | null {
  const found = readJson(path) ?? readJson(`${path}.taken`)
  return isCommand(found?.['command']) ? (found as unknown as RunRequest) : null
}

/** The record of the session that took this request; `null` if none did. */
export function readToldRecord(path: string): string | null {
  const told = readJson(`${path}.record`)
  return typeof told?.['record'] === 'string' ? told['record'] : null
}

/** `null` in place of an argument that is a secret, or belongs to an option that is named so. */
export function toKeptArguments(args: readonly string[]): (string | null)[] {
  const isSecret = findSecretArguments(args)
  return args.map((arg, at) => (isSecret[at] === true ? null : arg))
}

/** Read when the library is loaded: what the program starts later is no part of the run. */
let requestPath = readVariable()

/** Whether `tutti run`, `resume` or `launch` has started this program. */
export const isRunByCommand = requestPath !== ''

function readVariable(): string {
  const { [runVariable]: path = '' } = process.env
  delete process.env[runVariable]
  return path
}

/** A request that was taken by this session and by no other. */
export interface TakenRequest extends RunRequest {
  /** Tells the command where the record is, and keeps the command beside it. */
  tellRecord(record: string): void
}

/** The request of the command that runs this program; `null` if there is none or it was taken. */
export function takeRequest(): TakenRequest | null {
  const path = requestPath
  if (path === '') return null
  requestPath = ''
  try {
    // Atomic: of several processes one succeeds.
    renameSync(path, `${path}.taken`)
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return null
    throw readFailure(`the file that ${runVariable} names`, path, error)
  }
  const request = readJson(`${path}.taken`) as RunRequest | null
  if (request === null || !isCommand(request.command)) {
    throw new CheckpointError(`${path} is not a request of tutti run`, { path })
  }
  return {
    ...request,
    tellRecord(record) {
      writePrivate(commandPathOf(record), request.command)
      writePrivate(`${path}.record`, { record })
    },
  }
}

/** Keeps the command that makes a record, beside it. Only the user may read it. */
export function keepCommand(record: string, command: RunCommand): void {
  writePrivate(commandPathOf(record), command)
}

/** The command that made a record; `null` if no command did. */
function readCommand(record: string): RunCommand | null {
  const found = readJson(commandPathOf(record))
  return isCommand(found) ? found : null
}

/** The command that made the files of a run. The last process may have kept none before it died. */
export const readCommandOf = (files: readonly string[]): RunCommand | null =>
  files.map(readCommand).findLast((one) => one !== null) ?? null

/** Of the last file that has a command which cannot be used; `null`: none was kept. */
export function commandProblemOf(files: readonly string[]): CheckpointError | null {
  const path = files.map(commandPathOf).findLast((one) => existsSync(one))
  if (path === undefined) return null
  try {
    readFileSync(path)
  } catch (error) {
    return readFailure('the command of the run', path, error)
  }
  return new CheckpointError(`${path} is damaged: it does not say how the run was started`, {
    code: 'CommandDamagedError',
    path,
    hint: 'Start the program itself and let it call `await session.resume(file)`.',
  })
}

const commandPathOf = (record: string): string =>
  `${record.replace(/\.telemetry\.jsonl(?:\.zst)?$/, '').replace(/\.repaired$/, '')}.run`

function isCommand(given: unknown): given is RunCommand {
  if (typeof given !== 'object' || given === null) return false
  const { kind, file, arguments: args, folder, launch } = given as Partial<RunCommand>
  const isKind = kind === 'script' || kind === 'tasks'
  if (!isKind || typeof file !== 'string' || typeof folder !== 'string') return false
  const isArgument = (one: unknown): boolean => one === null || typeof one === 'string'
  return Array.isArray(args) && args.every(isArgument) && isLaunch(launch)
}

function isLaunch(given: unknown): boolean {
  if (given === undefined) return true
  if (typeof given !== 'object' || given === null) return false
  const { options, more } = given as { readonly options?: unknown; readonly more?: unknown }
  const isText = (one: unknown): boolean => typeof one === 'string'
  return (
    typeof options === 'object' && options !== null && Array.isArray(more) && more.every(isText)
  )
}

/** Replaced as a whole: a reader never sees half of it. */
function writePrivate(path: string, value: object): void {
  const draft = join(dirname(path), `.${process.pid}.run.tmp`)
  try {
    writeFileSync(draft, `${JSON.stringify(value)}\n`, { mode: 0o600 })
    chmodSync(draft, 0o600)
    renameSync(draft, path)
  } catch (error) {
    rmSync(draft, { force: true })
    throw checkpointFailure('write', path, error)
  }
}

function readJson(path: string): Record<string, unknown> | null {
  try {
    return expectObject('file', JSON.parse(readFileSync(path, 'utf8')))
  } catch {
    return null
  }
}

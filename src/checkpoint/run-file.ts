/**
 * The files through which a command and the program that it runs communicate: the command's request
 * to the program's first session, and, next to a record, the command that started it.
 */

import { chmodSync, existsSync, lstatSync, mkdtempSync, readdirSync } from 'node:fs'
import { renameSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { CheckpointError, errnoOf } from '../foundation/errors.ts'
import { expectObject } from '../foundation/options.ts'
import { readTextFileSync } from '../foundation/regular-file.ts'
import { findSecretArguments } from '../foundation/secrets.ts'
import { checkpointFailure, readFailure } from './files.ts'
import { holderOf, isHeld } from './lock.ts'

/** The environment variable with the path of the request. */
export const runVariable = 'TUTTI_RUN'

/** The diagnostics channel on which a session publishes the content of the resumed record. */
export const resumeChannel = 'tutti.resume'

/** How a record was started, so that it can be resumed in the same way. */
export interface RunCommand {
  readonly kind: 'script' | 'tasks' | 'array'
  /** An absolute path; for an array, the program as it was typed. */
  readonly file: string
  /** `null` for an argument that contained a secret. */
  readonly arguments: readonly (string | null)[]
  readonly folder: string
  /** For an array, its indices as they were typed, such as `1-10,20`. */
  readonly array?: string
  /** For a script started by `tutti launch`, the resources requested from the scheduler. */
  readonly launch?: {
    readonly options: Readonly<Record<string, unknown>>
    /** Additional options in the scheduler's own syntax. */
    readonly more: readonly string[]
  }
}

/** A command's request to the first session that starts telemetry. */
export interface RunRequest {
  readonly command: RunCommand
  readonly keep_results: boolean
  /** The id for a new session that has not chosen its own. Default: a generated id. */
  readonly session_id?: string | null
  /** The record to resume, and the options for that. */
  readonly resume: {
    readonly record: string
    readonly session_id: string
    readonly changed: 'refuse' | 'keep' | 'rerun'
    readonly keep_failed: boolean
  } | null
}

const folderPrefix = 'tutti-run-'
/** The pattern of folder names that `mkdtemp` creates. */
const folderName = /^tutti-run-[A-Za-z0-9]{6}$/
/** Files that identify the processes using the folder of a request. */
const holderFiles = { command: 'command.holder', script: 'script.holder' }

/**
 * A request that no session has taken yet, in a folder that only its owner can read. Also removes
 * folders left by killed commands.
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

  /** Marks the folder as used by the script, which may outlive this process. */
  sentTo(scriptPid: number): void {
    writePrivate(join(this.#folder, holderFiles.script), holderOf(scriptPid))
  }

  /** Whether a session of the program took the request. */
  get isTaken(): boolean {
    return existsSync(`${this.path}.taken`)
  }

  /** The record of the session that took the request; `null` if it wrote none. */
  get record(): string | null {
    return readRecordOf(this.path)
  }

  [Symbol.dispose](): void {
    rmSync(this.#folder, { recursive: true, force: true })
  }
}

/** Keeps folders without a holder: they are just being created, or belong to an older version. */
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
    // Another command is removing the folder, or the next command will.
  }
}

/** For a program that is started elsewhere. Only the owner can read the file. */
export const writeRequest = (path: string, request: RunRequest): void => writePrivate(path, request)

/** Reads a request of `writeRequest`, whether or not it was taken; `null` if there is none. */
export function readRequest(path: string): RunRequest | null {
  const found = readJson(path) ?? readJson(`${path}.taken`)
  return isCommand(found?.['command']) ? (found as unknown as RunRequest) : null
}

/** Returns the record of the session that took this request; `null` if none did. */
export function readRecordOf(path: string): string | null {
  const found = readJson(`${path}.record`)
  return typeof found?.['record'] === 'string' ? found['record'] : null
}

/** Replaces arguments that are secrets, or values of options named like a secret, by `null`. */
export function toKeptArguments(args: readonly string[]): (string | null)[] {
  const isSecret = findSecretArguments(args)
  return args.map((arg, at) => (isSecret[at] === true ? null : arg))
}

/** The variable is read early, so that child processes of the program do not inherit it. */
let requestPath = readVariable()

/** Whether `tutti run`, `resume` or `launch` has started this program. */
export const isRunByCommand = requestPath !== ''

function readVariable(): string {
  const { [runVariable]: path = '' } = process.env
  delete process.env[runVariable]
  return path
}

/** A request that no other session can take. */
export interface TakenRequest extends RunRequest {
  /** Reports the path of the record to the command, and stores the command next to it. */
  tellRecord(record: string): void
}

/** Takes the request of the command that runs this program; `null` if there is none left. */
export function takeRequest(): TakenRequest | null {
  const path = requestPath
  if (path === '') return null
  requestPath = ''
  try {
    // Atomic: only one of several processes succeeds.
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

/** Stores the command that started a record next to it. Only the owner can read the file. */
export function keepCommand(record: string, command: RunCommand): void {
  writePrivate(commandPathOf(record), command)
}

/** Reads the command that started a record; `null` if none was stored. */
function readCommand(record: string): RunCommand | null {
  const found = readJson(commandPathOf(record))
  return isCommand(found) ? found : null
}

/** Searches all files of a run: the last process may have died before storing the command. */
export const readCommandOf = (files: readonly string[]): RunCommand | null =>
  files.map(readCommand).findLast((one) => one !== null) ?? null

/** The reason why the last stored command of a run cannot be used; `null` if none was stored. */
export function commandProblemOf(files: readonly string[]): CheckpointError | null {
  const path = files.map(commandPathOf).findLast((one) => existsSync(one))
  if (path === undefined) return null
  try {
    readTextFileSync(path)
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
  const { kind, file, arguments: args, folder, array, launch } = given as Partial<RunCommand>
  const isArray = kind === 'array' && typeof array === 'string'
  const isKind = kind === 'script' || kind === 'tasks' || isArray
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

/** Replaces the file atomically, so that a reader never sees a part of it. */
function writePrivate(path: string, value: object): void {
  const draft = join(dirname(path), `.${process.pid}.run.tmp`)
  try {
    // A draft may be left by a killed process that had the same id.
    rmSync(draft, { force: true })
    writeFileSync(draft, `${JSON.stringify(value)}\n`, { flag: 'wx', mode: 0o600 })
    chmodSync(draft, 0o600)
    renameSync(draft, path)
  } catch (error) {
    rmSync(draft, { force: true })
    throw checkpointFailure('write', path, error)
  }
}

function readJson(path: string): Record<string, unknown> | null {
  try {
    return expectObject('file', JSON.parse(readTextFileSync(path)))
  } catch {
    return null
  }
}

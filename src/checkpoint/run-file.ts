/**
 * The files through which a command and the program that it runs communicate. The command sends a
 * request to the program's first session, which stores the command next to the record.
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
import { createHolder, isHeld } from './lock.ts'
import { companionPath } from './record-names.ts'

/** The environment variable that contains the path of the request. */
export const runVariable = 'TUTTI_RUN'

/** The diagnostics channel on which a session publishes the content of the resumed record. */
export const resumeChannel = 'tutti.resume'

/** The command that started a record. The record can be resumed with it. */
export interface RunCommand {
  readonly kind: 'script' | 'tasks' | 'array'
  /** An absolute path; for an array, the program as it was typed. */
  readonly file: string
  /** The arguments; `null` replaces an argument that contained a secret. */
  readonly arguments: readonly (string | null)[]
  readonly folder: string
  /** The numbers of an array as they were typed, such as `1-10,20`. */
  readonly array?: string
  readonly launch?: {
    readonly options: Readonly<Record<string, unknown>>
    /** Additional options in the scheduler's own syntax. */
    readonly more: readonly string[]
  }
}

/** A request from a command to its program. The first session that starts telemetry takes it. */
export interface RunRequest {
  readonly command: RunCommand
  readonly keep_results: boolean
  /** The id for a new session whose program does not choose one. Default: a generated id. */
  readonly session_id?: string | null
  readonly resume: {
    readonly record: string
    readonly session_id: string
    readonly changed: 'refuse' | 'keep' | 'rerun'
    readonly keep_failed: boolean
  } | null
}

const folderPrefix = 'tutti-run-'
/** The pattern of folder names that `mkdtemp` creates. */
const folderPattern = /^tutti-run-[A-Za-z0-9]{6}$/
const holderFiles = { command: 'command.holder', script: 'script.holder' }

/**
 * A request in a folder that only its owner can read. Creating a request also removes the folders
 * of killed commands.
 */
export class SentRequest implements Disposable {
  readonly path: string
  readonly #folder: string

  constructor(request: RunRequest) {
    removeLeftovers(tmpdir())
    this.#folder = mkdtempSync(join(tmpdir(), folderPrefix))
    this.path = join(this.#folder, 'request.json')
    writePrivate(join(this.#folder, holderFiles.command), createHolder(process.pid))
    writeRequest(this.path, request)
  }

  /** Marks the folder as used by the script, which may outlive this process. */
  markScript(scriptPid: number): void {
    writePrivate(join(this.#folder, holderFiles.script), createHolder(scriptPid))
  }

  get isClaimed(): boolean {
    return existsSync(`${this.path}.taken`)
  }

  get record(): string | null {
    return readRequestRecord(this.path)
  }

  [Symbol.dispose](): void {
    rmSync(this.#folder, { recursive: true, force: true })
  }
}

/**
 * Removes the folders of killed commands. Keeps folders without a holder, because another command
 * may have just created them.
 */
function removeLeftovers(parent: string): void {
  for (const name of readdirSync(parent)) {
    const folder = join(parent, name)
    if (folderPattern.test(name) && isLeftover(folder)) removeQuietly(folder)
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
    // The next command will remove the folder.
  }
}

/** Writes a request to a file that only its owner can read. */
export const writeRequest = (path: string, request: RunRequest): void => writePrivate(path, request)

/** Reads a request, even if a session has already taken it. Returns `null` if there is none. */
export function readRequest(path: string): RunRequest | null {
  const found = readJson(path) ?? readJson(`${path}.taken`)
  return isCommand(found?.['command']) ? (found as unknown as RunRequest) : null
}

/** Returns the record of the session that took this request; `null` if none did. */
export function readRequestRecord(path: string): string | null {
  const found = readJson(`${path}.record`)
  return typeof found?.['record'] === 'string' ? found['record'] : null
}

/** Replaces secrets, and the values of options that are named like a secret, by `null`. */
export function omitSecretArguments(args: readonly string[]): (string | null)[] {
  const isSecret = findSecretArguments(args)
  return args.map((arg, at) => (isSecret[at] === true ? null : arg))
}

/**
 * The path of the request. `readVariable` removes the environment variable, so that child processes
 * of the program do not inherit it.
 */
let requestPath = readVariable()

/** Whether `tutti run`, `resume` or `launch` has started this program. */
export const isStartedByCommand = requestPath !== ''

function readVariable(): string {
  const { [runVariable]: path = '' } = process.env
  delete process.env[runVariable]
  return path
}

export interface ClaimedRequest extends RunRequest {
  /** Reports the path of the record to the command, and stores the command next to it. */
  reportRecord(record: string): void
}

/** Returns the request of the command that runs this program; `null` after the first call. */
export function claimRequest(): ClaimedRequest | null {
  const path = requestPath
  if (path === '') return null
  requestPath = ''
  try {
    // Renaming is atomic, so only one process succeeds in taking the request.
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
    reportRecord(record) {
      storeCommand(record, request.command)
      writePrivate(`${path}.record`, { record })
    },
  }
}

/** Stores the command next to the record. Only the owner can read the file. */
export function storeCommand(record: string, command: RunCommand): void {
  writePrivate(commandPathOf(record), command)
}

/**
 * Returns the last command stored with a run. Searches all its files, because the last process may
 * have died before it stored a command.
 */
export const readRunCommand = (files: readonly string[]): RunCommand | null =>
  files.map((file) => readJson(commandPathOf(file)) as unknown).findLast(isCommand) ?? null

/** Explains why the last stored command of a run cannot be used; `null` if none was stored. */
export function explainUnusableCommand(files: readonly string[]): CheckpointError | null {
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

const commandPathOf = (record: string): string => companionPath(record, '.run')

function isCommand(given: unknown): given is RunCommand {
  if (typeof given !== 'object' || given === null) return false
  const { kind, file, arguments: args, folder, array, launch } = given as Partial<RunCommand>
  const isArray = kind === 'array' && typeof array === 'string'
  const isKind = kind === 'script' || kind === 'tasks' || isArray
  if (!isKind || typeof file !== 'string' || typeof folder !== 'string') return false
  const isArgument = (one: unknown): boolean => one === null || typeof one === 'string'
  return Array.isArray(args) && args.every(isArgument) && isLaunchOptions(launch)
}

function isLaunchOptions(given: unknown): boolean {
  if (given === undefined) return true
  if (typeof given !== 'object' || given === null) return false
  const { options, more } = given as { readonly options?: unknown; readonly more?: unknown }
  const isText = (one: unknown): boolean => typeof one === 'string'
  return (
    typeof options === 'object' && options !== null && Array.isArray(more) && more.every(isText)
  )
}

/** Writes a file that only its owner can read. Replaces an existing file atomically. */
function writePrivate(path: string, value: object): void {
  const draft = join(dirname(path), `.${process.pid}.run.tmp`)
  try {
    // A killed process with the same pid may have left a draft.
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

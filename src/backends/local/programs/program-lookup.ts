/** Finds a program as the system would, and explains why one cannot be started. */

import { accessSync, closeSync, constants, readdirSync, readSync, statSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { nearest } from '../../../foundation/options.ts'
import { errnoOf, type TuttiError, withoutStack } from '../../../foundation/errors.ts'
import { openRegularFileSync } from '../../../foundation/regular-file.ts'
import {
  CwdNotFoundError,
  ExecutableNotFoundError,
  ExecutableNotPermittedError,
  SpawnError,
} from '../../../foundation/task-errors.ts'

/** The system's search path if `PATH` is not set. */
const defaultPath = '/bin:/usr/bin'
const maxKnown = 1000

/** Caches what it finds, so that a program that runs often is looked up once. */
export class ProgramLookup {
  readonly #found = new Map<string, string>()
  readonly #faults = new Map<string, TuttiError>()

  /** The path to start, or `undefined` if the name is not in `path`. */
  find(executable: string, path: string = defaultPath): string | undefined {
    if (executable.includes('/')) return executable
    const key = `${executable}\0${path}`
    const known = this.#found.get(key)
    if (known !== undefined) return known
    const found = candidatesIn(executable, path).find((file) => isProgram(file))
    if (found !== undefined) remember(this.#found, key, found)
    return found
  }

  /** Clears the cache, because the program may have moved. */
  forget(): void {
    this.#found.clear()
  }

  /** The error that says why the name is not in `path`. */
  explainMissing(executable: string, path: string = defaultPath): TuttiError {
    const key = `${executable}\0${path}`
    const fault = this.#faults.get(key) ?? missingInPath(executable, path)
    remember(this.#faults, key, fault)
    return fault
  }
}

function remember<T>(map: Map<string, T>, key: string, value: T): void {
  if (map.size >= maxKnown) map.clear()
  map.set(key, value)
}

/** The files that a search for the name would try. */
export const candidatesIn = (name: string, path: string = defaultPath): string[] =>
  path.split(':').map((folder) => join(folder === '' ? '.' : folder, name))

/** The error that says why the system refused to start `file` in `cwd`. Never throws. */
export function explainRefusal(file: string, cwd: string, errno: string): TuttiError {
  const folder = examine(cwd)
  const isClosed = folder === 'folder' && errno === 'EACCES' && !isAllowed(cwd)
  if (folder !== 'folder' || isClosed) {
    const what = isClosed ? 'may not be entered' : describe(folder)
    const message = `the working directory ${shorten(cwd)} ${what}`
    return create(CwdNotFoundError, message, 'Make the folder first, or name another.')
  }
  const path = resolve(cwd, file)
  const name = shorten(file)
  const kind = examine(path)
  switch (kind) {
    case 'ENOENT':
    case 'ENOTDIR':
      return missingFile(file, path)
    case 'ENAMETOOLONG':
    case 'ELOOP':
      return create(ExecutableNotFoundError, `${name} ${describe(kind)}`, 'Name another path.')
    case 'folder':
      return notPermitted(`${name} is a folder`, 'Name a program in it.')
    case 'file':
      if (file.endsWith('/')) return slashBehindFile(name)
      if (isAllowed(path)) return explainErrno(name, path, errno)
      return notPermitted(`${name} may not be executed`, `Allow it with: chmod +x ${path}`)
    default:
      return notPermitted(`${name} ${describe(kind)}`, 'Look at the rights of its folders.')
  }
}

function explainErrno(file: string, path: string, errno: string): TuttiError {
  switch (errno) {
    case 'ENOENT':
    case 'ENOTDIR':
      return create(
        ExecutableNotFoundError,
        `${file} names an interpreter that does not exist`,
        `Its first line is ${firstLine(path)}`,
      )
    case 'ENOEXEC':
      return notPermitted(
        `${file} is not a program`,
        'A script needs a first line such as #!/bin/sh',
      )
    case 'EACCES':
    case 'EPERM':
      return notPermitted(
        `${file} may not be executed`,
        'Look at its interpreter, and whether its disk is mounted with noexec.',
      )
    case 'E2BIG':
      return create(
        SpawnError,
        `${file}: arguments and environment are too long for the system (E2BIG)`,
        'Pass a file, or stdin.',
      )
    default:
      return create(SpawnError, `${file} could not be started: ${errno}`)
  }
}

function missingInPath(executable: string, path: string): TuttiError {
  const inTheWay = candidatesIn(executable, path).find((file) => examine(file) === 'file')
  if (inTheWay !== undefined) {
    return notPermitted(`${inTheWay} may not be executed`, `Allow it with: chmod +x ${inTheWay}`)
  }
  const names = path.split(':').flatMap((folder) => namesIn(folder === '' ? '.' : folder))
  const message = `${shorten(executable)} was not found in PATH`
  return notFound(message, executable, executable, names, `PATH is ${path}.`)
}

const slashBehindFile = (name: string): TuttiError =>
  create(
    ExecutableNotFoundError,
    `${name} does not exist: without the slash at its end it is a file`,
    'Remove the slash.',
  )

function missingFile(file: string, path: string): TuttiError {
  const folder = resolve(path, '..')
  const base = path.slice(path.lastIndexOf('/') + 1)
  const message = `${shorten(file)} does not exist`
  return notFound(message, file, base, namesIn(folder), `Searched in ${folder}.`)
}

function notFound(
  message: string,
  executable: string,
  name: string,
  known: readonly string[],
  searched: string,
): TuttiError {
  const near = nearest(name, known)
  const hint = near === undefined ? searched : `Did you mean "${near}"? ${searched}`
  return create(ExecutableNotFoundError, message, (commandLineHint(executable) ?? '') + hint)
}

/** A file name may contain spaces, but a space often means that arguments were included. */
function commandLineHint(executable: string): string | null {
  const [program = '', ...words] = executable.trim().split(/\s+/)
  if (words.length === 0) return null
  const list = words.map((word) => `'${word}'`).join(', ')
  return `Arguments have a list of their own: executable: '${program}', arguments: [${list}]. `
}

const notPermitted = (message: string, hint: string): TuttiError =>
  create(ExecutableNotPermittedError, message, hint)

/** Without a stack, which would only show the launcher's code. */
const create = (
  errorClass: new (message: string, details: { hint?: string }) => TuttiError,
  message: string,
  hint?: string,
): TuttiError => withoutStack(() => new errorClass(message, hint === undefined ? {} : { hint }))

/** Returns `file`, `folder`, or the errno if the path cannot be examined. */
function examine(path: string): string {
  try {
    return statSync(path).isDirectory() ? 'folder' : 'file'
  } catch (error) {
    return errnoOf(error)
  }
}

/** Describes a result of `examine` that was not the expected one. */
function describe(found: string): string {
  switch (found) {
    case 'ENOENT':
    case 'ENOTDIR':
      return 'does not exist'
    case 'file':
      return 'is not a folder'
    case 'ENAMETOOLONG':
      return 'is longer than the system allows'
    case 'ELOOP':
      return 'leads into a loop of links'
    default:
      return `cannot be examined: ${found}`
  }
}

const maxNameLength = 200
const shorten = (name: string): string =>
  name.length > maxNameLength ? `${name.slice(0, maxNameLength)}…` : name

/** Whether a program may be executed, or a directory entered. */
function isAllowed(path: string): boolean {
  try {
    accessSync(path, constants.X_OK)
    return true
  } catch {
    return false
  }
}

const isProgram = (path: string): boolean => isAllowed(path) && examine(path) === 'file'

function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder)
  } catch {
    return []
  }
}

function firstLine(path: string): string {
  const bytes = Buffer.alloc(128)
  try {
    const file = openRegularFileSync(path)
    const length = readSync(file, bytes)
    closeSync(file)
    return bytes.toString('utf8', 0, length).split('\n')[0] ?? ''
  } catch {
    return 'unreadable'
  }
}

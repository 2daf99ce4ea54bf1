/** Finds a program as the system would, and explains why a program cannot be started. */

import { accessSync, closeSync, constants, readdirSync, readSync, statSync } from 'node:fs'
import { basename, dirname, join, resolve } from 'node:path'
import { findNearest } from '../../../foundation/options.ts'
import { errnoOf, type TuttiError, withoutStack } from '../../../foundation/errors.ts'
import { openRegularFileSync } from '../../../foundation/regular-file.ts'
import {
  CwdNotFoundError,
  ExecutableNotFoundError,
  ExecutableNotPermittedError,
  SpawnError,
} from '../../../foundation/task-errors.ts'

const defaultPath = '/bin:/usr/bin'
const maxCacheEntries = 1000

/** Finds programs and caches their paths. */
export class ProgramLookup {
  readonly #found = new Map<string, string>()
  readonly #errors = new Map<string, TuttiError>()

  find(executable: string, path: string = defaultPath): string | undefined {
    if (executable.includes('/')) return executable
    const key = `${executable}\0${path}`
    const known = this.#found.get(key)
    if (known !== undefined) return known
    const found = candidatesIn(executable, path).find((file) => isProgram(file))
    if (found !== undefined) addToCache(this.#found, key, found)
    return found
  }

  /** Clears the cache, because a program may have moved. */
  clear(): void {
    this.#found.clear()
  }

  explainMissing(executable: string, path: string = defaultPath): TuttiError {
    const key = `${executable}\0${path}`
    const fault = this.#errors.get(key) ?? missingInPathError(executable, path)
    addToCache(this.#errors, key, fault)
    return fault
  }
}

function addToCache<T>(map: Map<string, T>, key: string, value: T): void {
  if (map.size >= maxCacheEntries) map.clear()
  map.set(key, value)
}

/** Returns the files that a search for the name would try. */
export const candidatesIn = (name: string, path: string = defaultPath): string[] =>
  path.split(':').map((folder) => join(folder === '' ? '.' : folder, name))

/** Explains why the system refused to start `file` in `cwd`. Never throws. */
export function explainRefusal(file: string, cwd: string, errno: string): TuttiError {
  const folder = inspectPath(cwd)
  const isClosed = folder === 'folder' && errno === 'EACCES' && !isExecutable(cwd)
  if (folder !== 'folder' || isClosed) {
    const what = isClosed ? 'may not be entered' : describePathProblem(folder)
    const message = `the working directory ${shorten(cwd)} ${what}`
    return createError(CwdNotFoundError, message, 'Make the folder first, or name another.')
  }
  const path = resolve(cwd, file)
  const name = shorten(file)
  const kind = inspectPath(path)
  switch (kind) {
    case 'ENOENT':
    case 'ENOTDIR':
      return missingFileError(file, path)
    case 'ENAMETOOLONG':
    case 'ELOOP':
      return notFoundError(`${name} ${describePathProblem(kind)}`, 'Name another path.')
    case 'folder':
      return notPermittedError(`${name} is a folder`, 'Name a program in it.')
    case 'file':
      if (!file.endsWith('/')) return explainErrno(name, path, errno)
      return notFoundError(`${name} is a file, not a folder`, 'Remove the slash at its end.')
    default:
      return notPermittedError(
        `${name} ${describePathProblem(kind)}`,
        'Look at the rights of its folders.',
      )
  }
}

function explainErrno(file: string, path: string, errno: string): TuttiError {
  if (!isExecutable(path)) return notExecutableError(file, path)
  switch (errno) {
    case 'ENOENT':
    case 'ENOTDIR': {
      const hint = `Its first line is ${readFirstLine(path)}`
      return notFoundError(`${file} names an interpreter that does not exist`, hint)
    }
    case 'ENOEXEC':
      return notPermittedError(
        `${file} is not a program`,
        'A script needs a first line such as #!/bin/sh',
      )
    case 'EACCES':
    case 'EPERM': {
      const hint = 'Look at its interpreter, and whether its disk is mounted with noexec.'
      return notPermittedError(`${file} may not be executed`, hint)
    }
    case 'E2BIG': {
      const text = `${file}: arguments and environment are too long for the system (E2BIG)`
      return createError(SpawnError, text, 'Pass a file, or stdin.')
    }
    default:
      return createError(SpawnError, `${file} could not be started: ${errno}`)
  }
}

function missingInPathError(executable: string, path: string): TuttiError {
  const plainFile = candidatesIn(executable, path).find((file) => inspectPath(file) === 'file')
  if (plainFile !== undefined) return notExecutableError(plainFile, plainFile)
  const names = path.split(':').flatMap((folder) => listNames(folder === '' ? '.' : folder))
  const hint = missingHint(executable, executable, names, `PATH is ${path}.`)
  return notFoundError(`${shorten(executable)} was not found in PATH`, hint)
}

function missingFileError(file: string, path: string): TuttiError {
  const folder = dirname(path)
  const hint = missingHint(file, basename(path), listNames(folder), `Searched in ${folder}.`)
  return notFoundError(`${shorten(file)} does not exist`, hint)
}

/** The hint for a missing program. A name with spaces probably includes arguments. */
function missingHint(
  executable: string,
  name: string,
  known: readonly string[],
  searched: string,
): string {
  const nearest = findNearest(name, known)
  const hint = nearest === undefined ? searched : `Did you mean "${nearest}"? ${searched}`
  const [program = '', ...words] = executable.trim().split(/\s+/)
  if (words.length === 0) return hint
  const list = words.map((word) => `'${word}'`).join(', ')
  const example = `executable: '${program}', arguments: [${list}]`
  return `Arguments have a list of their own: ${example}. ${hint}`
}

const notFoundError = (message: string, hint: string): TuttiError =>
  createError(ExecutableNotFoundError, message, hint)

const notPermittedError = (message: string, hint: string): TuttiError =>
  createError(ExecutableNotPermittedError, message, hint)

const notExecutableError = (name: string, path: string): TuttiError =>
  notPermittedError(`${name} may not be executed`, `Allow it with: chmod +x ${path}`)

/** Creates an error without a stack, which would only show the launcher's code. */
const createError = (
  errorClass: new (message: string, details: { hint?: string }) => TuttiError,
  message: string,
  hint?: string,
): TuttiError => withoutStack(() => new errorClass(message, hint === undefined ? {} : { hint }))

/** Returns `file`, `folder`, or the errno if the path cannot be examined. */
function inspectPath(path: string): string {
  try {
    return statSync(path).isDirectory() ? 'folder' : 'file'
  } catch (error) {
    return errnoOf(error)
  }
}

function describePathProblem(kindOrErrno: string): string {
  switch (kindOrErrno) {
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
      return `cannot be examined: ${kindOrErrno}`
  }
}

const maxNameLength = 200
const shorten = (name: string): string =>
  name.length > maxNameLength ? `${name.slice(0, maxNameLength)}…` : name

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK)
    return true
  } catch {
    return false
  }
}

const isProgram = (path: string): boolean => isExecutable(path) && inspectPath(path) === 'file'

function listNames(folder: string): string[] {
  try {
    return readdirSync(folder)
  } catch {
    return []
  }
}

function readFirstLine(path: string): string {
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

/**
 * Where a program is, and if it cannot be started, why: a name is looked up as the system would.
 */

import {
  accessSync,
  closeSync,
  constants,
  openSync,
  readdirSync,
  readSync,
  statSync,
} from 'node:fs'
import { join, resolve } from 'node:path'
import { nearest } from '../../../foundation/options.ts'
import { type TuttiError, withoutStack } from '../../../foundation/errors.ts'
import {
  CwdNotFoundError,
  ExecutableNotFoundError,
  ExecutableNotPermittedError,
  SpawnError,
} from '../../../foundation/task-errors.ts'

/** What the system searches without `PATH`. */
const defaultPath = '/bin:/usr/bin'
const mostKnown = 1000

/** Remembers what it found, so that a program that runs often is looked up once. */
export class ProgramLookup {
  readonly #found = new Map<string, string>()
  readonly #faults = new Map<string, TuttiError>()

  /** A path to start, or `undefined` for a name that is not in `path`. */
  find(executable: string, path: string = defaultPath): string | undefined {
    if (executable.includes('/')) return executable
    const key = `${executable}\0${path}`
    const known = this.#found.get(key)
    if (known !== undefined) return known
    const found = candidates(executable, path).find((file) => isProgram(file))
    if (found !== undefined) remember(this.#found, key, found)
    return found
  }

  /** The program may have moved: the next `find` looks again. */
  forget(): void {
    this.#found.clear()
  }

  /** Why the name is not in `path`. */
  explainMissing(executable: string, path: string = defaultPath): TuttiError {
    const key = `${executable}\0${path}`
    const fault = this.#faults.get(key) ?? missingInPath(executable, path)
    remember(this.#faults, key, fault)
    return fault
  }
}

function remember<T>(map: Map<string, T>, key: string, value: T): void {
  if (map.size >= mostKnown) map.clear()
  map.set(key, value)
}

const candidates = (name: string, path: string): string[] =>
  path.split(':').map((folder) => join(folder === '' ? '.' : folder, name))

/** Why the system refused to start `file`, seen from `cwd`. */
export function explainRefusal(file: string, cwd: string, errno: string): TuttiError {
  const folder = kindOf(cwd)
  if (folder !== 'folder') {
    const what = folder === 'missing' ? 'does not exist' : 'is not a folder'
    const message = `the working directory ${cwd} ${what}`
    return create(CwdNotFoundError, message, 'Make the folder first, or name another.')
  }
  const path = resolve(cwd, file)
  const kind = kindOf(path)
  if (kind === 'missing') return missingFile(file, path)
  if (kind === 'folder') return notPermitted(`${file} is a folder`, 'Name a program in it.')
  if (!isProgram(path)) {
    return notPermitted(`${file} may not be executed`, `Allow it with: chmod +x ${path}`)
  }
  return explainErrno(file, path, errno)
}

function explainErrno(file: string, path: string, errno: string): TuttiError {
  switch (errno) {
    case 'ENOENT':
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
  const inTheWay = candidates(executable, path).find((file) => kindOf(file) === 'file')
  if (inTheWay !== undefined) {
    return notPermitted(`${inTheWay} may not be executed`, `Allow it with: chmod +x ${inTheWay}`)
  }
  const names = path.split(':').flatMap((folder) => namesIn(folder === '' ? '.' : folder))
  return notFound(`${executable} was not found in PATH`, executable, names, `PATH is ${path}.`)
}

function missingFile(file: string, path: string): TuttiError {
  const folder = resolve(path, '..')
  const base = path.slice(path.lastIndexOf('/') + 1)
  return notFound(`${file} does not exist`, base, namesIn(folder), `Searched in ${folder}.`)
}

function notFound(
  message: string,
  name: string,
  known: readonly string[],
  searched: string,
): TuttiError {
  const near = nearest(name, known)
  const hint = near === undefined ? searched : `Did you mean "${near}"? ${searched}`
  return create(ExecutableNotFoundError, message, (commandLineHint(name) ?? '') + hint)
}

/** A space is legal in the name of a file, but often begins the arguments. */
function commandLineHint(name: string): string | null {
  const [program = '', ...words] = name.trim().split(/\s+/)
  if (words.length === 0) return null
  const list = words.map((word) => `'${word}'`).join(', ')
  return `Arguments have a list of their own: executable: '${program}', arguments: [${list}]. `
}

const notPermitted = (message: string, hint: string): TuttiError =>
  create(ExecutableNotPermittedError, message, hint)

/** Without a stack, which would be the launcher's. */
const create = (
  errorClass: new (message: string, details: { hint?: string }) => TuttiError,
  message: string,
  hint?: string,
): TuttiError => withoutStack(() => new errorClass(message, hint === undefined ? {} : { hint }))

function kindOf(path: string): 'file' | 'folder' | 'missing' {
  const stats = statSync(path, { throwIfNoEntry: false })
  if (stats === undefined) return 'missing'
  return stats.isDirectory() ? 'folder' : 'file'
}

function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK)
    return kindOf(path) === 'file'
  } catch {
    return false
  }
}

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
    const file = openSync(path, 'r')
    const length = readSync(file, bytes)
    closeSync(file)
    return bytes.toString('utf8', 0, length).split('\n')[0] ?? ''
  } catch {
    return 'unreadable'
  }
}

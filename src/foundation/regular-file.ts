/** Opens files at untrusted paths. Accepts only regular files, so that opening never blocks. */

import { closeSync, constants, fstatSync, openSync, readFileSync } from 'node:fs'
import { type Stats, statSync } from 'node:fs'
import { type FileHandle, open } from 'node:fs/promises'
import { errnoOf, messageOf, tryRead } from './errors.ts'

/** `O_NONBLOCK`, because opening a FIFO would otherwise block until another process opens it. */
const readFlags = constants.O_RDONLY | constants.O_NONBLOCK

/** Rejects with `EISDIR` for a folder, with `ENOTSUP` for any other special file. */
export async function openRegularFile(path: string): Promise<FileHandle> {
  const file = await open(path, readFlags).catch((error: unknown) => throwOpenError(path, error))
  try {
    expectRegular(await file.stat())
    return file
  } catch (error) {
    await file.close()
    throw error
  }
}

/** Like `openRegularFile`, but returns a descriptor. `flags` are added to the flags for reading. */
export function openRegularFileSync(path: string, flags = 0): number {
  const fd = openDescriptor(path, readFlags | flags)
  try {
    expectRegular(fstatSync(fd))
    return fd
  } catch (error) {
    closeSync(fd)
    throw error
  }
}

/** Returns `null` if there is no file or it cannot be examined, such as a link to itself. */
export const statOf = (path: string): Stats | null => tryRead(() => statSync(path)) ?? null

export const isRegularFile = (path: string): boolean => statOf(path)?.isFile() ?? false

/**
 * Reads a file. Throws like `openRegularFile`, or `EFBIG` if the file is larger than `maxBytes`.
 */
export function readRegularFileSync(
  path: string,
  maxBytes = Infinity,
): { readonly bytes: Buffer; readonly mode: number } {
  const fd = openRegularFileSync(path)
  try {
    const { size, mode } = fstatSync(fd)
    if (size > maxBytes) throw systemError('EFBIG', `at most ${maxBytes} bytes`, `${size}`)
    return { bytes: readFileSync(fd), mode }
  } finally {
    closeSync(fd)
  }
}

/** Returns the content as text. Throws like `openRegularFile`. */
export const readTextFileSync = (path: string): string =>
  readRegularFileSync(path).bytes.toString('utf8')

function openDescriptor(path: string, flags: number): number {
  try {
    return openSync(path, flags)
  } catch (error) {
    return throwOpenError(path, error)
  }
}

/** Replaces ENXIO, which the system reports for a socket, by an error that names the type. */
function throwOpenError(path: string, error: unknown): never {
  const stats = errnoOf(error) === 'ENXIO' ? statOf(path) : null
  if (stats !== null) expectRegular(stats)
  throw error
}

function expectRegular(stats: Stats): void {
  if (stats.isFile()) return
  if (stats.isDirectory()) throw systemError('EISDIR', 'a regular file', 'a folder')
  const got = stats.isFIFO() ? 'a pipe' : stats.isSocket() ? 'a socket' : 'a device'
  throw systemError('ENOTSUP', 'a regular file', got)
}

/** Creates an error with a `code`, like the errors of system calls. */
const systemError = (code: string, expected: string, got: string): Error =>
  Object.assign(new Error(`${code}: expected ${expected}, got ${got}`), { code })

const readProblems: Readonly<Record<string, string>> = {
  ENOENT: 'does not exist',
  EACCES: 'may not be read by this user',
  EISDIR: 'is a folder',
}

/** Says in words why a file could not be read, for people who have typed its name. */
export const describeReadProblem = (path: string, error: unknown): string =>
  `${path} ${readProblems[errnoOf(error)] ?? `cannot be read: ${messageOf(error)}`}`

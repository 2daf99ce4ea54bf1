/** Opens files at untrusted paths. Accepts only regular files, so that opening never blocks. */

import { closeSync, constants, fstatSync, openSync, readFileSync } from 'node:fs'
import { type Stats, statSync } from 'node:fs'
import { type FileHandle, open } from 'node:fs/promises'
import { errnoOf } from './errors.ts'

/**
 * Without O_NONBLOCK, opening a FIFO waits for a writer. The type is checked after opening, because
 * the path could be replaced between a check and the opening.
 */
const readFlags = constants.O_RDONLY | constants.O_NONBLOCK

/** Rejects with `EISDIR` for a folder, `ENOTSUP` for other special files, or the system's error. */
export async function openRegularFile(path: string): Promise<FileHandle> {
  const file = await open(path, readFlags).catch((error: unknown) => notOpened(path, error))
  try {
    expectRegular(await file.stat())
    return file
  } catch (error) {
    await file.close()
    throw error
  }
}

/** Like `openRegularFile`, but returns a descriptor. `flags` are added to those for reading. */
export function openRegularFileSync(path: string, flags = 0): number {
  const fd = openFile(path, readFlags | flags)
  try {
    expectRegular(fstatSync(fd))
    return fd
  } catch (error) {
    closeSync(fd)
    throw error
  }
}

/**
 * Follows symbolic links. `null` if the file does not exist or cannot be examined, such as a link
 * to itself, so that one bad entry does not prevent listing its folder.
 */
export function statOf(path: string): Stats | null {
  try {
    return statSync(path)
  } catch {
    return null
  }
}

export const isRegularFile = (path: string): boolean => statOf(path)?.isFile() ?? false

/** The content and permissions. Throws like `openRegularFile`, or `EFBIG` above `maxBytes`. */
export function readRegularFileSync(
  path: string,
  maxBytes = Infinity,
): { readonly bytes: Buffer; readonly mode: number } {
  const fd = openRegularFileSync(path)
  try {
    const { size, mode } = fstatSync(fd)
    if (size > maxBytes) throw failure('EFBIG', `at most ${maxBytes} bytes`, `${size}`)
    return { bytes: readFileSync(fd), mode }
  } finally {
    closeSync(fd)
  }
}

/** The content as text. Throws like `openRegularFile`. */
export const readTextFileSync = (path: string): string =>
  readRegularFileSync(path).bytes.toString('utf8')

function openFile(path: string, flags: number): number {
  try {
    return openSync(path, flags)
  } catch (error) {
    return notOpened(path, error)
  }
}

/** Replaces ENXIO, which the system reports for a socket, by an error that names the type. */
function notOpened(path: string, error: unknown): never {
  const stats = errnoOf(error) === 'ENXIO' ? statOf(path) : null
  if (stats !== null) expectRegular(stats)
  throw error
}

function expectRegular(stats: Stats): void {
  if (stats.isFile()) return
  if (stats.isDirectory()) throw failure('EISDIR', 'a regular file', 'a folder')
  const got = stats.isFIFO() ? 'a pipe' : stats.isSocket() ? 'a socket' : 'a device'
  throw failure('ENOTSUP', 'a regular file', got)
}

/** An error with a `code`, like the system's errors, which callers know how to explain. */
const failure = (code: string, expected: string, got: string): Error =>
  Object.assign(new Error(`${code}: expected ${expected}, got ${got}`), { code })

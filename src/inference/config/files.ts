/** Reads the configuration file and token files, and warns if other users can read them. */

import { existsSync } from 'node:fs'
import { homedir } from 'node:os'
import { join, resolve } from 'node:path'
import { errnoOf, type ErrorDetails, messageOf, ValueError } from '../../foundation/errors.ts'
import type { Log } from '../../foundation/log.ts'
import { readRegularFileSync } from '../../foundation/regular-file.ts'

export interface ConfigFiles {
  exists(path: string): boolean
  /** Makes a path absolute. Relative paths start at the folder of the configuration. */
  resolve(path: string): string
  readToken(path: string): string
}

export const maxConfigBytes = 2 ** 20
/** A token is a single line, so a larger file cannot be a token. */
const maxTokenBytes = 65_536

export function readConfigFile(path: string): { readonly text: string; readonly mode: number } {
  const refuse = (reason: string, details: ErrorDetails = {}): ValueError =>
    new ValueError(`Expected \`configFile\` to be a readable file: ${path} ${reason}`, {
      ...details,
      code: 'ConfigError',
      field: 'configFile',
      expected: 'a readable file',
      got: path,
    })
  try {
    const { bytes, mode } = readRegularFileSync(path, maxConfigBytes)
    return { text: bytes.toString('utf8'), mode }
  } catch (error) {
    if (errnoOf(error) !== 'ENOENT') {
      throw refuse(`cannot be read: ${messageOf(error)}`, { cause: error })
    }
    const hint = `It was looked for at ${resolve(path)}. Write it there, or give its path.`
    throw refuse('does not exist', { cause: error, hint })
  }
}

export function createConfigFiles(folder: string, log: Log): ConfigFiles {
  const resolvePath = (path: string): string =>
    path.startsWith('~/') ? join(homedir(), path.slice(2)) : resolve(folder, path)
  return {
    exists: (path) => existsSync(path),
    resolve: resolvePath,
    readToken(path) {
      const file = resolvePath(path)
      const { bytes, mode } = readRegularFileSync(file, maxTokenBytes)
      warnIfReadable(log, file, mode & 0o044)
      return bytes.toString('utf8').trim()
    },
  }
}

/** `readers` has the read permissions of the group and of others. */
export function warnIfReadable(log: Log, file: string, readers: number): void {
  if (readers === 0) return
  log.warn('TokenFileReadable', `Others can read the token in ${file}; run: chmod 600 ${file}`)
}

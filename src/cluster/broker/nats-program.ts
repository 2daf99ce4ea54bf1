/** Finds the nats-server program. A separate file, because a launcher needs only the path. */

import { accessSync, constants, statSync } from 'node:fs'
import { delimiter, join, resolve } from 'node:path'
import { BackendError } from '../../foundation/errors.ts'

/** Where a project can put the program, for machines that do not have it. */
const projectPath = join('node_modules', '.tutti', 'nats-server')

/**
 * Returns the value of `TUTTI_NATS_SERVER`, else the first program on `PATH` or in an `sbin`
 * folder, else the project's copy.
 */
export function findNatsServer(): string {
  const named = process.env['TUTTI_NATS_SERVER']
  if (named !== undefined && named !== '') {
    if (!named.includes('/') || isExecutableFile(named)) return named
    throw notFoundError(`at ${named}, which TUTTI_NATS_SERVER names`)
  }
  const folders = [...(process.env['PATH'] ?? '').split(delimiter), '/usr/sbin', '/usr/local/sbin']
  const files = [...folders.map((folder) => join(folder, 'nats-server')), resolve(projectPath)]
  const found = files.find(isExecutableFile)
  if (found !== undefined) return found
  throw notFoundError('on PATH')
}

function isExecutableFile(file: string): boolean {
  try {
    accessSync(file, constants.X_OK)
    return statSync(file).isFile()
  } catch {
    return false
  }
}

const notFoundError = (where: string): BackendError =>
  new BackendError(`no program nats-server was found ${where}`, {
    code: 'NatsServerMissingError',
    hint:
      'Install it so that it is on PATH (Debian: apt-get install nats-server), name it in ' +
      `TUTTI_NATS_SERVER, or put it at ${projectPath}.`,
  })

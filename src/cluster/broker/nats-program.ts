/** Finds the nats-server program. A separate file, because a launcher only needs the path. */

import { accessSync, constants, statSync } from 'node:fs'
import { delimiter, join, resolve } from 'node:path'
import { BackendError } from '../../foundation/errors.ts'

/** Where a project may provide the program for machines on which it is not installed. */
const projectPath = join('node_modules', '.tutti', 'nats-server')

/** The path of nats-server: `TUTTI_NATS_SERVER`, the first on PATH, or the project's copy. */
export function findNatsServer(): string {
  const named = process.env['TUTTI_NATS_SERVER']
  if (named !== undefined && named !== '') {
    if (!named.includes('/') || isProgram(named)) return named
    throw notFound(`at ${named}, which TUTTI_NATS_SERVER names`)
  }
  const folders = [...(process.env['PATH'] ?? '').split(delimiter), '/usr/sbin', '/usr/local/sbin']
  const files = [...folders.map((folder) => join(folder, 'nats-server')), resolve(projectPath)]
  const found = files.find(isProgram)
  if (found !== undefined) return found
  throw notFound('on PATH')
}

/** Whether this is a file that this user may execute. */
function isProgram(file: string): boolean {
  try {
    accessSync(file, constants.X_OK)
    return statSync(file).isFile()
  } catch {
    return false
  }
}

const notFound = (where: string): BackendError =>
  new BackendError(`no program nats-server was found ${where}`, {
    code: 'NatsServerMissingError',
    hint:
      'Install it so that it is on PATH (Debian: apt-get install nats-server), name it in ' +
      `TUTTI_NATS_SERVER, or put it at ${projectPath}.`,
  })

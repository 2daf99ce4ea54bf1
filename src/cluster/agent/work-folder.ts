/** The folder of one start of an agent. What starts that were killed have left is removed. */

import { mkdirSync, mkdtempSync, readdirSync, readlinkSync, realpathSync, rmSync } from 'node:fs'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { messageOf } from '../../foundation/errors.ts'
import type { Log } from '../../foundation/log.ts'
import { identityOf, isProcessAlive } from '../../runtime/process-group.ts'
import { toToken } from '../wire/subjects.ts'

/** The name says whose it is: no folder is ever there without its owner. */
const ownedName = /^agent-(?<pid>\d+)-(?<startTime>\d+)-(?<place>[0-9a-f]{24})-/

/**
 * Creates the folder, under its real path, and removes those of dead processes. Several agents may
 * have the same work folder, also from other hosts and containers, whose processes are not seen
 * from here: what they left stays.
 */
export function openWorkFolder(workDir: string, log: Log): string {
  mkdirSync(workDir, { recursive: true })
  const place = placeOf()
  for (const name of readdirSync(workDir)) {
    if (!isLeft(name, place)) continue
    try {
      rmSync(join(workDir, name), { recursive: true, force: true })
    } catch (error) {
      log.warn('WorkFolderNotRemoved', `${join(workDir, name)}: ${messageOf(error)}`)
    }
  }
  const { pid } = process
  const startTime = identityOf(pid)?.startTime ?? 0
  return realpathSync(mkdtempSync(join(workDir, `agent-${pid}-${startTime}-${place}-`)))
}

function isLeft(name: string, place: string): boolean {
  const owner = ownedName.exec(name)?.groups
  if (owner === undefined || owner['place'] !== place) return false
  const pid = Number(owner['pid'])
  if (!isProcessAlive(pid)) return true
  // The id may be that of another process by now.
  const startTime = identityOf(pid)?.startTime
  return startTime !== undefined && startTime !== Number(owner['startTime'])
}

/** Where the ids of processes mean the same. */
function placeOf(): string {
  let namespace = ''
  try {
    namespace = readlinkSync('/proc/self/ns/pid')
  } catch {
    // Not on Linux.
  }
  return toToken(`${hostname()} ${namespace}`)
}

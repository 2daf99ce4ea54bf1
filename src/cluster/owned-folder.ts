/**
 * Creates folders whose names identify the process that owns them, so that no folder is ever
 * without an owner. Folders of killed processes are removed when the next one is created.
 */

import { createHash } from 'node:crypto'
import { lstatSync, mkdtempSync, readdirSync, readlinkSync, realpathSync, rmSync } from 'node:fs'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { identityOf, isProcessAlive } from '../runtime/process-group.ts'

/** The owner in a folder's name, after the kind. */
const owner = /^-(?<pid>\d+)-(?<startTime>\d+)-(?<place>[0-9a-f]{24})-[^-]*$/

/**
 * Creates a folder for this process and returns its real path. Removes folders of the same kind and
 * user whose processes are dead. Those of other hosts and containers stay, because their processes
 * are not visible here. `onNotRemoved` gets each folder that could not be removed.
 */
export function createOwnedFolder(
  parent: string,
  kind: string,
  onNotRemoved: (folder: string, error: unknown) => void,
): string {
  const place = placeOf()
  for (const name of readdirSync(parent)) {
    const folder = join(parent, name)
    try {
      if (!isLeft(name, kind, place) || !isOwn(folder)) continue
      rmSync(folder, { recursive: true, force: true })
    } catch (error) {
      onNotRemoved(folder, error)
    }
  }
  const { pid } = process
  const startTime = identityOf(pid)?.startTime ?? 0
  return realpathSync(mkdtempSync(join(parent, `${kind}-${pid}-${startTime}-${place}-`)))
}

function isLeft(name: string, kind: string, place: string): boolean {
  if (!name.startsWith(kind)) return false
  const found = owner.exec(name.slice(kind.length))?.groups
  if (found === undefined || found['place'] !== place) return false
  const pid = Number(found['pid'])
  if (!isProcessAlive(pid)) return true
  // Another process may have this id by now.
  const startTime = identityOf(pid)?.startTime
  return startTime !== undefined && startTime !== Number(found['startTime'])
}

/** In a shared folder, the entry may be of another user; or another process has removed it. */
function isOwn(folder: string): boolean {
  const found = lstatSync(folder, { throwIfNoEntry: false })
  if (found === undefined || !found.isDirectory()) return false
  return process.getuid === undefined || found.uid === process.getuid()
}

/** Identifies the host and the PID namespace: process ids are comparable only within one. */
function placeOf(): string {
  let namespace = ''
  try {
    namespace = readlinkSync('/proc/self/ns/pid')
  } catch {
    // There is no /proc on this system.
  }
  const place = `${hostname()} ${namespace}`
  return createHash('sha256').update(place).digest('hex').slice(0, 24)
}

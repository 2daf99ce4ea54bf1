/**
 * Folders whose names say which process they belong to: no folder is ever there without its owner.
 * What processes that were killed have left is removed by the next one.
 */

import { createHash } from 'node:crypto'
import { lstatSync, mkdtempSync, readdirSync, readlinkSync, realpathSync, rmSync } from 'node:fs'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { identityOf, isProcessAlive } from '../runtime/process-group.ts'

/** What follows the kind of a folder in its name. */
const owner = /^-(?<pid>\d+)-(?<startTime>\d+)-(?<place>[0-9a-f]{24})-[^-]*$/

/**
 * Creates a folder of this process, under its real path, and removes those of the same kind and the
 * same user whose processes are dead. Processes of other hosts and containers are not seen from
 * here: what they left stays. `onNotRemoved` is told what could not be removed, and why.
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
  // The id may be that of another process by now.
  const startTime = identityOf(pid)?.startTime
  return startTime !== undefined && startTime !== Number(found['startTime'])
}

/** In a folder for everybody others may choose such a name; another process may have removed it. */
function isOwn(folder: string): boolean {
  const found = lstatSync(folder, { throwIfNoEntry: false })
  if (found === undefined || !found.isDirectory()) return false
  return process.getuid === undefined || found.uid === process.getuid()
}

/** Where the ids of processes mean the same. */
function placeOf(): string {
  let namespace = ''
  try {
    namespace = readlinkSync('/proc/self/ns/pid')
  } catch {
    // Not on Linux.
  }
  const place = `${hostname()} ${namespace}`
  return createHash('sha256').update(place).digest('hex').slice(0, 24)
}

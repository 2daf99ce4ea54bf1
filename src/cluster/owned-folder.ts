/**
 * Creates folders whose names identify the process that owns them, so that no folder is ever
 * without an owner. Folders of killed processes are removed when the next one is created.
 */

import { createHash } from 'node:crypto'
import { lstatSync, mkdtempSync, readdirSync, readlinkSync, realpathSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { type Clock, sleep } from '../foundation/clock.ts'
import { boundedWait } from '../foundation/promises.ts'
import { identityOf, isProcessAlive } from '../runtime/process-group.ts'

/** The owner in a folder's name, after the kind. */
const owner = /^-(?<pid>\d+)-(?<startTime>\d+)-(?<place>[0-9a-f]{24})-[^-]*$/

/** The time limit for the removal of a folder, and the delay between two attempts. */
const removeMs = 2000
const retryMs = 100

/**
 * Removes a folder with its contents. Tries again for two seconds, then rejects: a process may
 * still write to it, or it holds what this user may not remove. Not synchronous, because
 * `rmSync` does not return while a process creates files faster than it removes them.
 */
export async function removeFolder(folder: string, clock: Clock): Promise<void> {
  const untilMs = clock.monotonicMs() + removeMs
  for (;;) {
    const leftMs = untilMs - clock.monotonicMs()
    try {
      return await boundedWait(clock, leftMs, rm(folder, { recursive: true, force: true }))
    } catch (error) {
      if (clock.monotonicMs() + retryMs >= untilMs) throw error
    }
    await sleep(clock, retryMs)
  }
}

/**
 * Creates a folder for this process and returns its real path. Removes folders of the same kind and
 * user whose processes are dead. Those of other hosts and containers stay, because their processes
 * are not visible here. `onNotRemoved` gets each folder that could not be removed.
 */
export async function createOwnedFolder(
  parent: string,
  kind: string,
  clock: Clock,
  onNotRemoved: (folder: string, error: unknown) => void,
): Promise<string> {
  const place = placeOf()
  const removeLeft = async (name: string): Promise<void> => {
    const folder = join(parent, name)
    try {
      if (isLeft(name, kind, place) && isOwn(folder)) await removeFolder(folder, clock)
    } catch (error) {
      onNotRemoved(folder, error)
    }
  }
  await Promise.all(readdirSync(parent).map(removeLeft))
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

/**
 * Creates folders whose names identify the process that owns them, so that no folder is ever
 * without an owner. Folders of killed processes are removed when the next one is created.
 */

import { execFile } from 'node:child_process'
import { createHash } from 'node:crypto'
import { lstatSync, mkdtempSync, readdirSync, readlinkSync, realpathSync } from 'node:fs'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import type { Clock } from '../foundation/clock.ts'
import { messageOf } from '../foundation/errors.ts'
import { identityOf, isProcessAlive } from '../runtime/process-group.ts'
import { retry } from '../runtime/retry.ts'

/** The part of a folder's name that identifies its owner, after the kind. */
const owner = /^-(?<pid>\d+)-(?<startTime>\d+)-(?<place>[0-9a-f]{24})-[^-]*$/

/** The time limit of one removal, the total time for retries, and the delay between them. */
const removeMs = 5000
const tryMs = 2000
const retryMs = 100

/**
 * Removes a folder with its contents, including read-only files. Rejects if removal fails for two
 * seconds or takes more than five, because a process still writes to it or this user may not remove
 * some files. Uses another process, because `rm` of Node blocks the event loop for seconds if there
 * are many files.
 */
export async function removeFolder(folder: string, clock: Clock): Promise<void> {
  const limit = new AbortController()
  const run = async (command: string, ...options: string[]): Promise<void> => {
    const { signal } = limit
    await execute(command, [...options, '--', folder], { signal, killSignal: 'SIGKILL' })
  }
  const cancel = clock.after(removeMs, () => limit.abort())
  try {
    const remove = async (attempt: number): Promise<void> => {
      if (attempt > 1) await run('chmod', '-R', 'u+rwX').catch(() => {})
      await run('rm', '-rf')
    }
    const mayRetry = (): boolean => !limit.signal.aborted
    await retry({ delayMs: retryMs, timeoutMs: tryMs }, remove, { clock, mayRetry })
  } catch (cause) {
    const isLate = limit.signal.aborted
    const reason = isLate ? `it was not removed within ${removeMs / 1000} s` : reasonOf(cause)
    throw new Error(reason, { cause })
  } finally {
    cancel()
  }
}

const execute = promisify(execFile)

/** The first line of the program's output. */
function reasonOf(error: unknown): string {
  const { stderr = '' } = error as { stderr?: string }
  return stderr.split('\n', 1)[0] || messageOf(error)
}

/**
 * Creates a folder for this process and returns its real path. Removes folders of the same kind and
 * user whose processes are dead. Folders of other hosts and containers stay, because their
 * processes are not visible here. `onNotRemoved` gets each folder that could not be removed.
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
  // The process id may have been reused.
  const startTime = identityOf(pid)?.startTime
  return startTime !== undefined && startTime !== Number(found['startTime'])
}

/** The entry may belong to another user of a shared folder, or may be gone by now. */
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

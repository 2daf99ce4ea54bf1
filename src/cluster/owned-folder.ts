/**
 * Creates folders whose names identify the process that owns them. The folders of killed processes
 * are removed when the next folder is created.
 */

import { execFile } from 'node:child_process'
import { createHash } from 'node:crypto'
import { lstatSync, mkdtempSync, readdirSync, readlinkSync, realpathSync } from 'node:fs'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import type { Clock } from '../foundation/clock.ts'
import { messageOf } from '../foundation/errors.ts'
import { readIdentity, isProcessAlive } from '../runtime/process-group.ts'
import { retry } from '../runtime/retry.ts'

/** Matches the part of a folder's name that follows the kind and identifies the owner. */
const ownerPattern = /^-(?<pid>\d+)-(?<startTime>\d+)-(?<place>[0-9a-f]{24})-[^-]*$/

const removeTimeoutMs = 5000
const retryTimeoutMs = 2000
const retryDelayMs = 100

/**
 * Removes a folder, including read-only files. Rejects after two seconds of failures, or after five
 * seconds in total. Runs `rm` in another process, because Node's `rm` blocks the event loop.
 */
export async function removeFolder(folder: string, clock: Clock): Promise<void> {
  const limit = new AbortController()
  const run = async (command: string, ...options: string[]): Promise<void> => {
    const { signal } = limit
    await execute(command, [...options, '--', folder], { signal, killSignal: 'SIGKILL' })
  }
  const cancel = clock.after(removeTimeoutMs, () => limit.abort())
  try {
    const remove = async (attempt: number): Promise<void> => {
      if (attempt > 1) await run('chmod', '-R', 'u+rwX').catch(() => {})
      await run('rm', '-rf')
    }
    const mayRetry = (): boolean => !limit.signal.aborted
    await retry({ delayMs: retryDelayMs, timeoutMs: retryTimeoutMs }, remove, { clock, mayRetry })
  } catch (cause) {
    const isLate = limit.signal.aborted
    const reason = isLate
      ? `it was not removed within ${removeTimeoutMs / 1000} s`
      : firstErrorLine(cause)
    throw new Error(reason, { cause })
  } finally {
    cancel()
  }
}

const execute = promisify(execFile)

function firstErrorLine(error: unknown): string {
  const { stderr = '' } = error as { stderr?: string }
  return stderr.split('\n', 1)[0] || messageOf(error)
}

/**
 * Creates a folder and returns its real path. Removes the folders of the same kind that dead
 * processes of this user and host left behind. Calls `onNotRemoved` with each folder that could not
 * be removed.
 */
export async function createOwnedFolder(
  parent: string,
  kind: string,
  clock: Clock,
  onNotRemoved: (folder: string, error: unknown) => void,
): Promise<string> {
  const place = hashHost()
  const removeLeftover = async (name: string): Promise<void> => {
    const folder = join(parent, name)
    try {
      if (isLeftover(name, kind, place) && belongsToUser(folder)) await removeFolder(folder, clock)
    } catch (error) {
      onNotRemoved(folder, error)
    }
  }
  await Promise.all(readdirSync(parent).map(removeLeftover))
  const { pid } = process
  const startTime = readIdentity(pid)?.startTime ?? 0
  return realpathSync(mkdtempSync(join(parent, `${kind}-${pid}-${startTime}-${place}-`)))
}

function isLeftover(name: string, kind: string, place: string): boolean {
  if (!name.startsWith(kind)) return false
  const found = ownerPattern.exec(name.slice(kind.length))?.groups
  if (found === undefined || found['place'] !== place) return false
  const pid = Number(found['pid'])
  if (!isProcessAlive(pid)) return true
  // The process id may have been reused.
  const startTime = readIdentity(pid)?.startTime
  return startTime !== undefined && startTime !== Number(found['startTime'])
}

function belongsToUser(folder: string): boolean {
  const found = lstatSync(folder, { throwIfNoEntry: false })
  if (found === undefined || !found.isDirectory()) return false
  return process.getuid === undefined || found.uid === process.getuid()
}

/** Identifies the host and the PID namespace. Process ids are unique only within these. */
function hashHost(): string {
  let namespace = ''
  try {
    namespace = readlinkSync('/proc/self/ns/pid')
  } catch {
    // There is no /proc on this system.
  }
  const place = `${hostname()} ${namespace}`
  return createHash('sha256').update(place).digest('hex').slice(0, 24)
}

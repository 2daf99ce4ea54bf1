/** An advisory lock file, so that only one process writes the checkpoint of a session. */

import { constants, closeSync, linkSync, readSync } from 'node:fs'
import { readFileSync, renameSync, unlinkSync, writeFileSync } from 'node:fs'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { CheckpointError, errnoOf } from '../foundation/errors.ts'
import { newUuid } from '../foundation/ids.ts'
import { expectObject } from '../foundation/options.ts'
import { openRegularFileSync } from '../foundation/regular-file.ts'
import { checkpointFailure } from './files.ts'

/** The process that holds a lock. Pids are reused, so the start time is compared as well. */
interface Holder {
  readonly pid: number
  /** Clock ticks since boot; `null` if the system does not provide the start time. */
  readonly start_time: string | null
  readonly host: string
  readonly token: string
  readonly job: HolderJob | null
}

/** A Slurm job. When a job ends, Slurm kills its processes on all hosts. */
export interface HolderJob {
  readonly id: string
  readonly cluster: string | null
}

export interface CheckpointLock {
  readonly path: string
  /** Releases the lock, unless another process has taken it over. Idempotent. Never throws. */
  release(): void
}

/** The path of the lock that all records of a session in a folder share. */
export const lockPathOf = (folder: string, sessionId: string): string =>
  join(folder, `${sessionId}.telemetry.lock`)

/** Whether a live process writes a checkpoint of this session in the folder. Never throws. */
export const isBeingWritten = (folder: string, sessionId: string): boolean =>
  isHeld(lockPathOf(folder, sessionId))

/** Whether the lock file names a live process as its holder. Never throws. */
export function isHeld(path: string): boolean {
  try {
    const found = readLock(path)
    return found !== 'missing' && isAlive(found)
  } catch {
    return false
  }
}

/** Creates the content of a lock file whose holder is the process `pid`. */
export const createHolder = (pid: number): Holder => ({
  pid,
  start_time: readProcessInfo(pid)?.startTime ?? null,
  host: hostname(),
  token: newUuid().slice(0, 12),
  job: currentSlurmJob(),
})

/**
 * Returns the Slurm job of this process; `null` outside a job, and in a shell of `salloc`, which
 * has no SLURMD_NODENAME and may outlive its job.
 */
function currentSlurmJob(): HolderJob | null {
  const { SLURM_JOB_ID: id = '', SLURMD_NODENAME: node = '', SLURM_CLUSTER_NAME } = process.env
  return id === '' || node === '' ? null : { id, cluster: SLURM_CLUSTER_NAME ?? null }
}

interface LockOptions {
  /** Determines the hint of the error. Default `write`. */
  readonly purpose?: LockPurpose
  /**
   * A Slurm job that has ended. A lock that one of its processes took on another host is taken
   * over.
   */
  readonly endedJob?: HolderJob | null
  readonly shownPath?: string
}

type LockPurpose = 'write' | 'resume'

const lockHints: Readonly<Record<LockPurpose, string>> = {
  write: 'Use another session id, or stop that process first.',
  resume:
    'That process already continues this run. ' +
    'Wait until it has ended, or stop it, and then resume the last file.',
}

/**
 * Throws `CheckpointLockedError` while a live process holds the lock. A process on another host
 * counts as alive, unless it belongs to `endedJob`.
 */
export function expectUnlocked(path: string, endedJob: HolderJob | null = null): void {
  acquireLock(path, { purpose: 'resume', endedJob }).release()
}

/** Like `expectUnlocked`, but writes nothing. Another process may take the lock right after it. */
export function expectNotHeld(path: string, endedJob: HolderJob | null): void {
  const found = readLock(path)
  if (found === 'missing' || !isAlive(found) || isHeldByJob(found, endedJob)) return
  throw lockedError(path, found, 'resume')
}

/**
 * Returns the Slurm job of a holder on another host, otherwise `null`. Only the scheduler knows
 * whether such a job has ended.
 */
export function readRemoteJob(path: string): HolderJob | null {
  const found = readLock(path)
  if (found === 'missing' || found === 'unreadable' || found.host === hostname()) return null
  return found.job
}

/** Limits the attempts, which fail if the lock disappears before its holder is read. */
const maxAttempts = 100
const maxLockBytes = 4096

/**
 * Takes the lock without waiting. Throws the system's error, or `CheckpointLockedError` with the
 * `pid` of a live holder. If several processes compete for the lock of a dead process, exactly one
 * of them gets it.
 */
export function acquireLock(path: string, options: LockOptions = {}): CheckpointLock {
  const me = createHolder(process.pid)
  const draft = `${path}.${me.token}.tmp`
  try {
    // Linking a complete file is atomic, so no process can read a lock that does not name its
    // holder.
    writeFileSync(draft, `${JSON.stringify(me)}\n`, { flag: 'wx', mode: 0o644 })
    for (let attempt = 0; attempt < maxAttempts; attempt++) {
      if (createLock(draft, path) || takeOver(draft, path, options)) {
        return { path, release: () => releaseLock(path, me.token) }
      }
    }
    throw lockedError(options.shownPath ?? path, undefined, options.purpose)
  } catch (error) {
    throw checkpointFailure('lock', path, error)
  } finally {
    removeIfPresent(draft)
  }
}

function createLock(draft: string, path: string): boolean {
  try {
    linkSync(draft, path)
    return true
  } catch (error) {
    if (errnoOf(error) === 'EEXIST') return false
    throw error
  }
}

/** Takes over the lock of a dead process. Returns `false` if the lock has disappeared. */
function takeOver(draft: string, path: string, options: LockOptions): boolean {
  const { purpose = 'write', endedJob = null, shownPath = path } = options
  const found = readLock(path)
  if (found === 'missing') return false
  if (isAlive(found) && !isHeldByJob(found, endedJob)) throw lockedError(shownPath, found, purpose)
  // Only the holder of this second lock may replace the first one, so the first one cannot change
  // between `readLock` and `renameSync`.
  const claim = acquireLock(`${path}.${tokenIn(found)}`, { purpose, shownPath })
  try {
    const currentLock = readLock(path)
    if (currentLock === 'missing' || tokenIn(currentLock) !== tokenIn(found)) return false
    renameSync(draft, path)
    return true
  } finally {
    claim.release()
  }
}

function releaseLock(path: string, token: string): void {
  try {
    const found = readLock(path)
    if (found !== 'missing' && tokenIn(found) === token) removeIfPresent(path)
  } catch {
    // A lock that cannot be read is kept, because it may belong to another process.
  }
}

function removeIfPresent(path: string): void {
  try {
    unlinkSync(path)
  } catch {
    // If the file remains, the next process detects that it is stale.
  }
}

type LockContent = Holder | 'unreadable'

const tokenIn = (found: LockContent): string => (found === 'unreadable' ? found : found.token)

function readLock(path: string): LockContent | 'missing' {
  let fd: number
  try {
    fd = openRegularFileSync(path, constants.O_NOFOLLOW)
  } catch (error) {
    const errno = errnoOf(error)
    if (errno === 'ENOENT') return 'missing'
    if (errno !== 'EISDIR' && errno !== 'ENOTSUP') throw error
    const hint = 'Remove or rename it: the lock file needs this name.'
    throw new CheckpointError(`Cannot lock ${path}: not a regular file`, { path, hint })
  }
  try {
    const bytes = Buffer.alloc(maxLockBytes)
    return parseHolder(bytes.toString('utf8', 0, readSync(fd, bytes)))
  } finally {
    closeSync(fd)
  }
}

function parseHolder(text: string): LockContent {
  try {
    const { pid, start_time, host, token, job } = expectObject('lock', JSON.parse(text))
    if (typeof pid !== 'number' || !Number.isInteger(pid) || pid < 1) return 'unreadable'
    if (typeof host !== 'string' || typeof token !== 'string') return 'unreadable'
    if (!/^[0-9a-f]{12}$/.test(token)) return 'unreadable'
    const startTime = typeof start_time === 'string' ? start_time : null
    return { pid, start_time: startTime, host, token, job: parseJob(job) }
  } catch {
    return 'unreadable'
  }
}

/** Returns the job of a lock; `null` if it has none, like the locks of earlier versions. */
function parseJob(given: unknown): HolderJob | null {
  if (typeof given !== 'object' || given === null) return null
  const { id, cluster } = given as Partial<Record<string, unknown>>
  if (typeof id !== 'string' || !/^\d+$/.test(id)) return null
  return { id, cluster: typeof cluster === 'string' ? cluster : null }
}

const isHeldByJob = ({ host, job }: Holder, wanted: HolderJob | null): boolean =>
  host !== hostname() && job !== null && job.id === wanted?.id && job.cluster === wanted.cluster

/** Whether the holder is alive. A process on another host counts as alive: it cannot be checked. */
function isAlive(found: LockContent): found is Holder {
  if (found === 'unreadable') return false
  if (found.host !== hostname()) return true
  const running = readProcessInfo(found.pid)
  if (running === undefined) return processExists(found.pid)
  if (running.isZombie) return false
  return found.start_time === null || running.startTime === found.start_time
}

interface ProcessInfo {
  readonly isZombie: boolean
  readonly startTime: string
}

function readProcessInfo(pid: number): ProcessInfo | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1')
    // The second field is the program's name in parentheses, which may contain ")".
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
    const [state = ''] = fields
    return { isZombie: state === 'Z' || state === 'X', startTime: fields[19] ?? '' }
  } catch {
    return undefined
  }
}

/** Whether this host has a process with this pid, possibly of another user. */
export function processExists(pid: number): boolean {
  try {
    return process.kill(pid, 0)
  } catch (error) {
    return errnoOf(error) === 'EPERM'
  }
}

function lockedError(
  path: string,
  holder: Holder | undefined,
  purpose: LockPurpose = 'write',
): CheckpointError {
  const elsewhere = holder !== undefined && holder.host !== hostname()
  const who = holder === undefined ? 'another process' : `process ${holder.pid}`
  const hostText = elsewhere ? ` on ${holder.host}` : ''
  return new CheckpointError(`The record is locked by ${who}${hostText}: ${path}`, {
    code: 'CheckpointLockedError',
    path,
    hint: `${lockHints[purpose]}${elsewhere ? remoteHint(holder) : ''}`,
    ...(holder === undefined ? {} : { pid: holder.pid }),
  })
}

function remoteHint({ job }: Holder): string {
  if (job === null) return ' If that process is gone, remove the lock file.'
  return ` It belongs to Slurm job ${job.id}. After that job has ended, tutti resume works.`
}

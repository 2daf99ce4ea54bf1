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

/** The process that holds a lock. Its start time is compared because pids are reused. */
interface Holder {
  readonly pid: number
  /** Clock ticks since boot; `null` if the system does not provide the start time. */
  readonly start_time: string | null
  readonly host: string
  /** Unique per lock. */
  readonly token: string
  /** The scheduler's job that the process runs in; `null` if there is none. */
  readonly job: HolderJob | null
}

/** A Slurm job. When it ends, Slurm kills its processes on all hosts. */
export interface HolderJob {
  readonly id: string
  /** `null` if Slurm did not provide the name. */
  readonly cluster: string | null
}

export interface CheckpointLock {
  readonly path: string
  /** Idempotent; never throws; does not remove a lock that another process has taken over. */
  release(): void
}

/** One lock for all checkpoints of a session in a folder. */
export const lockPathOf = (folder: string, sessionId: string): string =>
  join(folder, `${sessionId}.telemetry.lock`)

/** Whether a live process writes a checkpoint of this session in the folder. Never throws. */
export const isBeingWritten = (folder: string, sessionId: string): boolean =>
  isHeld(lockPathOf(folder, sessionId))

/** Whether the file names a live process as its holder. Never throws. */
export function isHeld(path: string): boolean {
  try {
    const found = readLock(path)
    return found !== 'missing' && isAlive(found)
  } catch {
    return false
  }
}

/** The content of a lock file that this process writes on behalf of process `pid`. */
export const holderOf = (pid: number): Holder => ({
  pid,
  start_time: processOf(pid)?.startTime ?? null,
  host: hostname(),
  token: newUuid().slice(0, 12),
  job: ownJob(),
})

/** Requires SLURMD_NODENAME: a shell of `salloc` has the other variables but outlives the job. */
function ownJob(): HolderJob | null {
  const { SLURM_JOB_ID: id = '', SLURMD_NODENAME: node = '', SLURM_CLUSTER_NAME } = process.env
  return id === '' || node === '' ? null : { id, cluster: SLURM_CLUSTER_NAME ?? null }
}

/** Selects the hint: a new record can use another session id, a resumed one cannot. */
type LockUse = 'write' | 'resume'

const hints: Readonly<Record<LockUse, string>> = {
  write: 'Use another session id, or end that process first.',
  resume:
    'It goes on with this run already: wait for its end, or end it, then resume the last file.',
}

/**
 * Throws `CheckpointLockedError` while a live process holds the lock. A process on another host
 * counts as alive, unless it belongs to the job `ended`.
 */
export function expectUnlocked(path: string, ended: HolderJob | null = null): void {
  acquireLock(path, 'resume', path, ended).release()
}

/** Like `expectUnlocked`, but writes nothing. The lock may be taken immediately afterwards. */
export function expectNotHeld(path: string, ended: HolderJob | null): void {
  const found = readLock(path)
  if (found === 'missing' || !isAlive(found) || isOf(found, ended)) return
  throw lockedError(path, found, 'resume')
}

/** The job of a holder on another host; only the scheduler knows whether it has ended. */
export function remoteJobOf(path: string): HolderJob | null {
  const found = readLock(path)
  if (found === 'missing' || found === 'unreadable' || found.host === hostname()) return null
  return found.job
}

/** The maximum number of times that a lock may disappear before its holder is read. */
const maxAttempts = 100
const maxLockBytes = 4096

/**
 * Takes the lock or throws immediately: `CheckpointLockedError` with the `pid` of a live holder, or
 * the system's error. If several processes compete for a dead process's lock, exactly one gets it.
 */
export function acquireLock(
  path: string,
  use: LockUse = 'write',
  /** The lock path that the error message shows. */
  named = path,
  ended: HolderJob | null = null,
): CheckpointLock {
  const me = holderOf(process.pid)
  const draft = `${path}.${me.token}.tmp`
  try {
    // Linking a complete file is atomic, so no process ever reads a lock without a holder.
    writeFileSync(draft, `${JSON.stringify(me)}\n`, { flag: 'wx', mode: 0o644 })
    for (let attempt = 0; attempt < maxAttempts; attempt++) {
      if (createLock(draft, path) || takeOver(draft, path, { use, named, ended })) {
        return { path, release: () => release(path, me.token) }
      }
    }
    throw lockedError(named, undefined, use)
  } catch (error) {
    throw checkpointFailure('lock', path, error)
  } finally {
    removeQuietly(draft)
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

interface TakeOverOptions {
  readonly use: LockUse
  readonly named: string
  readonly ended: HolderJob | null
}

/** Returns false if the lock has disappeared meanwhile. */
function takeOver(draft: string, path: string, { use, named, ended }: TakeOverOptions): boolean {
  const found = readLock(path)
  if (found === 'missing') return false
  if (isAlive(found) && !isOf(found, ended)) throw lockedError(named, found, use)
  // Only the process that holds the claim on this lock may replace it, so the lock cannot change
  // between the second read and the rename.
  const claim = acquireLock(`${path}.${tokenOf(found)}`, use, named)
  try {
    const again = readLock(path)
    if (again === 'missing' || tokenOf(again) !== tokenOf(found)) return false
    renameSync(draft, path)
    return true
  } finally {
    claim.release()
  }
}

function release(path: string, token: string): void {
  try {
    const found = readLock(path)
    if (found !== 'missing' && tokenOf(found) === token) removeQuietly(path)
  } catch {
    // A lock that cannot be read was not written by this process.
  }
}

function removeQuietly(path: string): void {
  try {
    unlinkSync(path)
  } catch {
    // Already removed, or left for the next process, which finds that it is stale.
  }
}

type Found = Holder | 'unreadable'

const tokenOf = (found: Found): string => (found === 'unreadable' ? found : found.token)

function readLock(path: string): Found | 'missing' {
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

/** Parses a lock file; incomplete content is `unreadable`. */
function parseHolder(text: string): Found {
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

/** Locks of earlier versions have no job. */
function parseJob(given: unknown): HolderJob | null {
  if (typeof given !== 'object' || given === null) return null
  const { id, cluster } = given as Partial<Record<string, unknown>>
  if (typeof id !== 'string' || !/^\d+$/.test(id)) return null
  return { id, cluster: typeof cluster === 'string' ? cluster : null }
}

const isOf = ({ host, job }: Holder, ended: HolderJob | null): boolean =>
  host !== hostname() && job !== null && job.id === ended?.id && job.cluster === ended.cluster

/** A process on another host (shared file system) cannot be checked and counts as alive. */
function isAlive(found: Found): found is Holder {
  if (found === 'unreadable') return false
  if (found.host !== hostname()) return true
  const running = processOf(found.pid)
  if (running === undefined) return signalReaches(found.pid)
  if (running.isZombie) return false
  return found.start_time === null || running.startTime === found.start_time
}

interface ProcessFacts {
  readonly isZombie: boolean
  readonly startTime: string
}

function processOf(pid: number): ProcessFacts | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1')
    // The second field is the program's name in parentheses, which may itself contain ")".
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
    const [state = ''] = fields
    return { isZombie: state === 'Z' || state === 'X', startTime: fields[19] ?? '' }
  } catch {
    return undefined
  }
}

/** Whether this host has a process with this pid, including processes of other users. */
export function signalReaches(pid: number): boolean {
  try {
    return process.kill(pid, 0)
  } catch (error) {
    return errnoOf(error) === 'EPERM'
  }
}

function lockedError(path: string, holder: Holder | undefined, use: LockUse): CheckpointError {
  const elsewhere = holder !== undefined && holder.host !== hostname()
  const who = holder === undefined ? 'another process' : `process ${holder.pid}`
  const where = elsewhere ? ` on ${holder.host}` : ''
  return new CheckpointError(`The record is locked by ${who}${where}: ${path}`, {
    code: 'CheckpointLockedError',
    path,
    hint: `${hints[use]}${elsewhere ? elsewhereHint(holder) : ''}`,
    ...(holder === undefined ? {} : { pid: holder.pid }),
  })
}

function elsewhereHint({ job }: Holder): string {
  if (job === null) return ' If that process is gone, remove the lock file.'
  return ` It belongs to Slurm job ${job.id}: once that has ended, tutti resume goes on.`
}

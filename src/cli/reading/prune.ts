/** `tutti journal prune`: removes runs with all their files. */

import { lstatSync, rmdirSync, unlinkSync } from 'node:fs'
import { join } from 'node:path'
import { checkpointFailure } from '../../checkpoint/files.ts'
import { followFolderOf } from '../../checkpoint/record-names.ts'
import { acquireLock, type CheckpointLock, expectNotHeld } from '../../checkpoint/lock.ts'
import { type HolderJob, lockPathOf } from '../../checkpoint/lock.ts'
import { systemClock } from '../../foundation/clock.ts'
import { CheckpointError, errnoOf, messageOf, ValueError } from '../../foundation/errors.ts'
import { statOf } from '../../foundation/regular-file.ts'
import type { LaunchFolder } from '../../hpc/launch/launch-folder.ts'
import { listLaunchContents, isLaunchOver, findLaunches } from '../../hpc/launch/launch-folder.ts'
import { defaultFolders } from '../../record/find-record.ts'
import { findRuns, type StoredRun } from '../../record/stored-runs.ts'
import { countText, numberText, timeText } from '../../views/readable.ts'
import { exitCodes, isFullDisk } from '../exit.ts'
import type { Output } from '../output.ts'
import { findEndedJob } from './record-writer.ts'

export interface PruneOptions {
  readonly keep?: number
  /** Keeps runs that were last written less than this many seconds ago. */
  readonly older?: number
  readonly folder?: string
  readonly dryRun?: boolean
}

interface Candidate extends StoredRun {
  readonly launches: readonly LaunchFolder[]
}

/**
 * Removes all runs except those that `keep` or `older` protects, and those in use. Resolves with
 * exit code 1 if a run could not be removed.
 */
export async function pruneJournal(options: PruneOptions, output: Output): Promise<number> {
  const { dryRun = false } = options
  const runs = await findCandidates(resolveFolders(options))
  const removed: RemovedRun[] = []
  const inUse: string[] = []
  const failed: { readonly session_id: string; folder: string; message: string }[] = []
  for (const run of chooseRuns(runs, options)) {
    const { sessionId, folder } = run
    try {
      const bytes = await (dryRun ? measureRun(run) : removeRun(run))
      if (bytes === null) inUse.push(sessionId)
      else removed.push({ run, bytes })
    } catch (error) {
      failed.push({ session_id: sessionId, folder, message: messageOf(error) })
    }
  }
  const bytes = removed.reduce((sum, one) => sum + one.bytes, 0)
  const kept = runs.length - removed.length - failed.length
  const value = { removed: removed.map(toJson), bytes, kept, in_use: inUse, failed }
  const verb = dryRun ? 'would remove' : 'removed'
  output.result({ dry_run: dryRun, ...value }, [
    ...removed.map((one) => `${verb} ${describe(one)}`),
    `${verb} ${countText(removed.length, 'run')}, ${numberText(bytes)} bytes; ${kept} kept`,
    ...(inUse.length === 0 ? [] : [`in use, so kept: ${inUse.join(', ')}`]),
  ])
  if (failed.length === 0) return exitCodes.ok
  const cannot = dryRun ? 'could not be removed' : 'was not removed, or only in part'
  for (const { session_id: id, message } of failed) output.problem(`${id} ${cannot}: ${message}`)
  return exitCodes.outputFailed
}

interface RemovedRun {
  readonly run: Candidate
  readonly bytes: number
}

const toJson = ({ run, bytes }: RemovedRun): object => ({
  session_id: run.sessionId,
  folder: run.folder,
  records: run.records,
  last_time: run.lastSeconds,
  bytes,
})

const describe = ({ run, bytes }: RemovedRun): string =>
  `${run.sessionId}  ${countText(run.records.length, 'record')}, ${numberText(bytes)} bytes, ` +
  `last written ${timeText(run.lastSeconds)}`

function resolveFolders({ folder, keep, older }: PruneOptions): readonly string[] {
  if (keep === undefined && older === undefined) {
    throw new ValueError('journal prune: expected --keep or --older, got neither', {
      hint: '--keep 10 keeps the ten newest runs; --older 30d removes runs older than 30 days.',
    })
  }
  if (folder === undefined) return uniqueDefaultFolders()
  if (statOf(folder)?.isDirectory() === true) return [folder]
  throw new ValueError(`--folder: there is no folder ${folder}`, {
    code: 'FileNotFoundError',
    field: '--folder',
    got: folder,
  })
}

/**
 * Returns the default folders that exist. Leaves out symbolic links, and duplicates of a folder
 * that is mounted twice.
 */
function uniqueDefaultFolders(): readonly string[] {
  const byInode = new Map<string, string>()
  for (const folder of defaultFolders.toReversed()) {
    const stats = lstatSync(folder, { throwIfNoEntry: false })
    if (stats?.isDirectory() === true) byInode.set(`${stats.dev} ${stats.ino}`, folder)
  }
  return [...byInode.values()]
}

async function findCandidates(folders: readonly string[]): Promise<Candidate[]> {
  const found: Candidate[] = []
  for (const folder of folders) {
    const launches = findLaunches(folder)
    for (const run of await findRuns(folder)) {
      const runLaunches = run.records.flatMap((name) => launches.get(name) ?? [])
      found.push({ ...run, launches: [...new Set(runLaunches)] })
    }
  }
  return found.toSorted((a, b) => b.lastSeconds - a.lastSeconds)
}

/** Returns the runs to remove. `runs` must be sorted by time, newest first. */
function chooseRuns(runs: readonly Candidate[], { keep = 0, older }: PruneOptions): Candidate[] {
  const before = older === undefined ? Infinity : systemClock.now() - older
  return runs.slice(keep).filter(({ lastSeconds }) => lastSeconds < before)
}

async function measureRun(run: Candidate): Promise<number | null> {
  if (!(await areLaunchesOver(run)) || (await tryLock(run, expectNotHeld)) === null) return null
  return totalSize(listPaths(run))
}

async function areLaunchesOver({ launches }: Candidate): Promise<boolean> {
  for (const launch of launches) if (!(await isLaunchOver(launch))) return false
  return true
}

/** Removes a run while holding its lock. Returns the freed bytes; `null` if the run is in use. */
async function removeRun(run: Candidate): Promise<number | null> {
  if (!(await areLaunchesOver(run))) return null
  const lock = await tryLock(run, lockUnlessDiskFull)
  if (lock === null) return null
  try {
    // Another process may have resumed the run in the meantime.
    const now = await findRuns(run.folder, { only: run.sessionId })
    const sameRun = now.find(({ records }) => isSameList(records, run.records))
    if (sameRun === undefined) return null
    const paths = listPaths({ ...sameRun, launches: run.launches })
    const bytes = totalSize(paths)
    for (const path of paths) removeFile(path)
    for (const name of run.records) removeFolder(followFolderOf(join(run.folder, name)))
    for (const launch of run.launches) {
      for (const folder of listLaunchContents(launch.path).folders) removeFolder(folder)
    }
    return bytes
  } finally {
    lock.release()
  }
}

const isSameList = (a: readonly string[], b: readonly string[]): boolean =>
  a.length === b.length && a.every((name) => b.includes(name))

const listPaths = ({ launches, files }: Candidate): string[] => [
  ...launches.flatMap(({ path }) => listLaunchContents(path).files),
  ...files.map(({ path }) => path),
]

const totalSize = (paths: readonly string[]): number =>
  paths.reduce((sum, path) => sum + (lstatSync(path, { throwIfNoEntry: false })?.size ?? 0), 0)

type LockAttempt<T> = (path: string, ended: HolderJob | null) => T

async function tryLock<T>(
  { folder, sessionId }: Candidate,
  lock: LockAttempt<T>,
): Promise<T | null> {
  const path = lockPathOf(folder, sessionId)
  try {
    return lock(path, await findEndedJob(path))
  } catch (error) {
    const isHeld = CheckpointError.isInstance(error) && error.code === 'CheckpointLockedError'
    if (isHeld) return null
    throw checkpointFailure('lock', path, error)
  }
}

/** On a full disk, works without a lock file, because removing runs frees space. */
const lockUnlessDiskFull: LockAttempt<Pick<CheckpointLock, 'release'>> = (path, ended) => {
  try {
    return acquireLock(path, { endedJob: ended })
  } catch (error) {
    if (!CheckpointError.isInstance(error) || !isFullDisk(error.cause)) throw error
    expectNotHeld(path, ended)
    return { release() {} }
  }
}

function removeFile(path: string): void {
  try {
    unlinkSync(path)
  } catch (error) {
    if (errnoOf(error) !== 'ENOENT') throw checkpointFailure('remove', path, error)
  }
}

/** Removes a folder, unless it contains other files. */
function removeFolder(path: string): void {
  try {
    rmdirSync(path)
  } catch (error) {
    const errno = errnoOf(error)
    if (errno !== 'ENOTEMPTY' && errno !== 'EEXIST' && errno !== 'ENOENT') {
      throw checkpointFailure('remove', path, error)
    }
  }
}

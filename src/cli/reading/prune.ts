/** `tutti journal prune`: removes whole runs, including all companion files. */

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
import { contentsOf, isLaunchOver, launchesIn } from '../../hpc/launch/stored-launches.ts'
import { usualFolders } from '../../record/find-record.ts'
import { findRuns, type StoredRun } from '../../record/stored-runs.ts'
import { countText, numberText, timeText } from '../../views/readable.ts'
import { exitCodes, isFullDisk } from '../exit.ts'
import type { Output } from '../output.ts'
import { endedJobOf } from './record-writer.ts'

export interface PruneOptions {
  /** The number of newest runs to keep. */
  readonly keep?: number
  /** Keeps runs that were last written less than this many seconds ago. */
  readonly older?: number
  readonly folder?: string
  readonly dryRun?: boolean
}

/** A run and the folders of its launches. */
interface Candidate extends StoredRun {
  readonly launches: readonly LaunchFolder[]
}

/**
 * Removes the runs that neither option keeps, except runs in use. If a run cannot be removed,
 * continues with the others and resolves with exit code 1.
 */
export async function pruneJournal(options: PruneOptions, output: Output): Promise<number> {
  const { dryRun = false } = options
  const runs = await candidatesIn(foldersOf(options))
  const removed: Removed[] = []
  const inUse: string[] = []
  const failed: { readonly session_id: string; folder: string; message: string }[] = []
  for (const run of chooseRuns(runs, options)) {
    const { sessionId, folder } = run
    try {
      const bytes = await (dryRun ? measure(run) : remove(run))
      if (bytes === null) inUse.push(sessionId)
      else removed.push({ run, bytes })
    } catch (error) {
      failed.push({ session_id: sessionId, folder, message: messageOf(error) })
    }
  }
  const bytes = removed.reduce((sum, one) => sum + one.bytes, 0)
  const kept = runs.length - removed.length - failed.length
  const value = {
    dry_run: dryRun,
    removed: removed.map(toWire),
    bytes,
    kept,
    in_use: inUse,
    failed,
  }
  const verb = dryRun ? 'would remove' : 'removed'
  output.result(value, [
    ...removed.map((one) => `${verb} ${describe(one)}`),
    `${verb} ${countText(removed.length, 'run')}, ${numberText(bytes)} bytes; ${kept} kept`,
    ...(inUse.length === 0 ? [] : [`in use, so kept: ${inUse.join(', ')}`]),
  ])
  if (failed.length === 0) return exitCodes.ok
  const cannot = dryRun ? 'could not be removed' : 'was not removed, or only in part'
  for (const { session_id: id, message } of failed) output.problem(`${id} ${cannot}: ${message}`)
  return exitCodes.outputFailed
}

interface Removed {
  readonly run: Candidate
  readonly bytes: number
}

const toWire = ({ run, bytes }: Removed): object => ({
  session_id: run.sessionId,
  folder: run.folder,
  records: run.records,
  last_time: run.lastSeconds,
  bytes,
})

const describe = ({ run, bytes }: Removed): string =>
  `${run.sessionId}  ${countText(run.records.length, 'record')}, ${numberText(bytes)} bytes, ` +
  `last written ${timeText(run.lastSeconds)}`

function foldersOf({ folder, keep, older }: PruneOptions): readonly string[] {
  if (keep === undefined && older === undefined) {
    throw new ValueError('journal prune: expected --keep or --older, got neither', {
      hint: '--keep 10 keeps the ten newest runs; --older 30d removes runs older than 30 days.',
    })
  }
  if (folder === undefined) return ownFolders()
  if (statOf(folder)?.isDirectory() === true) return [folder]
  throw new ValueError(`--folder: there is no folder ${folder}`, {
    code: 'FileNotFoundError',
    field: '--folder',
    got: folder,
  })
}

/** The usual folders, without links and without a folder that is mounted twice. */
function ownFolders(): readonly string[] {
  const byInode = new Map<string, string>()
  for (const folder of usualFolders.toReversed()) {
    const stats = lstatSync(folder, { throwIfNoEntry: false })
    if (stats?.isDirectory() === true) byInode.set(`${stats.dev} ${stats.ino}`, folder)
  }
  return [...byInode.values()]
}

async function candidatesIn(folders: readonly string[]): Promise<Candidate[]> {
  const found: Candidate[] = []
  for (const folder of folders) {
    const launches = launchesIn(folder)
    for (const run of await findRuns(folder)) {
      const own = run.records.flatMap((name) => launches.get(name) ?? [])
      found.push({ ...run, launches: [...new Set(own)] })
    }
  }
  return found.toSorted((a, b) => b.lastSeconds - a.lastSeconds)
}

/** `runs` must be sorted by time, newest first. */
function chooseRuns(runs: readonly Candidate[], { keep = 0, older }: PruneOptions): Candidate[] {
  const before = older === undefined ? Infinity : systemClock.now() - older
  return runs.slice(keep).filter(({ lastSeconds }) => lastSeconds < before)
}

/** The number of bytes that a removal would free; `null` if the run is in use. Writes nothing. */
async function measure(run: Candidate): Promise<number | null> {
  if (!(await areLaunchesOver(run)) || (await lockOf(run, expectNotHeld)) === null) return null
  return sizeOf(pathsOf(run))
}

async function areLaunchesOver({ launches }: Candidate): Promise<boolean> {
  for (const launch of launches) if (!(await isLaunchOver(launch))) return false
  return true
}

/** Returns the freed bytes; `null` if the run is in use. Takes the lock to prevent resuming. */
async function remove(run: Candidate): Promise<number | null> {
  if (!(await areLaunchesOver(run))) return null
  const lock = await lockOf(run, lockIfRoom)
  if (lock === null) return null
  try {
    // Another process may have resumed the run before it was locked.
    const now = await findRuns(run.folder, run.sessionId)
    const same = now.find(({ records }) => isSameList(records, run.records))
    if (same === undefined) return null
    const paths = pathsOf({ ...same, launches: run.launches })
    const bytes = sizeOf(paths)
    for (const path of paths) removeFile(path)
    for (const name of run.records) removeFolder(followFolderOf(join(run.folder, name)))
    for (const launch of run.launches) {
      for (const folder of contentsOf(launch.path).folders) removeFolder(folder)
    }
    return bytes
  } finally {
    lock.release()
  }
}

const isSameList = (a: readonly string[], b: readonly string[]): boolean =>
  a.length === b.length && a.every((name) => b.includes(name))

const pathsOf = ({ launches, files }: Candidate): string[] => [
  ...launches.flatMap(({ path }) => contentsOf(path).files),
  ...files.map(({ path }) => path),
]

const sizeOf = (paths: readonly string[]): number =>
  paths.reduce((sum, path) => sum + (lstatSync(path, { throwIfNoEntry: false })?.size ?? 0), 0)

type Lock<T> = (path: string, ended: HolderJob | null) => T

/** Returns the result of `lock`; `null` if another process holds the lock. */
async function lockOf<T>({ folder, sessionId }: Candidate, lock: Lock<T>): Promise<T | null> {
  const path = lockPathOf(folder, sessionId)
  try {
    return lock(path, await endedJobOf(path))
  } catch (error) {
    const isHeld = CheckpointError.isInstance(error) && error.code === 'CheckpointLockedError'
    if (isHeld) return null
    throw checkpointFailure('lock', path, error)
  }
}

/** Works without a lock file on a full disk, because removing runs frees space. */
const lockIfRoom: Lock<Pick<CheckpointLock, 'release'>> = (path, ended) => {
  try {
    return acquireLock(path, 'write', path, ended)
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

/** Keeps a folder that contains other files. */
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

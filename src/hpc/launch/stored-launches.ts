/** The folders that finished launches have left beside the records of their runs. */

import { type Dirent, readdirSync } from 'node:fs'
import { basename, join } from 'node:path'
import { readRecordOf } from '../../checkpoint/run-file.ts'
import { systemClock } from '../../foundation/clock.ts'
import { SlurmCommands } from '../slurm/slurm-commands.ts'
import { hasJobEnded } from '../slurm/slurm-job.ts'
import { allocationPrefix, LaunchFolder, launchFiles, launchSuffix } from './launch-folder.ts'

/** The folders of launches here, by the name of the record that each wrote. Links are ignored. */
export function launchesIn(folder: string): Map<string, LaunchFolder[]> {
  const launches = entriesOf(folder)
    .filter((entry) => entry.isDirectory() && entry.name.endsWith(launchSuffix))
    .map(({ name }) => new LaunchFolder(join(folder, name)))
  return Map.groupBy(launches, (launch) => basename(readRecordOf(launch.file('request')) ?? ''))
}

/** Whether no job of the launch can start the script again. `false` if that is not known. */
export async function isLaunchOver(launch: LaunchFolder): Promise<boolean> {
  for (const link of launch.chain) {
    const jobId = link.facts()?.jobId ?? null
    if (jobId === null || link.exitCode() !== null) continue
    if (!(await hasJobEnded({ id: jobId, cluster: null }, new SlurmCommands(), systemClock))) {
      return false
    }
  }
  return true
}

/** The files of a launch. The file of a request is renamed when a session takes it. */
const known: ReadonlySet<string> = new Set([
  ...Object.values(launchFiles).flatMap((name) => [name, `${name}.new`]),
  ...['taken', 'record'].map((ending) => `${launchFiles.request}.${ending}`),
])

/** The files that launches write, and the folders that are empty without them, innermost first. */
export interface LaunchContents {
  readonly files: readonly string[]
  readonly folders: readonly string[]
}

export function contentsOf(path: string): LaunchContents {
  const entries = entriesOf(path)
  const own = entries.filter((entry) => entry.isFile() && known.has(entry.name))
  const isAllocation = (entry: Dirent): boolean =>
    entry.isDirectory() && entry.name.startsWith(allocationPrefix)
  const inner = entries.filter(isAllocation).map(({ name }) => contentsOf(join(path, name)))
  return {
    files: [...inner.flatMap(({ files }) => files), ...own.map(({ name }) => join(path, name))],
    folders: [...inner.flatMap(({ folders }) => folders), path],
  }
}

function entriesOf(folder: string): readonly Dirent[] {
  try {
    return readdirSync(folder, { withFileTypes: true })
  } catch {
    return []
  }
}

/** Finds the folders that launches have left next to the records of their runs. */

import { type Dirent, readdirSync } from 'node:fs'
import { basename, join } from 'node:path'
import { readRequestRecord } from '../../checkpoint/run-file.ts'
import { systemClock } from '../../foundation/clock.ts'
import { SlurmCommands } from '../slurm/slurm-commands.ts'
import { hasJobEnded } from '../slurm/slurm-job.ts'
import { allocationPrefix, LaunchFolder, launchFiles, launchSuffix } from './launch-folder.ts'

/** Groups the launch folders by the name of the record that each wrote. Ignores symbolic links. */
export function findLaunches(folder: string): Map<string, LaunchFolder[]> {
  const launches = readEntries(folder)
    .filter((entry) => entry.isDirectory() && entry.name.endsWith(launchSuffix))
    .map(({ name }) => new LaunchFolder(join(folder, name)))
  return Map.groupBy(launches, (launch) =>
    basename(readRequestRecord(launch.file('request')) ?? ''),
  )
}

/** Whether no job of the launch can start the script again; `false` if that is unknown. */
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

/** All names of files of a launch. A session renames the request file when it takes the request. */
const launchFileNames: ReadonlySet<string> = new Set([
  ...Object.values(launchFiles).flatMap((name) => [name, `${name}.new`]),
  ...['taken', 'record'].map((ending) => `${launchFiles.request}.${ending}`),
])

/** The files that a launch wrote, and the folders that contain nothing else, innermost first. */
export interface LaunchContents {
  readonly files: readonly string[]
  readonly folders: readonly string[]
}

export function listLaunchContents(path: string): LaunchContents {
  const entries = readEntries(path)
  const ownFiles = entries.filter((entry) => entry.isFile() && launchFileNames.has(entry.name))
  const isAllocation = (entry: Dirent): boolean =>
    entry.isDirectory() && entry.name.startsWith(allocationPrefix)
  const inner = entries.filter(isAllocation).map(({ name }) => listLaunchContents(join(path, name)))
  return {
    files: [
      ...inner.flatMap(({ files }) => files),
      ...ownFiles.map(({ name }) => join(path, name)),
    ],
    folders: [...inner.flatMap(({ folders }) => folders), path],
  }
}

function readEntries(folder: string): readonly Dirent[] {
  try {
    return readdirSync(folder, { withFileTypes: true })
  } catch {
    return []
  }
}

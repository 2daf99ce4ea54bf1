/** Finds the control group (version 1 or 2) that limits this process, and its usage files. */

import { existsSync, readFileSync } from 'node:fs'
import { posix } from 'node:path'

export interface KernelRoots {
  readonly procRoot: string
  readonly cgroupRoot: string
}

/** A CPU limit in processors, and the file that contains the usage. */
export interface CpuLimit {
  readonly cores: number
  readonly usageFile: string
  readonly parseMicroseconds: (text: string) => number | null
}

/** Returns the tightest limit below `processors`; `undefined` if there is none. */
export function findCpuLimit(roots: KernelRoots, processors: number): CpuLimit | undefined {
  const group = findGroup(roots, 'cpu')
  if (group?.version === 2) {
    const found = findTightest(group, processors, (level) =>
      parseCpuMax(readText(`${level}/cpu.max`)),
    )
    if (found === undefined) return undefined
    return {
      cores: found.limit,
      usageFile: `${group.mount}${found.path}/cpu.stat`,
      parseMicroseconds: (text) => parseStat(text, 'usage_usec'),
    }
  }
  const usage = findGroup(roots, 'cpuacct')
  if (group === undefined || usage === undefined) return undefined
  const found = findTightest(group, processors, (level) =>
    parseCpuQuota(readText(`${level}/cpu.cfs_quota_us`), readText(`${level}/cpu.cfs_period_us`)),
  )
  if (found === undefined) return undefined
  return {
    cores: found.limit,
    usageFile: `${usage.mount}${found.path}/cpuacct.usage`,
    parseMicroseconds: (text) => {
      const nanoseconds = parseCount(text)
      return nanoseconds === null ? null : nanoseconds / 1000
    },
  }
}

/** A memory limit, and the files that contain the usage. */
export interface MemoryLimit {
  readonly bytes: number
  readonly usageFile: string
  readonly statFile: string
  /**
   * The name of the line in `statFile` with the inactive file cache. The kernel reclaims it first.
   */
  readonly inactiveField: string
}

/** Returns the tightest limit below `totalBytes`; `undefined` if there is none. */
export function findMemoryLimit(roots: KernelRoots, totalBytes: number): MemoryLimit | undefined {
  const group = findGroup(roots, 'memory')
  if (group === undefined) return undefined
  const [limitName, usageName, inactiveField] =
    group.version === 2
      ? (['memory.max', 'memory.current', 'inactive_file'] as const)
      : (['memory.limit_in_bytes', 'memory.usage_in_bytes', 'total_inactive_file'] as const)
  const found = findTightest(group, totalBytes, (level) =>
    parseCount(readText(`${level}/${limitName}`)),
  )
  if (found === undefined) return undefined
  const level = `${group.mount}${found.path}`
  return {
    bytes: found.limit,
    usageFile: `${level}/${usageName}`,
    statFile: `${level}/memory.stat`,
    inactiveField,
  }
}

interface ControlGroup {
  readonly version: 1 | 2
  readonly mount: string
  readonly path: string
}

function findGroup(roots: KernelRoots, controller: string): ControlGroup | undefined {
  const membership = parseMembership(readText(`${roots.procRoot}/self/cgroup`) ?? '', controller)
  if (membership === undefined) return undefined
  const mount = membership.folders
    .map((folder) => posix.join(roots.cgroupRoot, folder))
    .find((candidate) => existsSync(`${candidate}/cgroup.procs`))
  return mount === undefined
    ? undefined
    : { version: membership.version, mount, path: membership.path }
}

interface LevelLimit {
  /** The path below the mount; `""` is the mount itself. */
  readonly path: string
  readonly limit: number
}

/**
 * Finds the smallest limit of the group and its ancestors. If limits are equal, the outermost wins,
 * because its usage includes the others. The mount itself is included: in a container without a
 * cgroup namespace, no other folder exists.
 */
function findTightest(
  group: ControlGroup,
  ceiling: number,
  readLimit: (level: string) => number | null,
): LevelLimit | undefined {
  let lowest: LevelLimit | undefined
  for (let path = group.path; ; path = posix.dirname(path)) {
    const subPath = path === '/' ? '' : path
    const limit = readLimit(`${group.mount}${subPath}`)
    if (limit !== null && limit < ceiling && limit <= (lowest?.limit ?? Infinity)) {
      lowest = { path: subPath, limit }
    }
    if (subPath === '') return lowest
  }
}

/** Returns `null` if the file cannot be read, for instance because its process has ended. */
export function readText(path: string): string | null {
  try {
    return readFileSync(path, 'latin1')
  } catch {
    return null
  }
}

/** The group of a controller. `folders` are possible names of its mount below the cgroup root. */
export interface GroupMembership {
  readonly version: 1 | 2
  readonly folders: readonly string[]
  readonly path: string
}

/**
 * Finds the group of a controller. Prefers version 1, because a controller that is mounted there is
 * not available in version 2.
 */
export function parseMembership(cgroup: string, controller: string): GroupMembership | undefined {
  let unified: GroupMembership | undefined
  for (const line of cgroup.split('\n')) {
    const fields = /^\d+:([^:]*):(\/.*)$/.exec(line)
    if (fields === null) continue
    const controllers = fields[1] ?? ''
    // A group outside the cgroup namespace has a path that begins with `/..`. `normalize` removes
    // this part, which would lead out of the mount.
    const path = posix.normalize(fields[2] ?? '/').replace(/(?<=.)\/$/, '')
    if (controllers.split(',').includes(controller)) {
      return { version: 1, folders: [controller, controllers], path }
    }
    if (controllers === '') unified = { version: 2, folders: ['', 'unified'], path }
  }
  return unified
}

/** Parses `cpu.max` as a number of processors; `null` if there is no limit. */
export function parseCpuMax(text: string | null): number | null {
  const [quota = null, period = null] = (text ?? '').trim().split(' ')
  return parseCpuQuota(quota, period)
}

/** Converts a quota and its period to a number of processors; `null` if there is no limit. */
export function parseCpuQuota(quota: string | null, period: string | null): number | null {
  const cores = (parseCount(quota) ?? 0) / (parseCount(period) ?? 0)
  return cores > 0 && Number.isFinite(cores) ? cores : null
}

/** Returns the number in the line `name value` of a text, or `null` if there is none. */
export function parseStat(text: string, name: string): number | null {
  for (const line of text.split('\n')) {
    if (line.startsWith(`${name} `)) return parseCount(line.slice(name.length + 1))
  }
  return null
}

/** Parses a single number; `null` for `max`, -1 and other values that mean no limit. */
export function parseCount(text: string | null): number | null {
  const digits = /^\s*(\d+)\s*$/.exec(text ?? '')
  return digits === null ? null : Number(digits[1])
}

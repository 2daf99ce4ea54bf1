/** Reads the text of Linux's control-group files, version 1 and 2. Pure: it opens no file. */

import { posix } from 'node:path'

/** A controller's group; `folders` are the names that its mount may have below the cgroup root. */
export interface GroupPlace {
  readonly version: 1 | 2
  readonly folders: readonly string[]
  readonly path: string
}

/**
 * Where `/proc/self/cgroup` says that a controller's group is. Version 1 wins: a controller that is
 * mounted there is not in version 2.
 */
export function parseGroupPlace(cgroup: string, controller: string): GroupPlace | undefined {
  let unified: GroupPlace | undefined
  for (const line of cgroup.split('\n')) {
    const fields = /^\d+:([^:]*):(\/.*)$/.exec(line)
    if (fields === null) continue
    const controllers = fields[1] ?? ''
    // A process outside of its cgroup namespace sees `/..`, which must not leave the mount.
    const path = posix.normalize(fields[2] ?? '/').replace(/(?<=.)\/$/, '')
    if (controllers.split(',').includes(controller)) {
      return { version: 1, folders: [controller, controllers], path }
    }
    if (controllers === '') unified = { version: 2, folders: ['', 'unified'], path }
  }
  return unified
}

/** `cpu.max` as processors; `null` without a limit. */
export function parseCpuMax(text: string | null): number | null {
  const [quota = null, period = null] = (text ?? '').trim().split(' ')
  return parseCpuQuota(quota, period)
}

/** A quota and its period, both in microseconds, as processors; `null` without a limit. */
export function parseCpuQuota(quota: string | null, period: string | null): number | null {
  const cores = (parseCount(quota) ?? 0) / (parseCount(period) ?? 0)
  return cores > 0 && Number.isFinite(cores) ? cores : null
}

/** One value of a text of `name value` lines. */
export function parseStat(text: string, name: string): number | null {
  for (const line of text.split('\n')) {
    if (line.startsWith(`${name} `)) return parseCount(line.slice(name.length + 1))
  }
  return null
}

/** A text of one number; `null` for `max`, -1 and whatever else stands for no limit. */
export function parseCount(text: string | null): number | null {
  const digits = /^\s*(\d+)\s*$/.exec(text ?? '')
  return digits === null ? null : Number(digits[1])
}

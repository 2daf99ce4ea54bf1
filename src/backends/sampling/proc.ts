/** Parses Linux's `/proc` files. Pure: the caller reads the text. */

import type { Usage } from './reading.ts'

/** Parses the processor ticks of the whole node from the first line of `/proc/stat`. */
export function parseCpuUsage(stat: string): Usage | null {
  const line = /^cpu +(\d[\d ]*)/.exec(stat)
  if (line === null) return null
  const ticks = (line[1] ?? '').trim().split(/ +/).map(Number)
  // The guest times after the eighth column are omitted, because user and nice include them.
  const [user = 0, nice = 0, system = 0, idle = NaN, wait = 0, irq = 0, softirq = 0, steal = 0] =
    ticks
  const busy = user + nice + system + irq + softirq + steal
  const total = busy + idle + wait
  return Number.isFinite(total) ? { busy, total } : null
}

/** Counts the processors in a complete `/proc/stat`. */
export function countProcessors(stat: string): number {
  return stat.match(/^cpu\d+ /gm)?.length ?? 0
}

export interface MemoryInfo {
  readonly totalBytes: number
  readonly availableBytes: number
}

export function parseMemory(meminfo: string): MemoryInfo | null {
  const kilobytes = (name: string): number => {
    const found = new RegExp(`^${name}: *(\\d+) kB`, 'm').exec(meminfo)
    return found === null ? NaN : Number(found[1])
  }
  const total = kilobytes('MemTotal')
  const available = kilobytes('MemAvailable')
  if (!(total > 0) || !Number.isFinite(available)) return null
  return { totalBytes: total * 1024, availableBytes: available * 1024 }
}

export interface DiskBytes {
  readonly read: number
  readonly written: number
}

/** The size of a sector. The kernel counts in sectors of this size for every disk. */
const sectorBytes = 512

/** Disks that are not counted: memory and optical devices, and devices on top of other disks. */
const ignoredDisk = /^(?:loop|ram|zram|fd|sr|dm-|md|bcache|drbd|zd|nvme\d+c\d+n)/

/** Columns: major, minor, name, then reads, merged, sectors, time, and the same for writes. */
const diskLine = /^ *\d+ +\d+ +(\S+) \d+ \d+ (\d+) \d+ \d+ \d+ (\d+) /gm

/** Sums the bytes read from and written to all disks in `/proc/diskstats`. */
export function parseDiskBytes(diskstats: string): DiskBytes | null {
  const names = new Set<string>()
  const disks: { readonly name: string; readonly read: number; readonly written: number }[] = []
  for (const [, name = '', read, written] of diskstats.matchAll(diskLine)) {
    names.add(name)
    if (ignoredDisk.test(name)) continue
    disks.push({ name, read: Number(read), written: Number(written) })
  }
  if (names.size === 0) return null
  const whole = disks.filter(({ name }) => !isPartition(name, names))
  return {
    read: sum(whole, (disk) => disk.read) * sectorBytes,
    written: sum(whole, (disk) => disk.written) * sectorBytes,
  }
}

/**
 * Whether a device is a partition, that is, its disk is listed too. The name alone is not enough,
 * because some virtual machines have a whole disk named `xvda1`.
 */
function isPartition(name: string, disks: ReadonlySet<string>): boolean {
  const parts = /^(?:(.*\d)p|(.*[^\d]))\d+$/.exec(name)
  const disk = parts?.[1] ?? parts?.[2]
  return disk !== undefined && disks.has(disk)
}

export interface NetBytes {
  readonly sent: number
  readonly received: number
}

/** A line of `/proc/net/dev`: the name, eight columns of received data, and the bytes sent. */
const interfaceLine = /^ *(\S+?): *(\d+)(?: +\d+){7} +(\d+) /gm

/** Sums the bytes of all interfaces in `/proc/net/dev` except loopback. */
export function parseNetBytes(dev: string): NetBytes | null {
  const lines = [...dev.matchAll(interfaceLine)]
  if (lines.length === 0) return null
  const outward = lines.filter(([, name]) => name !== 'lo')
  return {
    received: sum(outward, ([, , received]) => Number(received)),
    sent: sum(outward, ([, , , sent]) => Number(sent)),
  }
}

const sum = <T>(items: readonly T[], valueOf: (item: T) => number): number =>
  items.reduce((total, item) => total + valueOf(item), 0)

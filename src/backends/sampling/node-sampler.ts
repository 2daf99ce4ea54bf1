/**
 * Samples this machine: CPU and memory relative to the control group's limits, I/O, and GPUs. The
 * functions that parse Linux's `/proc` files are pure.
 */

import { cpus, freemem, totalmem } from 'node:os'
import type { Clock } from '../../foundation/clock.ts'
import type { Log } from '../../foundation/log.ts'
import {
  findCpuLimit,
  findMemoryLimit,
  type KernelRoots,
  parseCount,
  parseStat,
  readText,
} from './cgroup.ts'
import { GpuSampler } from './gpu-sampler.ts'
import { processTreeTicks, ticksPerSecond } from './process-tree-cpu.ts'
import { DeltaCounter, percentOf, UtilizationMeter, type Usage } from './sampler.ts'
import type { NodeReadings, ResourceSampler } from './sampler.ts'

export interface NodeSamplerOptions extends Partial<KernelRoots> {
  readonly clock: Clock
}

/**
 * If `/proc` is unreadable, CPU and memory are read from `node:os`, and the rest is `null`. No
 * method waits or throws. Only `prime` looks up the limits.
 */
export class NodeSampler {
  readonly #clock: Clock
  readonly #roots: KernelRoots
  #readCpu: () => Usage | null = () => null
  #readMemory: () => number | null = () => null
  readonly #cpu = new UtilizationMeter()
  readonly #runCpu = new UtilizationMeter()
  #processors = 1
  readonly #diskRead = new DeltaCounter()
  readonly #diskWritten = new DeltaCounter()
  readonly #netSent = new DeltaCounter()
  readonly #netReceived = new DeltaCounter()

  constructor(options: NodeSamplerOptions) {
    this.#clock = options.clock
    const { procRoot = '/proc', cgroupRoot = '/sys/fs/cgroup' } = options
    this.#roots = { procRoot, cgroupRoot }
  }

  prime(): void {
    this.#readCpu = this.#chooseCpuReader()
    this.#readMemory = this.#chooseMemoryReader()
    this.#cpu.advance(this.#readCpu())
    this.runCpuPercent()
  }

  /**
   * Returns how much of the node's processors this process and its descendants used since the last
   * call.
   */
  runCpuPercent(): number | null {
    const busy = processTreeTicks(this.#roots.procRoot, process.pid)
    const seconds = this.#clock.monotonicMs() / 1000
    const total = seconds * ticksPerSecond * this.#processors
    return this.#runCpu.advance(busy === null ? null : { busy, total })
  }

  sample(): NodeReadings {
    const disks = this.#readProc('diskstats', parseDiskBytes)
    const network = this.#readProc('net/dev', parseNetBytes)
    return {
      cpu_percent: this.#cpu.advance(this.#readCpu()),
      memory_percent: this.#readMemory(),
      disk_read_bytes: this.#diskRead.advance(disks?.read ?? null),
      disk_write_bytes: this.#diskWritten.advance(disks?.written ?? null),
      net_sent_bytes: this.#netSent.advance(network?.sent ?? null),
      net_recv_bytes: this.#netReceived.advance(network?.received ?? null),
    }
  }

  #chooseCpuReader(): () => Usage | null {
    const processors = this.#readProc('stat', countProcessors) ?? cpus().length
    const limit = findCpuLimit(this.#roots, processors)
    this.#processors = limit?.cores ?? processors
    if (limit !== undefined) {
      const readLimited = (): Usage | null => {
        const busy = readAs(limit.usageFile, limit.parseMicroseconds)
        const elapsed = this.#clock.monotonicMs() * 1000
        return busy === null ? null : { busy, total: elapsed * limit.cores }
      }
      if (readLimited() !== null) return readLimited
    }
    const readAll = (): Usage | null => this.#readProc('stat', parseCpuUsage)
    return readAll() === null ? readSystemCpu : readAll
  }

  #chooseMemoryReader(): () => number | null {
    const readAll = (): MemoryInfo | null => this.#readProc('meminfo', parseMemory)
    const known = readAll()
    const limit = findMemoryLimit(this.#roots, known?.totalBytes ?? totalmem())
    if (limit !== undefined) {
      const readLimited = (): number | null => {
        const used = readAs(limit.usageFile, parseCount)
        if (used === null) return null
        const inactive = readAs(limit.statFile, (text) => parseStat(text, limit.inactiveField))
        return percentOf(used - (inactive ?? 0), limit.bytes)
      }
      if (readLimited() !== null) return readLimited
    }
    if (known === null) return readSystemMemory
    return () => {
      const memory = readAll()
      if (memory === null) return null
      return percentOf(memory.totalBytes - memory.availableBytes, memory.totalBytes)
    }
  }

  #readProc<T>(name: string, parse: (text: string) => T | null): T | null {
    return readAs(`${this.#roots.procRoot}/${name}`, parse)
  }
}

function readAs<T>(path: string, parse: (text: string) => T | null): T | null {
  const text = readText(path)
  return text === null ? null : parse(text)
}

function readSystemCpu(): Usage | null {
  let busy = 0
  let total = 0
  for (const { times } of cpus()) {
    const used = times.user + times.nice + times.sys + times.irq
    busy += used
    total += used + times.idle
  }
  return total > 0 ? { busy, total } : null
}

const readSystemMemory = (): number | null => percentOf(totalmem() - freemem(), totalmem())

export interface LocalSamplerOptions {
  readonly clock: Clock
  readonly log: Log
  readonly pollSeconds: number
}

/** Creates a sampler of this machine. Its `prime` method probes for GPUs and takes at most 2 s. */
export function createLocalSampler(options: LocalSamplerOptions): ResourceSampler {
  const node = new NodeSampler(options)
  const gpus = new GpuSampler(options)
  return {
    async prime() {
      await gpus.prime()
      node.prime()
    },
    async sample() {
      const runCpuPercent = node.runCpuPercent()
      return { node: node.sample(), gpus: await gpus.sample(), runCpuPercent }
    },
    close: () => gpus.close(),
  }
}

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

interface MemoryInfo {
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

interface DiskBytes {
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

interface NetBytes {
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

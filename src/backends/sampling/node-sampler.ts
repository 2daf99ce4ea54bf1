/** Samples this machine: CPU and memory relative to the control group's limits, I/O, and GPUs. */

import { cpus, freemem, totalmem } from 'node:os'
import type { Clock } from '../../foundation/clock.ts'
import type { Log } from '../../foundation/log.ts'
import {
  type CpuLimit,
  findCpuLimit,
  findMemoryLimit,
  type KernelRoots,
  type MemoryLimit,
  parseCount,
  parseStat,
} from './cgroup.ts'
import { GpuSampler } from './gpu-sampler.ts'
import { OpenFile } from './open-file.ts'
import { ownCpuTicks, ticksPerSecond } from './own-cpu.ts'
import {
  countProcessors,
  parseCpuUsage,
  parseDiskBytes,
  parseMemory,
  parseNetBytes,
} from './proc.ts'
import { DeltaCounter, percentOf, ShareMeter, type Usage } from './reading.ts'
import type { NodeReadings, ResourceSampler } from './sampler.ts'

export interface NodeSamplerOptions extends Partial<KernelRoots> {
  readonly clock: Clock
}

/** Enough for the first line of `/proc/stat`, the only one that is parsed. */
const cpuLineBytes = 512

/**
 * The readings of the node. If `/proc` is unreadable, CPU and memory are read from `node:os` and
 * the rest is `null`. No method waits or throws. Limits are looked up once, in `prime`.
 */
export class NodeSampler {
  readonly #clock: Clock
  readonly #roots: KernelRoots
  readonly #files: OpenFile[] = []
  #readCpu: () => Usage | null = () => null
  #readMemory: () => number | null = () => null
  #readDisks: () => ReturnType<typeof parseDiskBytes> = () => null
  #readNetwork: () => ReturnType<typeof parseNetBytes> = () => null
  readonly #cpu = new ShareMeter()
  readonly #ownCpu = new ShareMeter()
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

  /** Opens the files that exist and reads the CPU counters for the first time. */
  prime(): void {
    this.close()
    this.#readCpu = this.#chooseCpu()
    this.#readMemory = this.#chooseMemory()
    const disks = this.#openProc('diskstats')
    this.#readDisks = () => parsed(disks.read(), parseDiskBytes)
    const network = this.#openProc('net/dev')
    this.#readNetwork = () => parsed(network.read(), parseNetBytes)
    this.#cpu.advance(this.#readCpu())
    this.runCpuPercent()
  }

  /** The share of the node's processors that this process and its descendants have used. */
  runCpuPercent(): number | null {
    const busy = ownCpuTicks(this.#roots.procRoot, process.pid)
    const seconds = this.#clock.monotonicMs() / 1000
    const total = seconds * ticksPerSecond * this.#processors
    return this.#ownCpu.advance(busy === null ? null : { busy, total })
  }

  sample(): NodeReadings {
    const disks = this.#readDisks()
    const network = this.#readNetwork()
    return {
      cpu_percent: this.#cpu.advance(this.#readCpu()),
      memory_percent: this.#readMemory(),
      disk_read_bytes: this.#diskRead.advance(disks?.read ?? null),
      disk_write_bytes: this.#diskWritten.advance(disks?.written ?? null),
      net_sent_bytes: this.#netSent.advance(network?.sent ?? null),
      net_recv_bytes: this.#netReceived.advance(network?.received ?? null),
    }
  }

  /** Closes the files; readings from them are `null` afterwards. */
  close(): void {
    for (const file of this.#files.splice(0)) file.close()
  }

  #chooseCpu(): () => Usage | null {
    const stat = this.#openProc('stat')
    const whole = stat.read()
    const processors = whole === null ? cpus().length : countProcessors(whole)
    const limit = findCpuLimit(this.#roots, processors)
    this.#processors = limit?.cores ?? processors
    const limited = limit === undefined ? undefined : this.#limitedCpu(limit)
    if (limited !== undefined) return limited
    if (parsed(whole, parseCpuUsage) === null) return cpuUsageOfSystem
    return () => parsed(stat.readHead(cpuLineBytes), parseCpuUsage)
  }

  #limitedCpu(limit: CpuLimit): (() => Usage | null) | undefined {
    const file = this.#open(limit.usageFile)
    const read = (): Usage | null => {
      const busy = parsed(file.read(), limit.parseMicroseconds)
      const elapsed = this.#clock.monotonicMs() * 1000
      return busy === null ? null : { busy, total: elapsed * limit.cores }
    }
    return read() === null ? undefined : read
  }

  #chooseMemory(): () => number | null {
    const meminfo = this.#openProc('meminfo')
    const known = parsed(meminfo.read(), parseMemory)
    const limit = findMemoryLimit(this.#roots, known?.totalBytes ?? totalmem())
    const limited = limit === undefined ? undefined : this.#limitedMemory(limit)
    if (limited !== undefined) return limited
    if (known === null) return memoryPercentOfSystem
    return () => {
      const memory = parsed(meminfo.read(), parseMemory)
      if (memory === null) return null
      return percentOf(memory.totalBytes - memory.availableBytes, memory.totalBytes)
    }
  }

  #limitedMemory(limit: MemoryLimit): (() => number | null) | undefined {
    const usage = this.#open(limit.usageFile)
    const stat = this.#open(limit.statFile)
    const read = (): number | null => {
      const used = parsed(usage.read(), parseCount)
      if (used === null) return null
      const inactive = parsed(stat.read(), (text) => parseStat(text, limit.inactiveName))
      return percentOf(used - (inactive ?? 0), limit.bytes)
    }
    return read() === null ? undefined : read
  }

  #openProc(name: string): OpenFile {
    return this.#open(`${this.#roots.procRoot}/${name}`)
  }

  #open(path: string): OpenFile {
    const file = new OpenFile(path)
    this.#files.push(file)
    return file
  }
}

function parsed<T>(text: string | null, parse: (text: string) => T | null): T | null {
  return text === null ? null : parse(text)
}

function cpuUsageOfSystem(): Usage | null {
  let busy = 0
  let total = 0
  for (const { times } of cpus()) {
    const used = times.user + times.nice + times.sys + times.irq
    busy += used
    total += used + times.idle
  }
  return total > 0 ? { busy, total } : null
}

const memoryPercentOfSystem = (): number | null => percentOf(totalmem() - freemem(), totalmem())

export interface LocalSamplerOptions {
  readonly clock: Clock
  readonly log: Log
  /** The time between samples. */
  readonly pollSeconds: number
}

/** Creates a sampler of this machine. Its `prime` probes for GPUs, for at most 2 s. */
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
    async close() {
      node.close()
      await gpus.close()
    },
  }
}

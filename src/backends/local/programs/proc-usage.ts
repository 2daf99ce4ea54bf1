/** What the kernel tells of a process that runs; nothing where there is no `/proc`. */

import { readFileSync } from 'node:fs'
import type { ProgramUsage } from './protocol.ts'

/** The unit of times in `/proc`, the same on all Linux systems. */
const ticksPerSecond = 100

/** The usage so far, with that of children which were waited for; `{}` when it has ended. */
export function readUsage(pid: number): ProgramUsage {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
    const status = readFileSync(`/proc/${pid}/status`, 'utf8')
    return { ...parseCpu(stat), ...parsePeak(status) }
  } catch {
    return {}
  }
}

/** Fields 14 to 17, counted behind the name, which may hold spaces and parentheses. */
export function parseCpu(stat: string): ProgramUsage {
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  const ticks = fields.slice(11, 15).reduce((sum, field) => sum + Number(field), 0)
  return fields.length < 15 || Number.isNaN(ticks) ? {} : { cpuSeconds: ticks / ticksPerSecond }
}

export function parsePeak(status: string): ProgramUsage {
  const kilobytes = /^VmHWM:\s+(\d+) kB$/m.exec(status)?.[1]
  return kilobytes === undefined ? {} : { peakMemoryBytes: Number(kilobytes) * 1024 }
}

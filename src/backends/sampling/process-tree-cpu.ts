/** The CPU time of a process and its descendants: workers, programs and models. */

import { readdirSync } from 'node:fs'
import { readText } from './cgroup.ts'

/** The unit of times in `/proc`. It is the same on all Linux systems. */
export const ticksPerSecond = 100

/** The maximum number of processes that are read, because each takes about 20 µs. */
const maxProcesses = 4096

/** The CPU time in ticks, including exited children; `null` if `/proc` cannot be read. */
export function processTreeTicks(procRoot: string, pid: number): number | null {
  const ownTicks = readTicks(procRoot, pid)
  if (ownTicks === null) return null
  const found = new Set(readChildren(procRoot, pid, listThreads(procRoot, pid)))
  let ticks = ownTicks
  // The loop also visits the elements that are added while it runs.
  for (const child of found) {
    ticks += readTicks(procRoot, child) ?? 0
    if (found.size >= maxProcesses) continue
    // Only the first thread is read, because it starts most children.
    for (const one of readChildren(procRoot, child, [String(child)])) found.add(one)
  }
  return ticks
}

/** Sums fields 14 to 17. Splits after the process name (field 2), which may contain spaces. */
export function parseCpuTicks(stat: string): number | null {
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  const ticks = fields.slice(11, 15).reduce((sum, field) => sum + Number(field), 0)
  return fields.length < 15 || Number.isNaN(ticks) ? null : ticks
}

function readTicks(procRoot: string, pid: number): number | null {
  const stat = readText(`${procRoot}/${pid}/stat`)
  return stat === null ? null : parseCpuTicks(stat)
}

const readChildren = (procRoot: string, pid: number, threads: readonly string[]): number[] =>
  threads.flatMap((thread) => {
    const text = readText(`${procRoot}/${pid}/task/${thread}/children`) ?? ''
    return text.split(' ').filter(Boolean).map(Number)
  })

function listThreads(procRoot: string, pid: number): string[] {
  try {
    return readdirSync(`${procRoot}/${pid}/task`)
  } catch {
    return []
  }
}

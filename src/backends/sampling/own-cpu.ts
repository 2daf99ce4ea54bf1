/** The CPU time of this process with its descendants: its workers, programs and models. */

import { readdirSync } from 'node:fs'
import { readText } from './cgroup.ts'

/** The unit of times in `/proc`, which is the same on all Linux systems. */
export const ticksPerSecond = 100

/** A limit on how many processes are read, which takes about 20 µs each. */
const maxProcesses = 4096

/** The CPU time in ticks, including ended children; `null` if `/proc` cannot be read. */
export function ownCpuTicks(procRoot: string, pid: number): number | null {
  const own = ticksOf(procRoot, pid)
  if (own === null) return null
  const found = new Set(childrenOf(procRoot, pid, threadsOf(procRoot, pid)))
  let ticks = own
  // Iterating over a set also visits the elements that are added meanwhile.
  for (const child of found) {
    ticks += ticksOf(procRoot, child) ?? 0
    if (found.size >= maxProcesses) continue
    // Only the first thread is read: it starts most children, and there may be many threads.
    for (const one of childrenOf(procRoot, child, [String(child)])) found.add(one)
  }
  return ticks
}

/** Fields 14 to 17, counted from the end of the name, which may contain spaces and parentheses. */
export function parseTicks(stat: string): number | null {
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  const ticks = fields.slice(11, 15).reduce((sum, field) => sum + Number(field), 0)
  return fields.length < 15 || Number.isNaN(ticks) ? null : ticks
}

function ticksOf(procRoot: string, pid: number): number | null {
  const stat = readText(`${procRoot}/${pid}/stat`)
  return stat === null ? null : parseTicks(stat)
}

const childrenOf = (procRoot: string, pid: number, threads: readonly string[]): number[] =>
  threads.flatMap((thread) => {
    const text = readText(`${procRoot}/${pid}/task/${thread}/children`) ?? ''
    return text.split(' ').filter(Boolean).map(Number)
  })

function threadsOf(procRoot: string, pid: number): string[] {
  try {
    return readdirSync(`${procRoot}/${pid}/task`)
  } catch {
    return []
  }
}

/** CPU time of a process and its descendants, from Linux's /proc. */

import { readdirSync, readFileSync } from 'node:fs'

/** CPU time in microseconds of the processes that are currently alive. */
export function familyCpu(root = process.pid): number {
  const parents = new Map<string, string[]>()
  for (const pid of readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
    const parent = parentOf(pid)
    if (parent !== null) parents.set(parent, [...(parents.get(parent) ?? []), pid])
  }
  const family = [String(root)]
  for (const pid of family) family.push(...(parents.get(pid) ?? []))
  return family.reduce((sum, pid) => sum + cpuOf(pid), 0)
}

function parentOf(pid: string): string | null {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
    // The name, in parentheses, may contain any character.
    return stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1] ?? null
  } catch {
    return null
  }
}

/** The sum over all threads, from the scheduler's count of nanoseconds. */
function cpuOf(pid: string): number {
  try {
    return readdirSync(`/proc/${pid}/task`).reduce((sum, thread) => {
      const [nanoseconds] = readFileSync(`/proc/${pid}/task/${thread}/schedstat`, 'utf8').split(' ')
      return sum + Number(nanoseconds) / 1000
    }, 0)
  } catch {
    return 0
  }
}

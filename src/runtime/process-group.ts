/** Signals to whole process groups, which are named by the process id of their first member. */

import { readdirSync, readFileSync } from 'node:fs'

/** Whether the group had a member to take the signal; 0 only asks. */
export function signalGroup(pid: number, signal: NodeJS.Signals | 0): boolean {
  // Group 0 would be our own, and 1 everybody's.
  if (pid <= 1) return false
  try {
    process.kill(-pid, signal)
    return true
  } catch {
    return false
  }
}

/** Whether a member of the group runs; the dead that nobody reaps do not count. */
export function isGroupAlive(pid: number): boolean {
  if (!signalGroup(pid, 0)) return false
  const known = processes()
  return known === undefined || known.some(({ group, isDead }) => group === pid && !isDead)
}

/**
 * The groups of a session whose first member lives: what a dead launcher has started and nobody
 * knows of yet. What an ended program left behind is not among them. Empty without `/proc`.
 */
export function groupsOfSession(session: number): number[] {
  const known = processes() ?? []
  return known.filter((each) => each.session === session && each.group === each.pid).map(pidOf)
}

interface ProcessEntry {
  readonly pid: number
  readonly group: number
  readonly session: number
  readonly isDead: boolean
}

const pidOf = ({ pid }: ProcessEntry): number => pid

/** All that there are; `undefined` where there is no `/proc`. */
function processes(): ProcessEntry[] | undefined {
  try {
    const names = readdirSync('/proc').filter((name) => /^\d+$/.test(name))
    return names.map(readEntry).filter((entry) => entry !== undefined)
  } catch {
    return undefined
  }
}

function readEntry(pid: string): ProcessEntry | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
    const [state = '', , group, session] = fields
    const isDead = state === 'Z' || state === 'X'
    return { pid: Number(pid), group: Number(group), session: Number(session), isDead }
  } catch {
    return undefined
  }
}

/** Signals to whole process groups, which are named by the process id of their first member. */

import { readdirSync, readFileSync } from 'node:fs'
import { type Clock, sleep } from '../foundation/clock.ts'

const firstPollMs = 10
const maxPollMs = 200
/** How long killed processes may take to be gone: those that wait for a disk may never be. */
const killedMs = 5000

/** Whether the group has a member; signal 0 is not sent. */
export function signalGroup(pid: number, signal: NodeJS.Signals | 0): boolean {
  // Group 0 would be our own, and 1 every process.
  if (pid <= 1) return false
  try {
    process.kill(-pid, signal)
    return true
  } catch {
    return false
  }
}

/** Whether a member of the group runs; zombies do not count. */
export function isGroupAlive(pid: number): boolean {
  if (!signalGroup(pid, 0)) return false
  const known = processes()
  return known === undefined || known.some(({ group, isDead }) => group === pid && !isDead)
}

/**
 * SIGTERM to every member, after the grace SIGKILL; without a grace SIGKILL at once. Resolves when
 * none of them runs any more.
 */
export async function endGroup(clock: Clock, pid: number, graceMs: number): Promise<void> {
  if (graceMs > 0) {
    signalGroup(pid, 'SIGTERM')
    if (await isGoneWithin(clock, pid, graceMs)) return
  }
  signalGroup(pid, 'SIGKILL')
  await isGoneWithin(clock, pid, killedMs)
}

async function isGoneWithin(clock: Clock, pid: number, ms: number): Promise<boolean> {
  const start = clock.monotonicMs()
  for (let pollMs = firstPollMs; isGroupAlive(pid);) {
    if (clock.monotonicMs() - start >= ms) return false
    await sleep(clock, pollMs)
    pollMs = Math.min(pollMs * 2, maxPollMs)
  }
  return true
}

/**
 * The groups of a session whose first member runs: programs whose start a lost launcher could not
 * report. What an ended program left behind is not among them. Empty without `/proc`.
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

/** All processes; `undefined` without `/proc`. */
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

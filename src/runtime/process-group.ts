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
function isGroupAlive(pid: number): boolean {
  if (!signalGroup(pid, 0)) return false
  const known = processes()
  return known === undefined || known.some((entry) => entry.group === pid && isRunning(entry))
}

/** In the environment of programs that are followed, and of all that they start: their mark. */
export const programVariable = 'TUTTI_PROGRAM'

/** A program and what it has started. */
export interface StartedProgram {
  /** Of its first process, and of its group. */
  readonly pid: number
  /** Finds processes that have left the group (`setsid`) as well; `null` for the group alone. */
  readonly mark: string | null
}

export function signalProgram({ pid, mark }: StartedProgram, signal: NodeJS.Signals): void {
  signalGroup(pid, signal)
  if (mark === null) return
  for (const group of groupsOf(pid, toVariable(mark))) signalGroup(group, signal)
}

/** Whether any of its processes runs. */
export const isProgramAlive = ({ pid, mark }: StartedProgram): boolean =>
  isGroupAlive(pid) || (mark !== null && groupsOf(pid, toVariable(mark)).length > 0)

const toVariable = (mark: string): string => `${programVariable}=${mark}`

/**
 * SIGTERM to every process, after the grace SIGKILL; without a grace SIGKILL at once. Resolves when
 * none of them runs any more.
 */
export async function endProgram(
  clock: Clock,
  program: StartedProgram,
  graceMs: number,
): Promise<void> {
  if (graceMs > 0) {
    signalProgram(program, 'SIGTERM')
    if (await isGoneWithin(clock, program, graceMs, null)) return
  }
  await isGoneWithin(clock, program, killedMs, 'SIGKILL')
}

/** The signal is sent again and again: what was forked meanwhile did not get it. */
async function isGoneWithin(
  clock: Clock,
  program: StartedProgram,
  ms: number,
  signal: 'SIGKILL' | null,
): Promise<boolean> {
  const start = clock.monotonicMs()
  for (let pollMs = firstPollMs; isProgramAlive(program);) {
    if (signal !== null) signalProgram(program, signal)
    if (clock.monotonicMs() - start >= ms) return false
    await sleep(clock, pollMs)
    pollMs = Math.min(pollMs * 2, maxPollMs)
  }
  return true
}

/** A process that cannot be mistaken for a later one with the same id. */
export interface ProcessIdentity {
  readonly pid: number
  /** In ticks since the machine started. */
  readonly startTime: number
}

export interface GroupMember extends ProcessIdentity {
  readonly session: number
}

/** `undefined` when there is no such process, or no `/proc`. */
export function identityOf(pid: number): ProcessIdentity | undefined {
  return readEntry(String(pid))
}

/** The running members of all groups; `undefined` without `/proc`. */
export function readGroups(): Map<number, readonly GroupMember[]> | undefined {
  const known = processes()
  return known && Map.groupBy(known.filter(isRunning), ({ group }) => group)
}

/** Whether the process runs; a zombie, which its parent has not waited for yet, does not. */
export function isProcessAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
  } catch {
    return false
  }
  const entry = readEntry(String(pid))
  return entry === undefined || isRunning(entry)
}

/**
 * The groups of all processes that belong to a session, or to whose environment the variable
 * belongs (`NAME=value`). Without those of the session's first process. Empty without `/proc`.
 */
export function groupsOf(session: number, variable: string): number[] {
  const own = (processes() ?? []).filter(
    (entry) =>
      isRunning(entry) &&
      entry.group !== session &&
      (entry.session === session || hasVariable(entry.pid, variable)),
  )
  return [...new Set(own.map(({ group }) => group))]
}

interface ProcessEntry extends GroupMember {
  readonly group: number
  readonly isDead: boolean
}

const isRunning = ({ isDead }: ProcessEntry): boolean => !isDead

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
    return {
      pid: Number(pid),
      group: Number(group),
      session: Number(session),
      startTime: Number(fields[19]),
      // The first thread of a process may end before the others: it is a zombie until they do.
      isDead: (state === 'Z' || state === 'X') && Number(fields[17]) <= 1,
    }
  } catch {
    return undefined
  }
}

/** Whether it was started with this variable (`NAME=value`); `false` for one of another user. */
export function hasVariable(pid: number, variable: string): boolean {
  try {
    return readFileSync(`/proc/${pid}/environ`, 'utf8').split('\0').includes(variable)
  } catch {
    return false
  }
}

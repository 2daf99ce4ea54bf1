/** Signals whole process groups. A group's id is the process id of its first member. */

import { readdirSync, readFileSync } from 'node:fs'
import type { Clock } from '../foundation/clock.ts'
import { poll } from './retry.ts'

const firstPollMs = 10
const maxPollMs = 200
/** How long to wait for killed processes. A process that waits for a disk may never disappear. */
const killedMs = 5000

/** Sends a signal, or only checks if it is 0. Returns whether the group has a member. */
export function signalGroup(pid: number, signal: NodeJS.Signals | 0): boolean {
  // 0 would address this process's own group, and 1 every process.
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

/** The environment variable with a program's mark, which all its child processes inherit. */
export const programVariable = 'TUTTI_PROGRAM'

/** A program, and the processes that it started. */
export interface StartedProgram {
  /** The id of the program's first process and of its group. */
  readonly pid: number
  /**
   * Identifies processes of the program even after they have left the group (`setsid`); `null` if
   * only the group is known.
   */
  readonly mark: string | null
}

export function signalProgram({ pid, mark }: StartedProgram, signal: NodeJS.Signals): void {
  signalGroup(pid, signal)
  if (mark === null) return
  for (const group of groupsOf(pid, toVariable(mark))) signalGroup(group, signal)
}

/** Whether any process of the program is running. */
export const isProgramAlive = ({ pid, mark }: StartedProgram): boolean =>
  isGroupAlive(pid) || (mark !== null && groupsOf(pid, toVariable(mark)).length > 0)

const toVariable = (mark: string): string => `${programVariable}=${mark}`

/**
 * Sends SIGTERM to every process, then SIGKILL after the grace period; without one, SIGKILL
 * immediately. Resolves when no process is running, or some seconds after SIGKILL.
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

/** Repeats the signal, because processes that were forked meanwhile did not get it. */
async function isGoneWithin(
  clock: Clock,
  program: StartedProgram,
  ms: number,
  signal: 'SIGKILL' | null,
): Promise<boolean> {
  const isGone = (): boolean => {
    if (!isProgramAlive(program)) return true
    if (signal !== null) signalProgram(program, signal)
    return false
  }
  const policy = { delayMs: firstPollMs, maxDelayMs: maxPollMs, timeoutMs: ms }
  return (await poll(policy, isGone, { clock })) === true
}

/** Distinguishes a process from a later process with the same id. */
export interface ProcessIdentity {
  readonly pid: number
  /** Clock ticks since the machine booted. */
  readonly startTime: number
}

export interface GroupMember extends ProcessIdentity {
  readonly session: number
}

/** `undefined` if there is no such process, or no `/proc`. */
export function identityOf(pid: number): ProcessIdentity | undefined {
  return readEntry(String(pid))
}

/** The running members of all groups; `undefined` without `/proc`. */
export function readGroups(): Map<number, readonly GroupMember[]> | undefined {
  const known = processes()
  return known && Map.groupBy(known.filter(isRunning), ({ group }) => group)
}

/** Whether the process is running. A zombie, which its parent has not waited for yet, is not. */
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
 * The groups of all processes that belong to a session or have a variable (`NAME=value`) in their
 * environment, except the group of the session's leader. Empty without `/proc`.
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
      // A first thread that exits before the others is a zombie until they exit.
      isDead: (state === 'Z' || state === 'X') && Number(fields[17]) <= 1,
    }
  } catch {
    return undefined
  }
}

/**
 * Whether the process was started with this variable (`NAME=value`). `false` for another user's
 * process.
 */
export function hasVariable(pid: number, variable: string): boolean {
  try {
    return readFileSync(`/proc/${pid}/environ`, 'utf8').split('\0').includes(variable)
  } catch {
    return false
  }
}

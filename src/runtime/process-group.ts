/** Signals process groups. The id of a group is the process id of its first member. */

import { readdirSync, readFileSync } from 'node:fs'
import type { Clock } from '../foundation/clock.ts'
import { poll } from './retry.ts'

const firstPollMs = 10
const maxPollMs = 200
/** How long to wait for killed processes. A process that waits for a disk may not exit at all. */
const maxKillWaitMs = 5000

/**
 * Sends a signal to a group. Signal 0 only checks the group. Returns whether the group has a
 * member.
 */
export function signalGroup(pid: number, signal: NodeJS.Signals | 0): boolean {
  // 0 would address the group of this process, and 1 every process.
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
  const known = readProcesses()
  return known === undefined || known.some((entry) => entry.group === pid && isRunning(entry))
}

/** The environment variable with the unique mark of a program. Its child processes inherit it. */
export const programVariable = 'TUTTI_PROGRAM'

export interface StartedProgram {
  /** The id of the program's first process and of its group. */
  readonly pid: number
  /**
   * Identifies processes that have left the group (`setsid`); `null` if only the group is known.
   */
  readonly mark: string | null
}

export function signalProgram({ pid, mark }: StartedProgram, signal: NodeJS.Signals): void {
  signalGroup(pid, signal)
  if (mark === null) return
  for (const group of findGroups(pid, toVariable(mark))) signalGroup(group, signal)
}

/** Whether any process of the program is running. */
export const isProgramAlive = ({ pid, mark }: StartedProgram): boolean =>
  isGroupAlive(pid) || (mark !== null && findGroups(pid, toVariable(mark)).length > 0)

const toVariable = (mark: string): string => `${programVariable}=${mark}`

/**
 * Sends SIGTERM to every process of a program, and SIGKILL after the grace period. Resolves when no
 * process is running, or some seconds after SIGKILL.
 */
export async function endProgram(
  clock: Clock,
  program: StartedProgram,
  graceMs: number,
): Promise<void> {
  if (graceMs > 0) {
    signalProgram(program, 'SIGTERM')
    if (await waitUntilGone(clock, program, graceMs, null)) return
  }
  await waitUntilGone(clock, program, maxKillWaitMs, 'SIGKILL')
}

/**
 * Waits until the program has ended. Repeats the signal, for processes that were forked in the
 * meantime.
 */
async function waitUntilGone(
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
  /** When the process started, in clock ticks since the machine booted. */
  readonly startTime: number
}

export interface GroupMember extends ProcessIdentity {
  readonly session: number
}

/** Returns the identity of a process; `undefined` if it does not exist or `/proc` is missing. */
export function readIdentity(pid: number): ProcessIdentity | undefined {
  return readProcess(String(pid))
}

/** Returns the running members of all groups; `undefined` if `/proc` is missing. */
export function readGroups(): Map<number, readonly GroupMember[]> | undefined {
  const known = readProcesses()
  return known && Map.groupBy(known.filter(isRunning), ({ group }) => group)
}

/** Whether the process is running. A zombie is not. */
export function isProcessAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
  } catch {
    return false
  }
  const entry = readProcess(String(pid))
  return entry === undefined || isRunning(entry)
}

/**
 * Finds the groups of all processes that belong to a session or have a variable (`NAME=value`) in
 * their environment. Omits the group of the session's leader. Empty if `/proc` is missing.
 */
export function findGroups(session: number, variable: string): number[] {
  const own = (readProcesses() ?? []).filter(
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

/** Reads all processes; `undefined` if `/proc` is missing. */
function readProcesses(): ProcessEntry[] | undefined {
  try {
    const names = readdirSync('/proc').filter((name) => /^\d+$/.test(name))
    return names.map(readProcess).filter((entry) => entry !== undefined)
  } catch {
    return undefined
  }
}

function readProcess(pid: string): ProcessEntry | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
    const [state = '', , group, session] = fields
    return {
      pid: Number(pid),
      group: Number(group),
      session: Number(session),
      startTime: Number(fields[19]),
      // A process whose main thread has exited is reported as a zombie, even if other threads run.
      isDead: (state === 'Z' || state === 'X') && Number(fields[17]) <= 1,
    }
  } catch {
    return undefined
  }
}

/**
 * Whether the process was started with this variable (`NAME=value`). `false` for processes of other
 * users.
 */
export function hasVariable(pid: number, variable: string): boolean {
  try {
    return readFileSync(`/proc/${pid}/environ`, 'utf8').split('\0').includes(variable)
  } catch {
    return false
  }
}

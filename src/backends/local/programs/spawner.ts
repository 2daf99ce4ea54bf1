/** The port between the runner, which decides what to start and when to end it, and the system. */

import type { OutputCapture } from './output-capture.ts'
import type { ProgramUsage } from './protocol.ts'

/** A program, ready to start: everything in it is resolved. */
export interface SpawnPlan {
  /** A path; relative to `cwd`. */
  readonly file: string
  readonly argv: readonly string[]
  readonly cwd: string
  /** The whole environment; `null` for the inherited one. */
  readonly env: Readonly<Record<string, string>> | null
  readonly stdin: Uint8Array | null
  /** An open file, which stays the caller's, or what takes the bytes. */
  readonly stdout: number | OutputCapture
  readonly stderr: number | OutputCapture
}

export interface ExitStatus extends ProgramUsage {
  readonly exitCode: number | null
  readonly signal: string | null
  readonly at: number
  /** Whether its process group has other members. */
  readonly hasBackground: boolean
}

/** Called once: `failed`, or `ended` when the captures have all that the program itself wrote. */
export interface ProgramWatcher {
  failed(errno: string): void
  ended(status: ExitStatus): void
}

/** Starts programs, each the leader of a process group of its own with default signal handling. */
export interface Spawner {
  /** The process id, or 0 when `failed` was or will be called. */
  spawn(plan: SpawnPlan, watcher: ProgramWatcher): number
  /**
   * The program has run for some milliseconds: output is read as it comes from now on.
   */
  settle(pid: number): void
}

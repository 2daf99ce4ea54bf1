/** The port between the runner, which decides what to start and stop, and the operating system. */

import type { OutputCapture } from './output-capture.ts'
import type { ProgramUsage } from './protocol.ts'

/** A program to start, with all paths and variables resolved. */
export interface SpawnPlan {
  /** A path; relative ones start at `cwd`. */
  readonly file: string
  readonly argv: readonly string[]
  readonly cwd: string
  /** The whole environment; `null` for the launcher's default one. */
  readonly env: Readonly<Record<string, string>> | null
  readonly stdin: Uint8Array | null
  /** An open descriptor, which the caller closes, or the capture that takes the bytes. */
  readonly stdout: number | OutputCapture
  readonly stderr: number | OutputCapture
}

export interface ExitStatus extends ProgramUsage {
  readonly exitCode: number | null
  readonly signal: string | null
  readonly at: number
  /** Whether the program's process group has other members. */
  readonly hasBackground: boolean
}

/**
 * Exactly one method is called, once. `ended` follows when the captures have all of the program's
 * own output.
 */
export interface ProgramWatcher {
  failed(errno: string): void
  ended(status: ExitStatus): void
}

/** Starts programs, each as the leader of its own process group with default signal handling. */
export interface Spawner {
  /** Returns the process id, or 0 if `failed` was or will be called. */
  spawn(plan: SpawnPlan, watcher: ProgramWatcher): number
  /** The program has run for some milliseconds: its output is read as it arrives from now on. */
  settle(pid: number): void
}

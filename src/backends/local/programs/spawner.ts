/** The interface through which the runner starts programs. */

import type { OutputCapture } from './output-capture.ts'
import type { ProgramUsage } from './protocol.ts'

export interface SpawnPlan {
  /** The path of the program. A relative path starts at `cwd`. */
  readonly file: string
  readonly argv: readonly string[]
  readonly cwd: string
  /** The whole environment; `null` for the launcher's default. */
  readonly env: Readonly<Record<string, string>> | null
  readonly stdin: Uint8Array | null
  /** Either an open descriptor, which the caller closes, or the capture that receives the bytes. */
  readonly stdout: number | OutputCapture
  readonly stderr: number | OutputCapture
}

export interface ExitStatus extends ProgramUsage {
  readonly exitCode: number | null
  readonly signal: string | null
  readonly at: number
  readonly hasBackground: boolean
}

/** Exactly one of the methods is called, once. `ended` is called when the captures are complete. */
export interface ProgramWatcher {
  failed(errno: string): void
  ended(status: ExitStatus): void
}

/** Starts each program as the leader of a new process group with default signal handlers. */
export interface Spawner {
  /** Starts a program. Returns the process id, or 0 if `failed` was or will be called. */
  spawn(plan: SpawnPlan, watcher: ProgramWatcher): number
  /** Reads the output as it arrives from now on. Called when a program has run for some ms. */
  streamOutput(pid: number): void
}

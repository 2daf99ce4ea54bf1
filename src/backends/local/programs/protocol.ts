/** The messages between the pool and its launchers. Times are those of `machineMs`. */

import type { ErrorRecord } from '../../../foundation/error-record.ts'

/** A program to start. `id` is the pool's, never used twice. */
export interface ProgramRequest {
  readonly id: number
  readonly executable: string
  readonly arguments: readonly string[]
  readonly cwd: string
  /** Changes to the inherited environment; `undefined` removes. */
  readonly env: Readonly<Record<string, string | undefined>> | null
  readonly stdin: string | Uint8Array | null
  readonly shell: boolean
  /** Absolute paths of files that take the output; `null` keeps it as text. */
  readonly stdoutFile: string | null
  readonly stderrFile: string | null
  readonly timeoutMs: number | null
}

/** The first message to a launcher. */
export interface LauncherSetup {
  readonly graceMs: number
  readonly capture: CaptureBounds
  /** `plain` does without koffi; `auto` takes it where it works. */
  readonly spawner: 'auto' | 'plain'
  /** Variables that programs inherit and the launcher itself must not have. */
  readonly environment: Readonly<Record<string, string | undefined>>
}

/** How many bytes of each output are kept. */
export interface CaptureBounds {
  readonly headBytes: number
  readonly tailBytes: number
}

export type ToLauncher =
  | { readonly kind: 'setup'; readonly setup: LauncherSetup }
  | { readonly kind: 'start'; readonly request: ProgramRequest }
  | { readonly kind: 'stop'; readonly id: number }

export interface ProgramUsage {
  readonly cpuSeconds?: number
  readonly peakMemoryBytes?: number
}

export interface ProgramEnd extends ProgramUsage {
  readonly kind: 'ended'
  readonly id: number
  readonly at: number
  readonly exitCode: number | null
  readonly signal: string | null
  readonly stoppedBy: StopCause | null
  readonly stdout: string
  readonly stderr: string
}

export type StopCause = 'cancel' | 'timeout'

/** Each program is reported at most once as `started`, and exactly once as something else. */
export type ProgramUpdate =
  | { readonly kind: 'started'; readonly id: number; readonly at: number; readonly pid: number }
  | ProgramEnd
  | { readonly kind: 'failed'; readonly id: number; readonly error: ErrorRecord }
  /** The system has no resources for another process or file now. */
  | { readonly kind: 'refused'; readonly id: number; readonly errno: string }

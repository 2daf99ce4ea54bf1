/** The messages between the pool and its launchers. Times are those of `machineMs`. */

import type { ErrorRecord } from '../../../foundation/error-record.ts'

/** A program to start. The pool assigns the `id`, which is never reused. */
export interface ProgramRequest {
  readonly id: number
  readonly executable: string
  readonly arguments: readonly string[]
  readonly cwd: string
  /** Changes to the inherited environment; `null` removes a variable. */
  readonly env: Readonly<Record<string, string | null>> | null
  /** The cores that the task asked for explicitly, for environment variables; else `null`. */
  readonly cores: number | null
  readonly stdin: string | Uint8Array | null
  readonly shell: boolean
  /** Absolute paths of files for the output; `null` captures it as text. */
  readonly stdoutFile: string | null
  readonly stderrFile: string | null
  readonly timeoutMs: number | null
  /** Whether the program's exit ends its process group; else `endBackground` ends the rest. */
  readonly killBackground: boolean
  /** Whether `killBackground` and a stop also end processes that have left the group. */
  readonly isFollowed: boolean
  /** The session's id, for `endBackground`. */
  readonly owner: string
}

/** Identifies the launcher in the environment of all programs that it started. */
export const launcherVariable = 'TUTTI_LAUNCHER'

/** The first message to a launcher. */
export interface LauncherSetup {
  readonly graceMs: number
  readonly capture: CaptureBounds
  /** `plain` does not use koffi; `auto` uses it where it works. */
  readonly spawner: 'auto' | 'plain'
  /** Variables that only the programs get, not the launcher; includes `launcherVariable`. */
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
  /** Asks for a program's output so far; answered with `output`. */
  | { readonly kind: 'output'; readonly id: number }
  /** Ends background processes of this owner's programs; answered with `backgroundEnded`. */
  | { readonly kind: 'endBackground'; readonly owner: string }
  /** Answered with `pong`. */
  | { readonly kind: 'ping' }

export interface ProgramUsage {
  readonly cpuSeconds?: number
  readonly peakMemoryBytes?: number
}

/** The output of a program. `…Truncated`: a part in the middle was left out. */
export interface CapturedOutput {
  readonly stdout: string
  readonly stderr: string
  readonly stdoutTruncated?: true
  readonly stderrTruncated?: true
}

export interface ProgramEnd extends ProgramUsage, CapturedOutput {
  readonly kind: 'ended'
  readonly id: number
  readonly at: number
  readonly exitCode: number | null
  readonly signal: string | null
  readonly stoppedBy: StopCause | null
  /** Whether the program's group has other members, which `endBackground` ends. */
  readonly hasBackground: boolean
}

export type StopCause = 'cancel' | 'timeout'

/** Each program is reported at most once as `started`, and exactly once as something else. */
export type ProgramUpdate =
  | { readonly kind: 'started'; readonly id: number; readonly at: number; readonly pid: number }
  | ProgramEnd
  | { readonly kind: 'failed'; readonly id: number; readonly error: ErrorRecord }
  /** The system currently lacks resources for another process or file. */
  | { readonly kind: 'refused'; readonly id: number; readonly errno: string }

export type FromLauncher =
  | ProgramUpdate
  /** `output` is `null` if the program is not running. */
  | { readonly kind: 'output'; readonly id: number; readonly output: CapturedOutput | null }
  | { readonly kind: 'backgroundEnded'; readonly owner: string }
  /** Also the launcher's first message, sent when it can start programs. */
  | { readonly kind: 'pong' }

/** Whether the system lacks resources that it may have later. */
export const isTransient = (errno: string): boolean =>
  errno === 'EMFILE' || errno === 'ENFILE' || errno === 'EAGAIN' || errno === 'ENOMEM'

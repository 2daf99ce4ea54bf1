/** The messages between the pool and its launchers. All times are read with `machineMs`. */

import type { ErrorRecord } from '../../../foundation/error-record.ts'

/** A program to start. The pool assigns `id`, which is never reused. */
export interface ProgramRequest {
  readonly id: number
  readonly executable: string
  readonly arguments: readonly string[]
  readonly cwd: string
  /** Changes to the inherited environment; `null` removes a variable. */
  readonly env: Readonly<Record<string, string | null>> | null
  /** The number of cores that the task requests explicitly, or `null`. */
  readonly cores: number | null
  readonly stdin: string | Uint8Array | null
  readonly shell: boolean
  /** The absolute paths of the output files; `null` if the output is captured as text. */
  readonly stdoutFile: string | null
  readonly stderrFile: string | null
  readonly timeoutMs: number | null
  /** Whether the program's end also ends its process group. Otherwise, `endBackground` does. */
  readonly killBackground: boolean
  /** Whether `killBackground` and `stop` also end processes that have left the group. */
  readonly isFollowed: boolean
  /** The id of the session that the program belongs to. */
  readonly owner: string
}

/** The variable that identifies the launcher in the environment of its programs. */
export const launcherVariable = 'TUTTI_LAUNCHER'

/** The first message to a launcher. */
export interface LauncherSetup {
  readonly graceMs: number
  readonly capture: CaptureBounds
  /** `auto` uses koffi if it works. */
  readonly spawner: 'auto' | 'plain'
  /** Variables for the programs, but not for the launcher itself, such as `launcherVariable`. */
  readonly environment: Readonly<Record<string, string | undefined>>
}

export interface CaptureBounds {
  readonly headBytes: number
  readonly tailBytes: number
}

export type LauncherCommand =
  | { readonly kind: 'setup'; readonly setup: LauncherSetup }
  | { readonly kind: 'start'; readonly request: ProgramRequest }
  | { readonly kind: 'stop'; readonly id: number }
  /** Requests a program's output so far. Answered with `output`. */
  | { readonly kind: 'output'; readonly id: number }
  /** Ends the background processes of an owner's programs. Answered with `backgroundEnded`. */
  | { readonly kind: 'endBackground'; readonly owner: string }
  /** Answered with `pong`. */
  | { readonly kind: 'ping' }

export interface ProgramUsage {
  readonly cpuSeconds?: number
  readonly peakMemoryBytes?: number
}

/** The output of a program. `…Truncated` means that the middle is omitted. */
export interface CapturedOutput {
  readonly stdout: string
  readonly stderr: string
  readonly stdoutTruncated?: true
  readonly stderrTruncated?: true
}

export interface ProgramResult extends ProgramUsage, CapturedOutput {
  readonly kind: 'ended'
  readonly id: number
  readonly at: number
  readonly exitCode: number | null
  readonly signal: string | null
  readonly stoppedBy: StopCause | null
  /** Whether the program's process group has other members. */
  readonly hasBackground: boolean
}

export type StopCause = 'cancel' | 'timeout'

/** Each program has at most one `started` update and exactly one other update. */
export type ProgramUpdate =
  | { readonly kind: 'started'; readonly id: number; readonly at: number; readonly pid: number }
  | ProgramResult
  | { readonly kind: 'failed'; readonly id: number; readonly error: ErrorRecord }
  /** The system lacks resources for another process or file. */
  | { readonly kind: 'refused'; readonly id: number; readonly errno: string }

export type LauncherMessage =
  | ProgramUpdate
  /** `output` is `null` if the program is not running. */
  | { readonly kind: 'output'; readonly id: number; readonly output: CapturedOutput | null }
  | { readonly kind: 'backgroundEnded'; readonly owner: string }
  /** The answer to `ping`, and the first message, when the launcher can start programs. */
  | { readonly kind: 'pong' }

/** Whether the error means that resources are lacking, which may be temporary. */
export const isResourceShortage = (errno: string): boolean =>
  errno === 'EMFILE' || errno === 'ENFILE' || errno === 'EAGAIN' || errno === 'ENOMEM'

/** The messages between the pool and its launchers. Times are those of `machineMs`. */

import type { ErrorRecord } from '../../../foundation/error-record.ts'

/** A program to start. `id` is the pool's, never used twice. */
export interface ProgramRequest {
  readonly id: number
  readonly executable: string
  readonly arguments: readonly string[]
  readonly cwd: string
  /** Changes to the inherited environment; `null` removes. */
  readonly env: Readonly<Record<string, string | null>> | null
  /** The cores that were asked for by number, which the environment names; else `null`. */
  readonly cores: number | null
  readonly stdin: string | Uint8Array | null
  readonly shell: boolean
  /** Absolute paths of files that take the output; `null` keeps it as text. */
  readonly stdoutFile: string | null
  readonly stderrFile: string | null
  readonly timeoutMs: number | null
  /** Whether its end ends its whole group; else the rest lives until `endBackground`. */
  readonly killBackground: boolean
  /** Whether `killBackground` and a stop end what has left its group as well. */
  readonly isFollowed: boolean
  /** For `endBackground`: a session's id. */
  readonly owner: string
}

/** In the environment of all programs: names the launcher that started them. */
export const launcherVariable = 'TUTTI_LAUNCHER'

/** The first message to a launcher. */
export interface LauncherSetup {
  readonly graceMs: number
  readonly capture: CaptureBounds
  /** `plain` does without koffi; `auto` takes it where it works. */
  readonly spawner: 'auto' | 'plain'
  /**
   * Variables that programs inherit and the launcher itself must not have; `launcherVariable` is
   * among them.
   */
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
  /** Ends what programs of this owner left behind; answered with `backgroundEnded`. */
  | { readonly kind: 'endBackground'; readonly owner: string }
  /** Answered with `pong`. */
  | { readonly kind: 'ping' }

export interface ProgramUsage {
  readonly cpuSeconds?: number
  readonly peakMemoryBytes?: number
}

/** What a program wrote. `true`: something in the middle of it was left out. */
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
  /** Whether its group has other members, which `endBackground` ends. */
  readonly hasBackground: boolean
}

export type StopCause = 'cancel' | 'timeout'

/** Each program is reported at most once as `started`, and exactly once as something else. */
export type ProgramUpdate =
  | { readonly kind: 'started'; readonly id: number; readonly at: number; readonly pid: number }
  | ProgramEnd
  | { readonly kind: 'failed'; readonly id: number; readonly error: ErrorRecord }
  /** The system has no resources for another process or file now. */
  | { readonly kind: 'refused'; readonly id: number; readonly errno: string }

export type FromLauncher =
  | ProgramUpdate
  | { readonly kind: 'backgroundEnded'; readonly owner: string }
  /** Also the first message of all, when programs can be started. */
  | { readonly kind: 'pong' }

/** The system lacks resources now; it may have them later. */
export const isTransient = (errno: string): boolean =>
  errno === 'EMFILE' || errno === 'ENFILE' || errno === 'EAGAIN' || errno === 'ENOMEM'

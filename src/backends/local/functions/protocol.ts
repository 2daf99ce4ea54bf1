/** The port between the pool and one worker, a thread or a process, and their messages. */

import type { Clock } from '../../../foundation/clock.ts'
import type { TaskDefinition } from '../../../tasks/define-task.ts'
import type { UpdateRecord } from '../../task-updates.ts'
import type { Mailbox } from './mailbox.ts'
import type { ErrorRecord } from '../../../foundation/error-record.ts'

/** Jobs for a worker. Three entries each: the index of the definition, the uid, the arguments. */
export interface BatchMessage {
  readonly bank: number
  /** For `CUDA_VISIBLE_DEVICES`; `null` for what the parent sees. */
  readonly gpus: string | null
  /** Definitions that are new to this worker; their indexes follow those of the earlier ones. */
  readonly definitions: readonly TaskDefinition[]
  /** By index of the job; `null` when all are first attempts. */
  readonly attempts: readonly number[] | null
  readonly jobs: readonly unknown[]
}

/** Asks the code of a job that listens to end by itself. */
export interface AbortMessage {
  readonly abort: number
  readonly reason: ErrorRecord
}

/** The same as one flat array, which crosses to a thread faster than nested objects. */
export type PackedBatch = readonly [
  bank: number,
  gpus: string | null,
  definitions: readonly TaskDefinition[] | null,
  attempts: readonly number[] | null,
  ...jobs: readonly unknown[],
]

export function packBatch(batch: BatchMessage): PackedBatch {
  const { bank, gpus, definitions, attempts, jobs } = batch
  return [bank, gpus, definitions.length === 0 ? null : definitions, attempts, ...jobs]
}

export function unpackBatch(packed: PackedBatch): BatchMessage {
  const [bank, gpus, definitions, attempts, ...jobs] = packed
  return { bank, gpus, definitions: definitions ?? [], attempts, jobs }
}

/** `thrown`: by the function. `result`: not cloneable. `import`: there was nothing to call. */
export type FailureKind = 'thrown' | 'result' | 'import'

export type WorkerMessage =
  /** It takes batches now. */
  | { readonly kind: 'ready' }
  /** There is something new in the mailbox. */
  | { readonly kind: 'passed' }
  | { readonly kind: 'value'; readonly slot: number; readonly value: unknown }
  | {
      readonly kind: 'failure'
      readonly slot: number
      readonly failure: FailureKind
      readonly error: ErrorRecord
      /** Where in the result. */
      readonly field?: string
    }
  /** What the code of a job told about it. The end of that job comes as a message, too. */
  | { readonly kind: 'update'; readonly slot: number; readonly update: UpdateRecord }
  /** The code of the job has asked for its abort signal. */
  | { readonly kind: 'listens'; readonly slot: number }
  /** Made by the link of a message that came and could not be read. */
  | { readonly kind: 'unreadable'; readonly error: ErrorRecord }
  /** An error that nobody caught: the worker begins nothing more and exits. */
  | { readonly kind: 'dying'; readonly reason: string; readonly error: ErrorRecord }
  /** From processes, which have no mailbox in common with the pool. */
  | { readonly kind: 'importing'; readonly slot: number; readonly at: number }
  | { readonly kind: 'began'; readonly slot: number; readonly at: number }
  | {
      readonly kind: 'ended'
      readonly slot: number
      readonly start: number
      readonly end: number
      /** Absent when it is sent as a message of its own. */
      readonly value?: unknown
      readonly hasMessage: boolean
    }

/** How a worker ended; what is unknown is absent. */
export interface WorkerExit {
  /** It still runs, but nobody waits for its end any longer: how many are in this state. */
  readonly leftBehind?: number
  readonly code?: number
  readonly signal?: string
  readonly error?: unknown
}

/** `exit` is called once, after the last message. */
export interface WorkerLinkListener {
  message(message: WorkerMessage): void
  /** User code in the worker sent a message of its own, which means nothing here. */
  ignored(): void
  exit(exit: WorkerExit): void
}

export interface WorkerLink {
  /** Shared with the worker, or a copy that follows it. */
  readonly mailbox: Mailbox
  /** Throws when the message cannot be cloned. */
  post(batch: BatchMessage): void
  /** Does nothing where the job has ended. */
  abort(message: AbortMessage): void
  /** Whether the process must stay alive for this worker; at first it must. */
  setBusy(isBusy: boolean): void
  /**
   * Ends the worker, whatever it does. `unresponsive`: what was sent and not begun by then is given
   * back; else it counts as begun.
   */
  kill(why?: 'unresponsive'): void
}

export interface WorkerLinkOptions {
  readonly workerId: string
  readonly program: URL
  readonly maxHeapMb: number | null
  readonly clock: Clock
  readonly listener: WorkerLinkListener
}

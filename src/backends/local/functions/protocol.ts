/** The port between the pool and one worker, a thread or a process, and their messages. */

import type { Clock } from '../../../foundation/clock.ts'
import type { TaskDefinition } from '../../../tasks/define-task.ts'
import type { UpdateRecord } from '../../task-updates.ts'
import type { Mailbox } from './mailbox.ts'
import type { ErrorRecord } from '../../../foundation/error-record.ts'

/** Jobs for a worker, three entries each: the index of the definition, the uid, the arguments. */
export interface BatchMessage {
  readonly bank: number
  /** The value of `CUDA_VISIBLE_DEVICES`; `null` for the inherited one. */
  readonly gpus: string | null
  /**
   * Definitions that this worker does not know yet. Their indexes continue those of earlier
   * batches.
   */
  readonly definitions: readonly TaskDefinition[]
  /** The attempt number of each job; `null` if all are first attempts. */
  readonly attempts: readonly number[] | null
  readonly jobs: readonly unknown[]
}

/** Asks code that uses its abort signal to end by itself. `abort` is the slot of its job. */
export interface AbortMessage {
  readonly abort: number
  readonly reason: ErrorRecord
}

/** A `BatchMessage` as one flat array, which is sent to a thread faster than nested objects. */
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

/**
 * `thrown`: the function threw. `result`: its result cannot be cloned. `import`: no function was
 * found.
 */
export type FailureKind = 'thrown' | 'result' | 'import'

export type WorkerMessage =
  /** The worker accepts batches now. */
  | { readonly kind: 'ready' }
  /** The mailbox holds new results. */
  | { readonly kind: 'passed' }
  | { readonly kind: 'value'; readonly slot: number; readonly value: unknown }
  | {
      readonly kind: 'failure'
      readonly slot: number
      readonly failure: FailureKind
      readonly error: ErrorRecord
      /** The path of the part that cannot be sent. */
      readonly field?: string
    }
  /** A progress report or event from a job's code. The end of such a job is a message too. */
  | { readonly kind: 'update'; readonly slot: number; readonly update: UpdateRecord }
  /** The job's code has asked for its abort signal. */
  | { readonly kind: 'listens'; readonly slot: number }
  /** Created by the link for a message that arrived but cannot be read. */
  | { readonly kind: 'unreadable'; readonly error: ErrorRecord }
  /** An uncaught error: the worker begins no further jobs and exits. */
  | { readonly kind: 'dying'; readonly reason: string; readonly error: ErrorRecord }
  /** The next three come only from processes, which share no mailbox with the pool. */
  | { readonly kind: 'importing'; readonly slot: number; readonly at: number }
  | { readonly kind: 'began'; readonly slot: number; readonly at: number }
  | {
      readonly kind: 'ended'
      readonly slot: number
      readonly start: number
      readonly end: number
      /** Absent if the value is sent as a message of its own. */
      readonly value?: unknown
      readonly hasMessage: boolean
    }

/** How a worker ended; unknown fields are absent. */
export interface WorkerExit {
  /** If this worker still runs but is no longer awaited: the number of all such workers. */
  readonly leftBehind?: number
  readonly code?: number
  readonly signal?: string
  readonly error?: unknown
}

/** `exit` is called once, after the last message. */
export interface WorkerLinkListener {
  message(message: WorkerMessage): void
  /** User code in the worker sent a message of its own, which has no meaning here. */
  ignored(): void
  exit(exit: WorkerExit): void
}

export interface WorkerLink {
  /** Shared with a thread; for a process, a copy updated from its messages. */
  readonly mailbox: Mailbox
  /** Throws if the message cannot be cloned. */
  post(batch: BatchMessage): void
  /** Does nothing if the job has ended. */
  abort(message: AbortMessage): void
  /** Sets whether this worker keeps the process alive. Initially it does. */
  setBusy(isBusy: boolean): void
  /**
   * Ends the worker, whatever it is doing. With `unresponsive`, a job that was sent and not begun
   * is given back; otherwise it counts as begun.
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

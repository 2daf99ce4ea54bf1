/** The interface between the pool and one worker (a thread or a process), and their messages. */

import type { Clock } from '../../../foundation/clock.ts'
import type { TaskDefinition } from '../../../tasks/define-task.ts'
import type { UpdateRecord } from '../../task-updates.ts'
import type { Mailbox } from './mailbox.ts'
import type { ErrorRecord } from '../../../foundation/error-record.ts'

/** A batch of jobs. `jobs` has three entries per job: definition index, uid and arguments. */
export interface BatchMessage {
  readonly bank: number
  /** The value of `CUDA_VISIBLE_DEVICES`; `null` to keep the inherited value. */
  readonly gpus: string | null
  /** Definitions that are new to this worker. Their indexes continue those of earlier batches. */
  readonly definitions: readonly TaskDefinition[]
  /** The attempt number of each job; `null` if all are first attempts. */
  readonly attempts: readonly number[] | null
  readonly jobs: readonly unknown[]
}

/** Aborts the signal of a job's code. `abort` is the job's slot. */
export interface AbortMessage {
  readonly abort: number
  readonly reason: ErrorRecord
}

/** A `BatchMessage` as one flat array, which can be sent to a thread faster than nested objects. */
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
 * `thrown`: the function threw. `result`: its result cannot be cloned. `import`: the function was
 * not found.
 */
export type FailureKind = 'thrown' | 'result' | 'import'

export type WorkerMessage =
  | { readonly kind: 'ready' }
  /** The mailbox holds new results. */
  | { readonly kind: 'passed' }
  | { readonly kind: 'value'; readonly slot: number; readonly value: unknown }
  | {
      readonly kind: 'failure'
      readonly slot: number
      readonly failure: FailureKind
      readonly error: ErrorRecord
      readonly field?: string
    }
  /** A progress report or an event. A job that has sent one sends its result as a message too. */
  | { readonly kind: 'update'; readonly slot: number; readonly update: UpdateRecord }
  /** Sent when the job's code uses its abort signal. */
  | { readonly kind: 'listens'; readonly slot: number }
  /** Created by the link for a message that arrived but cannot be read. */
  | { readonly kind: 'unreadable'; readonly error: ErrorRecord }
  /** Sent when the worker exits after an uncaught error. It starts no further jobs. */
  | { readonly kind: 'dying'; readonly reason: string; readonly error: ErrorRecord }
  /**
   * This message and the next two are sent only by processes, which share no mailbox with the pool.
   */
  | { readonly kind: 'importing'; readonly slot: number; readonly at: number }
  | { readonly kind: 'began'; readonly slot: number; readonly at: number }
  | {
      readonly kind: 'ended'
      readonly slot: number
      readonly start: number
      readonly end: number
      readonly value?: unknown
      readonly hasMessage: boolean
    }

/** How a worker ended. Unknown fields are absent. */
export interface WorkerExit {
  /** The number of abandoned workers. Present if this worker is abandoned and still runs. */
  readonly abandonedCount?: number
  readonly code?: number
  readonly signal?: string
  readonly error?: unknown
}

/** Receives the messages of a worker. `exit` is called once, after the last message. */
export interface WorkerLinkListener {
  message(message: WorkerMessage): void
  /** Called when user code in the worker sends a message. Such messages are ignored. */
  ignored(): void
  exit(exit: WorkerExit): void
}

export interface WorkerLink {
  /** Shared with a thread; for a process, a copy that its messages update. */
  readonly mailbox: Mailbox
  /** Sends a batch. Throws if the message cannot be cloned. */
  post(batch: BatchMessage): void
  /** Aborts the signal of a job's code. Does nothing if the job has ended. */
  abort(message: AbortMessage): void
  /** Sets whether this worker keeps the process alive, which it does initially. */
  setBusy(isBusy: boolean): void
  /**
   * Kills the worker. If `why` is `unresponsive`, a job that was sent but has not begun is
   * requeued. Otherwise, the job counts as begun.
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

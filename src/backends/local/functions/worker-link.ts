/** The port between the pool and one worker, which is a thread or a process. */

import type { Clock } from '../../../foundation/clock.ts'
import { siblingProgram } from '../../../runtime/supervised-child.ts'
import type { Mailbox } from './mailbox.ts'
import type { BatchMessage, WorkerMessage } from './protocol.ts'

/** How a worker ended; what is unknown is absent. */
export interface WorkerExit {
  readonly code?: number
  readonly signal?: string
  readonly error?: unknown
}

/** `exit` is called once, after the last message. */
export interface WorkerLinkListener {
  message(message: WorkerMessage): void
  exit(exit: WorkerExit): void
}

export interface WorkerLink {
  /** Shared with the worker, or a copy that follows it. */
  readonly mailbox: Mailbox
  /** Throws when the message cannot be cloned. */
  post(batch: BatchMessage): void
  /** Whether the process must stay alive for this worker; at first it must. */
  setBusy(isBusy: boolean): void
  /** Ends the worker, whatever it does. */
  kill(): void
}

export interface WorkerLinkOptions {
  readonly workerId: string
  readonly program: URL
  readonly maxHeapMb: number | null
  readonly clock: Clock
  readonly listener: WorkerLinkListener
}

export const workerProgram = siblingProgram(import.meta.url, 'worker-program')

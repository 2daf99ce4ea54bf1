/** The pool's end of the line to one worker, be it a thread or a process. */

import type { Clock } from '../../../foundation/clock.ts'
import type { Mailbox } from './mailbox.ts'
import type { BatchMessage, WorkerMessage } from './protocol.ts'

/** How a worker ended; absent is what nobody knows. */
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

/** The worker's program, beside this file and in its language. */
export const workerProgram = programAt('./worker-program')
export const parentWatch = programAt('../../../runtime/parent-watch')

function programAt(path: string): URL {
  const extension = import.meta.url.slice(import.meta.url.lastIndexOf('.'))
  return new URL(`${path}${extension}`, import.meta.url)
}

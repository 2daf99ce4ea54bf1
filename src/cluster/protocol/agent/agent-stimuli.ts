/** What the machine of a session on an agent is told, and what it has its shell do. */

import type { EventNotice, TaskReport } from '../../../backends/backend.ts'
import type { TaskSpec } from '../../../tasks/spec.ts'
import type { ObjectToStore } from '../../broker/stored-objects.ts'
import type { Header } from '../../wire/envelope.ts'
import type {
  Attach,
  Attached,
  DriverMessage,
  Heartbeat,
  Message,
  NotAllowed,
  SentJob,
} from '../../wire/messages.ts'
import type { HeldAttempt } from './held-attempts.ts'

/** Why a job cannot run on this node, or not now. */
export type Unready =
  | { readonly kind: 'failed'; readonly error: Error }
  | { readonly kind: 'not-allowed'; readonly notAllowed: NotAllowed }
  /** The broker does not have the bundle of the job's module. */
  | { readonly kind: 'lost-bundle'; readonly digest: string }

export type AgentStimulus =
  /** Answered by the instruction `answer`. */
  | { readonly kind: 'attach'; readonly attach: Attach }
  /** A numbered message, or `null` if it is malformed. */
  | { readonly kind: 'message'; readonly header: Header; readonly message: DriverMessage | null }
  | { readonly kind: 'idle'; readonly header: Header; readonly message: Message<'idle'> }
  | { readonly kind: 'beat'; readonly header: Header; readonly beat: Heartbeat }
  /** A heartbeat with a wrong signature or form. */
  | { readonly kind: 'unreadable-beat'; readonly reason: string }
  /** Asks for jobs to begin. */
  | { readonly kind: 'begin'; readonly maxCores: number }
  /** These jobs can run on this node, with these specs. */
  | {
      readonly kind: 'ready'
      readonly jobs: readonly HeldAttempt[]
      readonly specs: readonly TaskSpec[]
    }
  | { readonly kind: 'unready'; readonly jobs: readonly HeldAttempt[]; readonly why: Unready }
  /** `spec` is `null` if the broker does not have it. */
  | { readonly kind: 'spec'; readonly request: SpecRequest; readonly spec: TaskSpec | null }
  /** A report of the node's backend. */
  | { readonly kind: 'report'; readonly job: HeldAttempt; readonly report: TaskReport }
  | { readonly kind: 'notice'; readonly notice: EventNotice }
  /** Answers `withdraw`: jobs that the backend has not begun. */
  | { readonly kind: 'withdrawn'; readonly jobs: readonly HeldAttempt[] }
  /** Answers `release`: no job of the session runs any more. */
  | { readonly kind: 'released' }
  /** Answers `put`. `names` is in the order of the objects. */
  | { readonly kind: 'put'; readonly id: number; readonly names: readonly string[] }
  /** Answers `put` for an object that is larger than the store. */
  | { readonly kind: 'unputable'; readonly id: number; readonly error: Error }
  /** Answers `append`. `connection` is that of the instruction. */
  | { readonly kind: 'appended'; readonly number: number; readonly connection: number }
  | {
      readonly kind: 'append-refused'
      readonly number: number
      readonly connection: number
      readonly error: unknown
      /** Whether the store is full. */
      readonly isFull: boolean
    }
  /** Answers `open-stream`. `created` is `null` if the broker did not answer. */
  | { readonly kind: 'stream'; readonly isOurs: boolean; readonly created: string | null }
  /** Answers `check-stream`: whether the stream was removed and no driver answers. */
  | { readonly kind: 'stream-checked'; readonly isGone: boolean }
  /** Answers `make-room`. */
  | { readonly kind: 'room'; readonly isMade: boolean }
  /** The store does not accept an object now. */
  | { readonly kind: 'store-problem'; readonly error: unknown; readonly isFull: boolean }
  | { readonly kind: 'link'; readonly isUp: boolean }
  /** A deadline of the instruction `wake` has passed. */
  | { readonly kind: 'wake' }
  /** Every half second. */
  | { readonly kind: 'tick' }
  | { readonly kind: 'drain' }
  /** Ends the session on this agent. `keepsResults`: once the stream has its results. */
  | { readonly kind: 'end'; readonly reason: string; readonly keepsResults: boolean }
  /** From now on, an end waits for the stream for at most `ownerTtlSeconds` without progress. */
  | { readonly kind: 'limit-wait' }
  /** Drops all results: nobody waits for them. */
  | { readonly kind: 'drop' }

/** A job whose spec is in the broker's store. */
export interface SpecRequest extends SentJob {
  readonly driverStart: number
  readonly object: string
}

export type AgentInstruction =
  | { readonly kind: 'answer'; readonly answer: Attached }
  /** Sends an encoded message to the driver, without storing it. */
  | { readonly kind: 'send'; readonly header: Header; readonly payload: Buffer }
  /** Sends results to the driver, and stores them in the stream. */
  | {
      readonly kind: 'append'
      readonly header: Header
      readonly payload: Buffer
      readonly number: number
      readonly connection: number
    }
  /** Makes jobs ready for this node. Answered by `ready` and `unready`. */
  | { readonly kind: 'prepare'; readonly jobs: readonly HeldAttempt[] }
  | { readonly kind: 'load-spec'; readonly request: SpecRequest }
  | { readonly kind: 'submit'; readonly jobs: readonly HeldAttempt[] }
  | { readonly kind: 'cancel'; readonly job: HeldAttempt; readonly reason: string }
  | { readonly kind: 'withdraw' }
  | { readonly kind: 'release'; readonly reason: string }
  /** Stores objects, one after the other. */
  | { readonly kind: 'put'; readonly id: number; readonly objects: readonly ObjectToStore[] }
  | { readonly kind: 'cancel-put'; readonly id: number }
  | { readonly kind: 'delete'; readonly names: readonly string[] }
  /** Finds the session's stream, or creates it if its driver answers. */
  | { readonly kind: 'open-stream' }
  | { readonly kind: 'check-stream' }
  /** Removes results from the stream that the driver has recorded. */
  | { readonly kind: 'make-room' }
  /** The broker has begun to refuse results. */
  | { readonly kind: 'throttled'; readonly error: unknown }
  /** The first event that is dropped. */
  | { readonly kind: 'dropped-event'; readonly why: string }
  | { readonly kind: 'refused-message'; readonly reason: string }
  /** Jobs have arrived, and may begin at once. */
  | { readonly kind: 'arrived' }
  /** Jobs have been queued or resources have become free. */
  | { readonly kind: 'changed' }
  /** The driver is gone for good, so the agent ends the session. */
  | { readonly kind: 'give-up' }
  | { readonly kind: 'wake'; readonly afterMs: number }
  /** The session has ended. `undelivered` is the number of results that the stream lacks. */
  | { readonly kind: 'done'; readonly undelivered: number }

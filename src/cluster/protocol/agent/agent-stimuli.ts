/** What the machine of a session on an agent is told, and what it has its shell do. */

import type { EventNotice, TaskReport } from '../../../backends/backend.ts'
import type { TaskSpec } from '../../../tasks/spec.ts'
import type { ObjectToStore } from '../../broker/stored-objects.ts'
import type { Header } from '../../wire/envelope.ts'
import type { Tagged } from '../../wire/forms.ts'
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
export type Unready = Tagged<{
  failed: { error: Error }
  'not-allowed': { notAllowed: NotAllowed }
  /** The broker does not have the bundle of the job's module. */
  'lost-bundle': { digest: string }
}>

export type AgentStimulus = Tagged<{
  /** Answered by the instruction `answer`. */
  attach: { attach: Attach }
  /** A numbered message, or `null` if it is malformed. */
  message: { header: Header; message: DriverMessage | null }
  idle: { header: Header; message: Message<'idle'> }
  beat: { header: Header; beat: Heartbeat }
  /** A heartbeat with a wrong signature or form. */
  'unreadable-beat': { reason: string }
  /** Asks for jobs to begin. */
  begin: { maxCores: number }
  /** These jobs can run on this node, with these specs. */
  ready: { jobs: readonly HeldAttempt[]; specs: readonly TaskSpec[] }
  unready: { jobs: readonly HeldAttempt[]; why: Unready }
  /** `spec` is `null` if the broker does not have it. */
  spec: { request: SpecRequest; spec: TaskSpec | null }
  /** A report of the node's backend. */
  report: { job: HeldAttempt; report: TaskReport }
  notice: { notice: EventNotice }
  /** Answers `withdraw`: jobs that the backend has not begun. */
  withdrawn: { jobs: readonly HeldAttempt[] }
  /** Answers `release`: no job of the session runs any more. */
  released: unknown
  /** Answers `put` with the name of the stored object. */
  put: { id: number; name: string }
  /** Answers `put` for an object that is larger than the store. */
  unputable: { id: number; error: Error }
  /** Answers `append`. `connection` is that of the instruction. */
  appended: { number: number; connection: number }
  /** `isFull`: whether the store is full. */
  'append-refused': { number: number; connection: number; error: unknown; isFull: boolean }
  /**
   * Answers `open-stream`. `isOurs` is `false` if the stream was removed and no driver answers, or
   * another run has it. `created` is `null` if the broker did not answer.
   */
  stream: { isOurs: boolean; created: string | null }
  /** Answers `make-room`. */
  room: { isMade: boolean }
  /** The store does not accept an object now. */
  'store-problem': { error: unknown; isFull: boolean }
  link: { isUp: boolean }
  /** A deadline of the instruction `wake` has passed. */
  wake: unknown
  /** Every half second. */
  tick: unknown
  drain: unknown
  /** Ends the session on this agent. `keepsResults`: once the stream has its results. */
  end: { reason: string; keepsResults: boolean }
  /** From now on, an end waits for the stream for at most `ownerTtlSeconds` without progress. */
  'limit-wait': unknown
  /** Drops all results: nobody waits for them. */
  drop: unknown
}>

/** A job whose spec is in the broker's store. */
export interface SpecRequest extends SentJob {
  readonly driverStart: number
  readonly object: string
}

export type AgentInstruction = Tagged<{
  answer: { answer: Attached }
  /** Sends an encoded message to the driver, without storing it. */
  send: { header: Header; payload: Buffer }
  /** Sends results to the driver, and stores them in the stream. */
  append: { header: Header; payload: Buffer; number: number; connection: number }
  /** Makes jobs ready for this node. Answered by `ready` and `unready`. */
  prepare: { jobs: readonly HeldAttempt[] }
  'load-spec': { request: SpecRequest }
  submit: { jobs: readonly HeldAttempt[] }
  cancel: { job: HeldAttempt; reason: string }
  withdraw: unknown
  release: { reason: string }
  /** Stores an object. Answered by `put` or `unputable`. */
  put: { id: number; object: ObjectToStore }
  'cancel-put': { id: number }
  delete: { name: string }
  /** Finds the session's stream, or creates it if its driver answers. */
  'open-stream': unknown
  /** Removes results from the stream that the driver has recorded. */
  'make-room': unknown
  /** The broker has begun to refuse results. */
  throttled: { error: unknown }
  /** The first event that is dropped. */
  'dropped-event': { why: string }
  'refused-message': { reason: string }
  /** Jobs have arrived, and may begin at once. */
  arrived: unknown
  /** Jobs have been queued or resources have become free. */
  changed: unknown
  /** The driver is gone for good, so the agent ends the session. */
  'give-up': unknown
  wake: { afterMs: number }
  /** The session has ended. `undelivered` is the number of results that the stream lacks. */
  done: { undelivered: number }
}>

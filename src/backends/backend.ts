/** The port between a session and its backends. */

import type { EventClass } from '../events/event.ts'
import type { Measurement } from '../events/measurement.ts'
import type { WorkSpan } from '../events/sink.ts'
import type { JsonObject } from '../foundation/json-value.ts'
import type { AITask } from '../tasks/ai-task.ts'
import type { ComputeTask } from '../tasks/compute-task.ts'
import type { Moment } from '../tasks/lifecycle.ts'
import type { TaskSpec } from '../tasks/spec.ts'
import type { AnswerFacts, ProgramOutput } from '../tasks/task-record.ts'
import type { ResourceSample, ResourceSampler } from './sampling/sampler.ts'

/** A task of any kind, whatever it returns. */
export type AnyTask = ComputeTask<unknown> | AITask<string | readonly string[]>

/**
 * One attempt at a task, as plain data: a copy can be submitted like the original. Reports and
 * cancels name the object that was submitted; a copy of it is another job.
 */
export interface Job {
  readonly sessionId: string
  readonly uid: string
  /** 1 for the first; a resumed session counts on from the attempts of the earlier ones. */
  readonly attempt: number
  /** It follows one that failed in this session, and begins before new work of its priority. */
  readonly isRetry?: boolean
  readonly spec: TaskSpec
}

/** What is known about an attempt beyond its end; absent when unknown. */
export interface AttemptFacts extends ProgramOutput, AnswerFacts {
  readonly workerId?: string
  readonly cpuSeconds?: number
  readonly peakMemoryBytes?: number
  readonly exitCode?: number
  readonly signal?: string
  /** What a program wrote that did not succeed, for its task; the value has it of one that did. */
  readonly stdout?: string
  readonly stderr?: string
  /** The end of it, for the task's last event. */
  readonly stdoutTail?: string
  readonly stderrTail?: string
  /** `true` if the program wrote more than is kept. */
  readonly stdoutTruncated?: true
  readonly stderrTruncated?: true
  /** The absolute paths of files that took the output. */
  readonly stdoutPath?: string
  readonly stderrPath?: string
}

/**
 * The number of an attempt where a backend that outlives the session's process knows of attempts
 * that an earlier start of the session has made. The session counts on from it.
 */
export interface ContinuedAttempt {
  /** Higher than that of the job; any other is ignored. */
  readonly number: number
  /** Attempts from the job's number on, before this one, that `retries` does not count. */
  readonly uncounted: number
}

/**
 * What a backend reports about an attempt. `at` is when it happened, if that was earlier than now.
 * `fail` carries the original error; a lost worker is a `WorkerLostError`, a time-out a
 * `TimeoutError`. Whatever is reported, a task that was canceled ends CANCELED.
 */
export type TaskReport =
  | {
      readonly kind: 'start'
      readonly at?: Moment
      readonly continued?: ContinuedAttempt
      readonly workerId: string
      /** That of the first rank, where there are several. */
      readonly nodeId: string
      /** Of an MPI program: all its nodes, and how many ranks it has. */
      readonly nodes?: readonly string[]
      readonly ranks?: number
    }
  | {
      readonly kind: 'complete'
      readonly at?: Moment
      readonly continued?: ContinuedAttempt
      readonly value: unknown
      readonly facts?: AttemptFacts
    }
  | {
      readonly kind: 'fail'
      readonly at?: Moment
      readonly continued?: ContinuedAttempt
      readonly error: unknown
      /** The task's own code threw the error: it is no sign of a lost worker. */
      readonly isThrown?: true
      /** Another attempt would fail as well: the task ends, whatever its `retries` say. */
      readonly isFinal?: true
      readonly facts?: AttemptFacts
    }
  | {
      readonly kind: 'cancel'
      readonly at?: Moment
      readonly continued?: ContinuedAttempt
      readonly reason: string
      readonly facts?: AttemptFacts
    }

/**
 * An event about the backend or its work. Made by `toEventNotice`, which checks that the fields are
 * those of the class.
 */
export interface EventNotice {
  readonly kind: 'event'
  readonly type: EventClass
  readonly fields: object
  readonly taskId: string | null
  readonly nodeId: string | null
  /** Of the event, besides the fields of its class. */
  readonly attributes?: JsonObject
}

/**
 * A notice that the session emits as an event: it adds its id and the backend's name, and masks
 * secrets in the texts. `eventClass` is a namespaced one: `tutti.*` or an own one of `defineEvent`.
 */
export function toEventNotice<Fields extends object>(
  eventClass: EventClass<string, Fields>,
  fields: Fields,
  about: Partial<Pick<EventNotice, 'attributes'>> & {
    readonly taskId?: string
    readonly nodeId?: string
  } = {},
): EventNotice {
  return {
    kind: 'event',
    type: eventClass as unknown as EventClass,
    fields,
    taskId: about.taskId ?? null,
    nodeId: about.nodeId ?? null,
    ...(about.attributes === undefined ? {} : { attributes: about.attributes }),
  }
}

/** A change of the backend's nodes, or a sample that a node sent by itself. */
export type NodeNotice =
  | { readonly kind: 'node-joined'; readonly node: SampledNode }
  | {
      readonly kind: 'node-left'
      readonly nodeId: string
      /** Why it was lost, and which tasks were running there. Default: it was drained. */
      readonly lost?: { readonly reason: string; readonly tasks: readonly string[] }
    }
  | { readonly kind: 'sample'; readonly nodeId: string; readonly sample: ResourceSample }

/** Something about the backend itself or about its work. */
export type Notice =
  | EventNotice
  | NodeNotice
  /** A task's result came after its last report, and was dropped. */
  | { readonly kind: 'late-result' }
  | { readonly kind: 'span'; readonly span: WorkSpan }
  | { readonly kind: 'measurement'; readonly measurement: Measurement }

/**
 * The only way back. Neither call throws: reports of an attempt that is over are ignored and
 * counted, and what is not a report or a notice is ignored with a warning.
 */
export interface BackendListener {
  /** Tells that an attempt has begun or ended. */
  report(job: Job, report: TaskReport): void
  /** Tells anything else: an event, a span, a measurement, a node that came or left. */
  notice(notice: Notice): void
}

/** The session behind a connection, and what of its jobs cannot leave its process. */
export interface ConnectedSession {
  readonly id: string
  /**
   * Calls the closure of a job with its arguments; `null` for any other kind of job, and for one
   * that is not this session's own object.
   */
  closureOf(job: Job): (() => unknown) | null
}

/** Why a task cannot run here; `field` is relative to the task. */
export interface Refusal {
  readonly field: string
  readonly message: string
  readonly code?: string
}

/**
 * One client's line to a backend. Every job that was submitted gets exactly one last report
 * (complete, fail or cancel), with at most one `start` before it.
 */
export interface Connection {
  /** Takes the jobs over at once, however many; never throws. */
  submit(jobs: readonly Job[]): void
  /**
   * Asks for the end of an attempt. The report may still say that it completed or failed first.
   */
  cancel(job: Job, reason: string): void
  /**
   * The ends of these jobs are recorded, and with a checkpoint they are on disk: a remote backend
   * may forget them now. An attempt that failed and is retried counts as well. Called in batches,
   * at most once for a job, in the order of their ends, and never after the backend's `close()`;
   * not for all while a checkpoint cannot be written. Never throws. A backend that keeps no ends
   * leaves it out: nothing is flushed for it.
   */
  recorded?(jobs: readonly Job[]): void
  /** Cancels what this client still has there and waits for its end. The backend stays. */
  release(reason: string): Promise<void>
}

/** What a node has for tasks. */
export interface NodeCapacity {
  readonly cores: number
  readonly gpus: number
  readonly memoryMb: number
  readonly labels?: Readonly<Record<string, string>>
  /** Of the library that runs there. */
  readonly version?: string
  /** How many functions and programs run there at a time, however many cores are free. */
  readonly workers?: number
  readonly maxProcesses?: number
}

/** A node of a backend, of which samples can be recorded. */
export interface SampledNode {
  readonly nodeId: string
  /** For `tutti.NodeJoined`, which says 0 where it is unknown. */
  readonly capacity?: NodeCapacity
  /**
   * Where several backends have a node, the one with the highest number samples it, and among
   * equals the first of the session. Default 0.
   */
  readonly samplingPriority?: number
  /**
   * A sampler that is polled, and closed, by the caller. Without it the node is not polled: the
   * backend sends its samples as notices.
   */
  createSampler?(pollSeconds: number): ResourceSampler
}

/**
 * The port of everything that runs tasks; `backendContract` of `tutti/testing` tests an own one.
 */
export interface Backend extends AsyncDisposable {
  readonly name: string
  /** The model that runs an AI task without `model`. */
  readonly model?: string
  /**
   * Its nodes at this moment, polled while a session with telemetry is connected. Nodes that come
   * and go later are reported by notices.
   */
  readonly nodes?: readonly SampledNode[]
  /** Attributes for SessionStarted that tell where it runs tasks, such as the id of a job. */
  readonly runFacts?: JsonObject
  /**
   * Why it will never run this task, or `null`. Called before anything is emitted; a task without
   * `backend` goes to the first that does not refuse it.
   */
  refuse(spec: TaskSpec): Refusal | null
  /** `session` is the one whose jobs will be submitted; it may connect to several backends. */
  connect(listener: BackendListener, session: ConnectedSession): Connection
  /**
   * Ends everything, reports what it cancels, is complete when it resolves. Idempotent, same
   * promise.
   */
  close(): Promise<void>
}

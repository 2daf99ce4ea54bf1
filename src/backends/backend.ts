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
 * One attempt of a task, as plain data: a copy can be submitted like the original. A copy counts as
 * a different job, so `report` and `cancel` need the object that was submitted.
 */
export interface Job {
  readonly sessionId: string
  readonly uid: string
  /** Counted from 1. A resumed session continues the count of its earlier runs. */
  readonly attempt: number
  /**
   * `true` if an earlier attempt failed in this session. Retries run before new jobs of the same
   * priority.
   */
  readonly isRetry?: boolean
  readonly spec: TaskSpec
}

/** Details of an attempt that has ended. A field is absent if its value is unknown. */
export interface AttemptFacts extends ProgramOutput, AnswerFacts {
  readonly workerId?: string
  readonly cpuSeconds?: number
  readonly peakMemoryBytes?: number
  readonly exitCode?: number
  readonly signal?: string
  /** The kept output of a program that failed. A successful program has its output in its value. */
  readonly stdout?: string
  readonly stderr?: string
  /** The last part of the output, for the task's last event. */
  readonly stdoutTail?: string
  readonly stderrTail?: string
  /** `true` if the program wrote more than was kept. */
  readonly stdoutTruncated?: true
  readonly stderrTruncated?: true
  /** The absolute paths of the files to which the output was redirected. */
  readonly stdoutPath?: string
  readonly stderrPath?: string
}

/** The files that take the output of a program. */
export type OutputFiles = Pick<AttemptFacts, 'stdoutPath' | 'stderrPath'>

/**
 * The number of an attempt, sent by a backend that outlives the session's process and still counts
 * the attempts of an earlier run of the same session. The session continues from this number.
 */
export interface ContinuedAttempt {
  /** Ignored unless it is higher than the job's `attempt`. */
  readonly number: number
  /** How many attempts, from the job's `attempt` up to this one, do not count against `retries`. */
  readonly uncounted: number
}

/**
 * A backend's report about an attempt. `at` is the time of the change, if that was before the
 * report. `fail` carries the original error: `WorkerLostError` for a lost worker, `TimeoutError`
 * for a time-out. A task that was canceled ends CANCELED, whatever is reported.
 */
export type TaskReport =
  | {
      readonly kind: 'start'
      readonly at?: Moment
      readonly continued?: ContinuedAttempt
      readonly workerId: string
      /** The node of the first rank, if the program has several. */
      readonly nodeId: string
      /** For an MPI program only: all its nodes, and its number of ranks. */
      readonly nodes?: readonly string[]
      readonly ranks?: number
      /** The files that take the program's output. */
      readonly facts?: Pick<AttemptFacts, 'stdoutPath' | 'stderrPath'>
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
      /** The task's own code threw the error, so the error does not indicate a lost worker. */
      readonly isThrown?: true
      /** Another attempt would fail too: the task ends even if `retries` are left. */
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
 * An event about the backend or its work. Created by `toEventNotice`, whose types tie the fields to
 * the event class.
 */
export interface EventNotice {
  readonly kind: 'event'
  readonly type: EventClass
  readonly fields: object
  readonly taskId: string | null
  readonly nodeId: string | null
  /** Attributes of the event, in addition to the fields of its class. */
  readonly attributes?: JsonObject
}

/**
 * A notice that the session emits as an event: the session adds its own id and the backend's name,
 * and masks secrets in the texts. `eventClass` must be namespaced: a `tutti.*` class or one that
 * `defineEvent` made.
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

/** A node joined or left the backend, or sent a resource sample of its own accord. */
export type NodeNotice =
  | { readonly kind: 'node-joined'; readonly node: SampledNode }
  | {
      readonly kind: 'node-left'
      readonly nodeId: string
      /** Why the node was lost, and which tasks ran on it. Absent if the node was drained. */
      readonly lost?: { readonly reason: string; readonly tasks: readonly string[] }
    }
  | { readonly kind: 'sample'; readonly nodeId: string; readonly sample: ResourceSample }

/** A message about the backend itself or about its work. */
export type Notice =
  | EventNotice
  | NodeNotice
  /** A task's result arrived after the task's last report and was dropped. */
  | { readonly kind: 'late-result' }
  | { readonly kind: 'span'; readonly span: WorkSpan }
  | { readonly kind: 'measurement'; readonly measurement: Measurement }

/**
 * How a backend reports to its session. Neither method throws: a report about an attempt that has
 * ended is ignored and counted; a malformed report or notice is ignored with a warning.
 */
export interface BackendListener {
  /** Reports that an attempt has started or ended. */
  report(job: Job, report: TaskReport): void
  /** Reports anything else: an event, a span, a measurement, a node that joined or left. */
  notice(notice: Notice): void
}

/** The session behind a connection; it holds the closures, which cannot leave its process. */
export interface ConnectedSession {
  readonly id: string
  /**
   * Returns a function that calls the job's closure with its arguments; `null` for any other kind
   * of job, and for a copy of a job of this session.
   */
  closureOf(job: Job): (() => unknown) | null
}

/** Why a backend cannot run a task; `field` is a path relative to the task. */
export interface Refusal {
  readonly field: string
  readonly message: string
  readonly code?: string
}

/**
 * One client's connection to a backend. Every submitted job gets exactly one last report (complete,
 * fail or cancel), with at most one `start` before it.
 */
export interface Connection {
  /** Accepts any number of jobs at once. Never throws. */
  submit(jobs: readonly Job[]): void
  /** Asks the backend to end an attempt, which may still be reported as completed or failed. */
  cancel(job: Job, reason: string): void
  /**
   * The outcomes of these jobs are recorded, on disk if the session has a checkpoint, so a remote
   * backend may forget the jobs. Includes attempts that failed and are retried. Called in batches,
   * at most once per job, in the order in which the jobs ended, and never after the backend's
   * `close()`; not called while the checkpoint cannot be written. Never throws. A backend that
   * keeps no ended jobs omits this method, and nothing is flushed on its behalf.
   */
  recorded?(jobs: readonly Job[]): void
  /**
   * Returns the output of a running program so far, shortened as in its last report. Includes only
   * streams that are captured in memory. `null` if the program is not running, or its node does not
   * answer. A backend without access to the output omits this method.
   */
  output?(job: Job): Promise<ProgramOutput | null>
  /** Cancels this client's jobs and waits until they have ended. The backend stays open. */
  release(reason: string): Promise<void>
}

/** The resources that a node offers to tasks. */
export interface NodeCapacity {
  readonly cores: number
  readonly gpus: number
  readonly memoryMb: number
  readonly labels?: Readonly<Record<string, string>>
  /** The version of tutti on the node. */
  readonly version?: string
  /** The maximum number of concurrent functions, and of programs, even if more cores are free. */
  readonly workers?: number
  readonly maxProcesses?: number
}

/** A node of a backend whose resource usage can be sampled. */
export interface SampledNode {
  readonly nodeId: string
  /** Reported in `tutti.NodeJoined`, which has 0 for unknown values. */
  readonly capacity?: NodeCapacity
  /**
   * If several backends have the same node, the backend with the highest number samples it; on a
   * tie, the first backend in the session's list does. Default 0.
   */
  readonly samplingPriority?: number
  /**
   * Creates a sampler that the caller polls and closes. If absent, the node is not polled: the
   * backend sends its samples as notices.
   */
  createSampler?(pollSeconds: number): ResourceSampler
}

/**
 * The port of everything that runs tasks. Test an implementation of your own with `backendContract`
 * of `tutti/testing`.
 */
export interface Backend extends AsyncDisposable {
  readonly name: string
  /** The model for AI tasks that name no `model`. */
  readonly model?: string
  /**
   * The current nodes, which are polled while a session with telemetry is connected. Nodes that
   * join or leave later are reported by notices.
   */
  readonly nodes?: readonly SampledNode[]
  /** Attributes for SessionStarted that say where tasks run, such as a batch system's job id. */
  readonly runFacts?: JsonObject
  /**
   * Why this backend will never run the task, or `null` if it accepts the task. Called before any
   * event is emitted; a task without `backend` goes to the first backend that does not refuse it.
   */
  refuse(spec: TaskSpec): Refusal | null
  /** `session` will submit the jobs. A session may connect to several backends. */
  connect(listener: BackendListener, session: ConnectedSession): Connection
  /**
   * Cancels and reports all jobs. Resolves when everything has ended. Idempotent: returns the same
   * promise each time.
   */
  close(): Promise<void>
}

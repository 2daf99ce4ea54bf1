/** The interface between a session and its backends. */

import type { EventClass } from '../events/event.ts'
import type { Measurement, MetricValues } from '../events/measurement.ts'
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

/** One attempt of a task, as plain data. A copy of the submitted object is a different job. */
export interface Job {
  readonly sessionId: string
  readonly uid: string
  /** Counted from 1. A resumed session continues the count of its earlier runs. */
  readonly attempt: number
  /** Whether this is a retry within this session. Retries precede new jobs of the same priority. */
  readonly isRetry?: boolean
  readonly spec: TaskSpec
}

/**
 * Details of an ended attempt. Unknown fields are absent. The output fields are for failed programs
 * only: a successful program has its output in its value.
 */
export interface AttemptFacts extends ProgramOutput, AnswerFacts {
  readonly workerId?: string
  readonly cpuSeconds?: number
  readonly peakMemoryBytes?: number
  readonly signal?: string
  /** The end of the output, for the task's last event. */
  readonly stdoutTail?: string
  readonly stderrTail?: string
  /** The absolute paths of the files to which the output was redirected. */
  readonly stdoutPath?: string
  readonly stderrPath?: string
}

/** The files that receive the output of a program. */
export type OutputFiles = Pick<AttemptFacts, 'stdoutPath' | 'stderrPath'>

/**
 * The number that a backend which outlives sessions gives to an attempt. It counts the attempts of
 * earlier runs too.
 */
export interface ContinuedAttempt {
  /** Ignored unless it is higher than the job's `attempt`. */
  readonly number: number
  /** The number of attempts since the job's `attempt` that do not count against `retries`. */
  readonly uncounted: number
}

/**
 * A report about an attempt. `at` is when the change happened; absent if it happens now. `fail`
 * carries the original error. A canceled task ends CANCELED, whatever is reported.
 */
export type TaskReport = { readonly at?: Moment; readonly continued?: ContinuedAttempt } & (
  | {
      readonly kind: 'start'
      readonly workerId: string
      /** The node that runs the program; for several ranks, the node of the first rank. */
      readonly nodeId: string
      /** All nodes of an MPI program and its number of ranks. Absent for other tasks. */
      readonly nodes?: readonly string[]
      readonly ranks?: number
      readonly facts?: Pick<AttemptFacts, 'stdoutPath' | 'stderrPath'>
    }
  | { readonly kind: 'complete'; readonly value: unknown; readonly facts?: AttemptFacts }
  | {
      readonly kind: 'fail'
      readonly error: unknown
      /** `true` if the task's code threw the error, so no worker was lost. */
      readonly isThrown?: true
      /** `true` if another attempt would fail too. The task then ends. */
      readonly isFinal?: true
      readonly facts?: AttemptFacts
    }
  | { readonly kind: 'cancel'; readonly reason: string; readonly facts?: AttemptFacts }
)

/** An event about the backend or its work, created by `toEventNotice`. */
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
 * Creates a notice that the session emits as an event, with secrets masked. `eventClass` must be a
 * `tutti.*` class or made by `defineEvent`.
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

/** A node joined or left the backend, or it sent a resource sample without being asked. */
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
  /** The result of a task arrived after the task's last report and was dropped. */
  | { readonly kind: 'late-result' }
  | { readonly kind: 'span'; readonly span: WorkSpan }
  | { readonly kind: 'measurement'; readonly measurement: Measurement }

/**
 * How a backend reports to its session. Never throws. Reports about ended attempts are ignored and
 * counted. Malformed reports are ignored with a warning.
 */
export interface BackendListener {
  /** Reports that an attempt has started or ended. */
  report(job: Job, report: TaskReport): void
  /** Reports anything else: an event, a span, a measurement, or a node that joined or left. */
  notice(notice: Notice): void
}

/** What a resumed record says about the nodes of a backend. */
export interface EarlierRun {
  /** The nodes with an `agentStart` that joined and have not left, over all files of the record. */
  readonly nodes: readonly { readonly nodeId: string; readonly start: number }[]
}

/** The session behind a connection. It holds the closures, which cannot leave its process. */
export interface ConnectedSession {
  readonly id: string
  /**
   * Resolves when it is known whether the session resumes a record: after `resume()`, or when
   * telemetry has started, or at the first submission, or when the session closes. `null`: it
   * resumes none. Never rejects.
   */
  readonly begun?: Promise<EarlierRun | null>
  /** Returns a function that calls the job's closure; `null` if the job has none or is a copy. */
  closureOf(job: Job): (() => unknown) | null
  /**
   * Resolves when everything that was emitted so far is in the record, without a record as soon as
   * that is known. Never rejects: if the record cannot be written, it resolves after the failed
   * attempt, because a full disk must not stop the run.
   */
  flushed?(): Promise<void>
  /** Returns the metrics of the session's tasks and nodes; `null` without telemetry. */
  metrics?(): Promise<MetricValues | null>
}

/** The reason why a backend cannot run a task. `field` is a path relative to the task. */
export interface Refusal {
  readonly field: string
  readonly message: string
  readonly code?: string
}

/** One client's connection. Each job gets at most one `start` and exactly one last report. */
export interface Connection {
  /** Accepts any number of jobs at once. Never throws. */
  submit(jobs: readonly Job[]): void
  /** Asks the backend to end an attempt, which may still be reported as completed or failed. */
  cancel(job: Job, reason: string): void
  /**
   * Called in batches when the outcomes of these jobs are recorded; with a checkpoint, when they
   * are on disk. Each job is passed at most once, in the order in which the jobs ended, and never
   * after `close()`. Must not throw. Optional, for a backend that keeps ended jobs.
   */
  recorded?(jobs: readonly Job[]): void
  /**
   * Returns the output of a running program so far, shortened as in its last report; `null` if it
   * is not running or its node does not answer. Optional.
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
  /** The maximum numbers of concurrent functions (`workers`) and programs (`maxProcesses`). */
  readonly workers?: number
  readonly maxProcesses?: number
}

/** A node whose resource usage the backend can sample. */
export interface SampledNode {
  readonly nodeId: string
  /** Part of the event `tutti.NodeJoined`, in which unknown values are 0. */
  readonly capacity?: NodeCapacity
  /**
   * If several backends share the node, the backend with the highest number samples it. If the
   * numbers are equal, the first backend in the session's list does. Default 0.
   */
  readonly samplingPriority?: number
  /**
   * For a node whose agent outlives the session: the number of this start of the agent. Recorded
   * with `tutti.NodeJoined`, so that a resumed session knows which agents may hold its tasks.
   */
  readonly agentStart?: number
  /**
   * Creates a sampler for the caller. Without this method, the backend sends the node's samples as
   * notices.
   */
  createSampler?(pollSeconds: number): ResourceSampler
}

/** Runs tasks. Test your own implementation with `backendContract` of `tutti/testing`. */
export interface Backend extends AsyncDisposable {
  readonly name: string
  /** The model for AI tasks that name no `model`. */
  readonly model?: string
  /** The current nodes, which telemetry polls. Notices report nodes that join or leave later. */
  readonly nodes?: readonly SampledNode[]
  /** Attributes of SessionStarted that say where tasks run, such as a job id. */
  readonly runFacts?: JsonObject
  /**
   * Whether the results of tasks are stored with a record unless the program sets `keepResults`.
   * Useful if the backend's nodes outlive the session, which resumes the record. Default `false`.
   */
  readonly keepsResults?: boolean
  /**
   * Returns why this backend will never run the task, or `null`. Called before any event is
   * emitted. A task without `backend` goes to the first backend that does not refuse it.
   */
  refuse(spec: TaskSpec): Refusal | null
  /** Connects the session that will submit jobs. A session may connect to several backends. */
  connect(listener: BackendListener, session: ConnectedSession): Connection
  /** Cancels and reports all jobs. Resolves when all have ended. Repeated calls are allowed. */
  close(): Promise<void>
}

/** The port between a session and its backends. */

import type { Measurement } from '../events/measurement.ts'
import type { WorkSpan } from '../events/sink.ts'
import type { AITask } from '../tasks/ai-task.ts'
import type { ComputeTask } from '../tasks/compute-task.ts'
import type { Moment } from '../tasks/lifecycle.ts'
import type { TaskSpec } from '../tasks/spec.ts'
import type { ResourceSampler } from './sampling/sampler.ts'

/** A task of any kind, whatever it returns. */
export type AnyTask = ComputeTask<unknown> | AITask<string | readonly string[]>

/**
 * One attempt at a task, as plain data: a copy can be submitted like the original. Reports and
 * cancels name the object that was submitted; a copy of it is another job.
 */
export interface Job {
  readonly sessionId: string
  readonly uid: string
  /** 1 for the first. */
  readonly attempt: number
  readonly spec: TaskSpec
}

/** What is known about an attempt beyond its end; absent when unknown. */
export interface AttemptFacts {
  readonly workerId?: string
  readonly cpuSeconds?: number
  readonly peakMemoryBytes?: number
  readonly exitCode?: number
  readonly signal?: string
  readonly stdoutTail?: string
  readonly stderrTail?: string
}

/**
 * What a backend tells of an attempt. `at` is when it happened, if that was earlier than now.
 * `fail` carries the original error; a lost worker is a `WorkerLostError`, a time-out a
 * `TimeoutError`.
 */
export type TaskReport =
  | {
      readonly kind: 'start'
      readonly at?: Moment
      readonly workerId: string
      readonly nodeId: string
    }
  | {
      readonly kind: 'complete'
      readonly at?: Moment
      readonly value: unknown
      readonly facts?: AttemptFacts
    }
  | {
      readonly kind: 'fail'
      readonly at?: Moment
      readonly error: unknown
      readonly facts?: AttemptFacts
    }
  | {
      readonly kind: 'cancel'
      readonly at?: Moment
      readonly reason: string
      readonly facts?: AttemptFacts
    }

/**
 * Something about the backend itself or about its work: told as an event of the library's own, or
 * recorded as a span or a measurement.
 */
export type Notice =
  | {
      readonly kind: 'worker-lost'
      readonly workerId: string
      readonly nodeId: string
      readonly reason: string
      /** The tasks that were running there. */
      readonly tasks: readonly string[]
    }
  | { readonly kind: 'throttled'; readonly reason: string; readonly limit: number }
  | { readonly kind: 'engine-lost'; readonly workerId: string; readonly reason: string }
  /** Requests that an inference engine worked on together. */
  | {
      readonly kind: 'batch'
      readonly workerId: string
      readonly size: number
      /** How long the oldest of them had waited. */
      readonly waitSeconds: number
      readonly durationSeconds: number
      readonly error: string | null
    }
  | { readonly kind: 'span'; readonly span: WorkSpan }
  | { readonly kind: 'measurement'; readonly measurement: Measurement }

/**
 * The only way back. Neither call throws; reports of an attempt that is over are ignored and
 * counted.
 */
export interface BackendListener {
  report(job: Job, report: TaskReport): void
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
   * Asks for the end of an attempt. The report may still tell that it completed or failed first.
   */
  cancel(job: Job, reason: string): void
  /**
   * The ends of these jobs are recorded, and with a checkpoint they are on disk: a remote backend
   * may forget them now. An attempt that failed and is retried counts as well. Called in batches,
   * at most once for a job, and not for all: jobs that end while the connection is released may
   * never be named. Never throws. A backend that keeps no ends leaves it out: nothing is flushed
   * for it.
   */
  recorded?(jobs: readonly Job[]): void
  /** Cancels what this client still has there and waits for its end. The backend stays. */
  release(reason: string): Promise<void>
}

/** A node whose use of resources can be polled. */
export interface SampledNode {
  readonly nodeId: string
  /** A sampler of the caller's own, who closes it. */
  createSampler(pollSeconds: number): ResourceSampler
}

/**
 * The port of everything that runs tasks; `backendContract` of `tutti/testing` tests an own one.
 */
export interface Backend extends AsyncDisposable {
  readonly name: string
  /** The model that runs an AI task without `model`. */
  readonly model?: string
  /** What it can tell of its nodes; polled while a session with telemetry has it. */
  readonly nodes?: readonly SampledNode[]
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

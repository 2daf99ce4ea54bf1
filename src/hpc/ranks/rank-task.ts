/**
 * One attempt of an MPI program: reserves the slots of all ranks together, and has the scheduler
 * start one step that connects them. If a rank fails, all are stopped.
 */

import type { Job, TaskReport } from '../../backends/backend.ts'
import type { ClusterConnection } from '../../cluster/driver/cluster-connection.ts'
import type { ResultReport } from '../../cluster/wire/results.ts'
import type { Clock } from '../../foundation/clock.ts'
import { BackendError, TimeoutError, TuttiError } from '../../foundation/errors.ts'
import { definedFields } from '../../foundation/options.ts'
import type { Moment } from '../../tasks/lifecycle.ts'
import type { ProgramSpec } from '../../tasks/spec.ts'
import type { Allocation } from '../allocation.ts'
import type { RemoteProcess } from '../remote-process.ts'
import { parseTemporaryRefusal } from '../slurm/job-report.ts'
import {
  findFirstFailure,
  joinFacts,
  joinOutputs,
  type RankResult,
  toRankError,
} from './rank-results.ts'
import { RankJob, type RankOwner } from './rank-job.ts'
import type { RankWorkers } from './rank-turns.ts'
import { rankStartedLine, newRendezvous, toStepCommand } from './rank-scripts.ts'

export interface RankTaskParts {
  readonly job: Job
  readonly spec: ProgramSpec
  readonly startRanks: Allocation['startRanks']
  readonly connection: ClusterConnection
  readonly clock: Clock
  /** Shared by all sessions of the allocation. */
  readonly workers: RankWorkers
  /** The node where the previous attempt failed; `null` if none failed. */
  readonly avoidedNode: string | null
  readonly report: (report: TaskReport) => void
  /** Called once when the task no longer waits for slots. */
  readonly onStarted: () => void
  /** Called once, before the last report. `failedOn` is the node of the failed rank, if any. */
  readonly onEnd: (failedOn: string | null) => void
}

/** How long ranks may take to exit after their step failed, for example after `MPI_Abort`. */
const stepFailureGraceMs = 10_000

type StopReason =
  | { readonly kind: 'cancel'; readonly reason: string }
  | { readonly kind: 'fail'; readonly error: unknown }
  /** A rank failed or its node was lost. */
  | { readonly kind: 'rank' }

export class RankTask implements RankOwner {
  readonly job: Job
  readonly spec: ProgramSpec
  readonly #parts: RankTaskParts
  #ranks: readonly RankJob[] = []
  #nodes: readonly string[] = []
  #results: RankResult[] = []
  #step: RemoteProcess | null = null
  #stepOutput = ''
  #stepCode: number | null = null
  #workerId: string | null = null
  #startedAt: Moment | null = null
  #stop: StopReason | null = null
  #cancelTimeout: () => void = () => {}
  #isOver = false
  readonly #over = Promise.withResolvers<void>()

  constructor(parts: RankTaskParts) {
    this.#parts = parts
    this.job = parts.job
    this.spec = parts.spec
  }

  /** Resolves after the last report of the task. */
  get ended(): Promise<void> {
    return this.#over.promise
  }

  start(): void {
    const { connection, avoidedNode, onStarted } = this.#parts
    if (this.#isOver) return onStarted()
    const { ranks, ranksPerNode = null } = this.spec.resources
    const rendezvous = newRendezvous()
    this.#ranks = Array.from({ length: ranks }, (_, rank) => new RankJob(this, rank, rendezvous))
    this.#results = []
    this.#nodes = []
    this.#stop = null
    this.#step = null
    this.#stepOutput = ''
    this.#stepCode = null
    connection.submitTogether(this.#ranks, {
      jobsPerNode: ranksPerNode,
      avoidedNode,
      onPlaced: (nodes) => this.#startStep(nodes, rendezvous),
    })
  }

  cancel(reason: string): void {
    if (this.#stop?.kind === 'cancel') return
    this.#stopRanks({ kind: 'cancel', reason })
    if (this.#ranks.length === 0) this.#report({ kind: 'cancel', reason }, null)
  }

  onReport({ rank }: RankJob, report: TaskReport): void {
    if (report.kind === 'start') return
    this.#results.push({ rank, node: this.#nodes[rank] ?? '', report })
    if (this.#stop === null && report.kind !== 'complete') this.#stopRanks(toStopReason(report))
    if (this.#results.length === this.#ranks.length) void this.#finish()
  }

  #startStep(nodes: readonly string[], rendezvous: string): void {
    this.#nodes = nodes
    const command = toStepCommand(rendezvous)
    const onOutput = (text: string): void => this.#readStepOutput(text)
    this.#step = this.#parts.startRanks({ nodes, command, onOutput })
    void this.#step.ended.then((how) => this.#onStepEnded(how))
    if (this.#stop !== null) this.#step.kill()
  }

  /** Reports the start of the task when the step's output shows that all ranks have started. */
  #readStepOutput(text: string): void {
    if (this.#startedAt !== null) return
    this.#stepOutput += text
    if (this.#stepOutput.split(`${rankStartedLine}\n`).length > this.#ranks.length)
      this.#reportStart(this.#now())
  }

  #reportStart(at: Moment): void {
    const { clock, report } = this.#parts
    const { timeoutSeconds } = this.spec
    this.#startedAt = at
    this.#parts.onStarted()
    const [nodeId = ''] = this.#nodes
    const nodes = [...new Set(this.#nodes)]
    const workerId = this.#parts.workers.assign(nodeId)
    this.#workerId = workerId
    report({ kind: 'start', at, workerId, nodeId, nodes, ranks: this.#ranks.length })
    if (timeoutSeconds === null) return
    this.#cancelTimeout = clock.after(timeoutSeconds * 1000, () => {
      const text = `${this.spec.executable} ran longer than ${timeoutSeconds} s and was stopped`
      this.#stopRanks({ kind: 'fail', error: new TimeoutError(text) })
    })
  }

  /** Stops the task if its step failed. If the step succeeded, all ranks have exited. */
  #onStepEnded(how: string): void {
    if (how === 'exit code 0' || this.#stop !== null) return
    const output = this.#step?.output ?? ''
    const text = `the step of ${this.spec.executable} ended with ${how}: ${output}`
    const refusal = parseTemporaryRefusal(output)
    const hint = refusal === null ? {} : { hint: `${refusal}: give the task \`retries\`.` }
    const error = new BackendError(text.trim(), { code: 'RankStepError', ...hint })
    this.#stepCode = Number(/^exit code (\d+)$/.exec(how)?.[1] ?? NaN)
    this.#cancelTimeout()
    // Waits for the exit of the rank that aborted, because the error names this rank and its exit
    // code.
    this.#cancelTimeout = this.#parts.clock.after(stepFailureGraceMs, () => {
      this.#stopRanks({ kind: 'fail', error })
    })
  }

  #stopRanks(stop: StopReason): void {
    const { connection } = this.#parts
    this.#stop = stop
    this.#cancelTimeout()
    const reason = stop.kind === 'cancel' ? stop.reason : 'another rank of it has failed'
    for (const one of this.#ranks) connection.cancel(one, reason)
    this.#step?.kill()
  }

  async #finish(): Promise<void> {
    this.#cancelTimeout()
    await this.#step?.close()
    const results = this.#results.toSorted((a, b) => a.rank - b.rank)
    const failure = findFirstFailure(results, this.#stepCode)
    // After a node loss, a task that has not started moves to other nodes without a new attempt.
    if (this.#startedAt === null && this.#stop?.kind === 'rank' && isNodeLoss(failure))
      return this.start()
    const hasStarted = this.#startedAt !== null
    // If the ranks exit before the step's output arrives, the first exit counts as the start.
    const times = results
      .filter(({ report }) => report.kind === 'complete')
      .map(({ report }) => report.at)
    if (!hasStarted && times.length > 0) this.#reportStart(findEarliest(times) ?? this.#now())
    if (this.#startedAt === null) this.#parts.onStarted()
    const report = this.#toReport(results, failure, hasStarted)
    this.#report(report, report.kind === 'fail' ? (failure?.node ?? null) : null)
  }

  #report(report: ResultReport, failedOn: string | null): void {
    this.#isOver = true
    if (this.#workerId !== null) this.#parts.workers.release(this.#workerId)
    this.#parts.onEnd(failedOn)
    this.#parts.report(report)
    this.#over.resolve()
  }

  #toReport(
    results: readonly RankResult[],
    failure: RankResult | null,
    hasStarted: boolean,
  ): ResultReport {
    const { job, spec } = this
    const at = this.#now()
    const workerId = this.#workerId === null ? {} : { workerId: this.#workerId }
    const facts = { ...joinFacts(results, spec), ...workerId }
    const output = joinOutputs(results)
    const stop = this.#stop
    if (stop === null) {
      const value = { ...output, exitCode: 0 }
      return { kind: 'complete', at, value, facts: { ...facts, exitCode: 0 } }
    }
    if (stop.kind === 'cancel') {
      return { kind: 'cancel', at, reason: stop.reason, facts: { ...facts, ...output } }
    }
    const isTimeout = stop.kind === 'fail' && stop.error instanceof TimeoutError
    const taskFacts = { uid: job.uid, program: spec.executable, hasStarted }
    const isRankFailure = failure !== null && !isTimeout
    const error = isRankFailure
      ? toRankError(failure, taskFacts)
      : stop.kind === 'fail'
        ? stop.error
        : null
    const rankFacts = isRankFailure ? failure.report.facts : undefined
    const { exitCode, signal, stdoutTail, stderrTail } = rankFacts ?? {}
    return {
      kind: 'fail',
      at,
      error,
      ...(failure?.report.kind === 'fail' && failure.report.isFinal ? { isFinal: true } : {}),
      facts: {
        ...facts,
        ...output,
        ...definedFields({ exitCode, signal, stdoutTail, stderrTail }),
      },
    }
  }

  #now(): Moment {
    const { clock } = this.#parts
    return { monotonicMs: clock.monotonicMs(), wallSeconds: clock.now() }
  }
}

function findEarliest(times: readonly (Moment | undefined)[]): Moment | undefined {
  const known = times.filter((at) => at !== undefined)
  return known.toSorted((a, b) => a.monotonicMs - b.monotonicMs)[0]
}

const toStopReason = (report: ResultReport): StopReason =>
  report.kind === 'cancel' ? { kind: 'cancel', reason: report.reason } : { kind: 'rank' }

const isNodeLoss = (failure: RankResult | null): boolean =>
  failure?.report.kind === 'fail' &&
  TuttiError.isInstance(failure.report.error) &&
  failure.report.error.code === 'NodeLostError'

/**
 * One attempt of an MPI program. Reserves the slots of all ranks together, lets agents run them,
 * and has the scheduler start one step that connects them. If a rank fails, all are stopped.
 */

import type { Job, TaskReport } from '../../backends/backend.ts'
import type { ClusterConnection } from '../../cluster/driver/cluster-connection.ts'
import type { Clock } from '../../foundation/clock.ts'
import { BackendError, TimeoutError, TuttiError } from '../../foundation/errors.ts'
import { definedFields } from '../../foundation/options.ts'
import type { Moment } from '../../tasks/lifecycle.ts'
import type { ProgramSpec } from '../../tasks/spec.ts'
import type { Allocation } from '../allocation.ts'
import type { RemoteProcess } from '../remote-process.ts'
import { passingRefusal } from '../slurm/job-report.ts'
import {
  type EndReport,
  firstFailure,
  joinFacts,
  joinOutputs,
  type RankEnd,
  toRankError,
} from './rank-ends.ts'
import { RankJob, type RankOwner } from './rank-job.ts'
import type { RankWorkers } from './rank-turns.ts'
import { begunLine, newRendezvous, toStepCommand } from './rank-scripts.ts'

export interface RankTaskParts {
  readonly job: Job
  readonly spec: ProgramSpec
  readonly allocation: Pick<Allocation, 'startRanks'>
  readonly connection: ClusterConnection
  readonly clock: Clock
  /** Shared by all sessions of the allocation. */
  readonly workers: RankWorkers
  /** The node where an earlier attempt failed. */
  readonly avoid: string | null
  readonly report: (report: TaskReport) => void
  /** Called once, when the task no longer waits for slots. */
  readonly onBegun: () => void
  /** Called once before the last report, with the node where the task failed, if it did. */
  readonly onEnd: (failedOn: string | null) => void
}

/** How long ranks may take to exit after their step failed, for example by `MPI_Abort`. */
const afterStepMs = 10_000

/** Why the ranks are stopped before they exit by themselves. */
type Stop =
  | { readonly kind: 'cancel'; readonly reason: string }
  | { readonly kind: 'fail'; readonly error: unknown }
  /** A rank failed, or its node was lost. */
  | { readonly kind: 'rank' }

export class RankTask implements RankOwner {
  readonly job: Job
  readonly spec: ProgramSpec
  readonly #parts: RankTaskParts
  #ranks: readonly RankJob[] = []
  #nodes: readonly string[] = []
  #ends: RankEnd[] = []
  #step: RemoteProcess | null = null
  #stepText = ''
  /** The exit code of a step that exited before the ranks did. */
  #stepCode: number | null = null
  #workerId: string | null = null
  #begun: Moment | null = null
  #stop: Stop | null = null
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

  /** Reserves slots for all ranks, and starts them when they are available. */
  start(): void {
    const { connection, avoid, onBegun } = this.#parts
    if (this.#isOver) return onBegun()
    const { ranks, ranksPerNode = null } = this.spec.resources
    const meetingPoint = newRendezvous()
    this.#ranks = Array.from({ length: ranks }, (_, rank) => new RankJob(this, rank, meetingPoint))
    this.#ends = []
    this.#nodes = []
    this.#stop = null
    this.#step = null
    this.#stepText = ''
    this.#stepCode = null
    connection.submitTogether(this.#ranks, {
      perNode: ranksPerNode,
      avoid,
      onPlaced: (nodes) => this.#startStep(nodes, meetingPoint),
    })
  }

  cancel(reason: string): void {
    if (this.#stop?.kind === 'cancel') return
    this.#end({ kind: 'cancel', reason })
    if (this.#ranks.length === 0) this.#report({ kind: 'cancel', reason }, null)
  }

  take({ rank }: RankJob, report: TaskReport): void {
    if (report.kind === 'start') return
    this.#ends.push({ rank, node: this.#nodes[rank] ?? '', report })
    if (this.#stop === null && report.kind !== 'complete') this.#end(toStop(report))
    if (this.#ends.length === this.#ranks.length) void this.#finish()
  }

  #startStep(nodes: readonly string[], meetingPoint: string): void {
    this.#nodes = nodes
    const command = toStepCommand(meetingPoint)
    const onOutput = (text: string): void => this.#readStep(text)
    this.#step = this.#parts.allocation.startRanks({ nodes, command, onOutput })
    void this.#step.ended.then((how) => this.#stepEnded(how))
    if (this.#stop !== null) this.#step.kill()
  }

  /** Counts the ranks that have begun in the step's output. */
  #readStep(text: string): void {
    if (this.#begun !== null) return
    this.#stepText += text
    if (this.#stepText.split(`${begunLine}\n`).length > this.#ranks.length) this.#begin(this.#now())
  }

  #begin(at: Moment): void {
    const { clock, report } = this.#parts
    const { timeoutSeconds } = this.spec
    this.#begun = at
    this.#parts.onBegun()
    const [nodeId = ''] = this.#nodes
    const nodes = [...new Set(this.#nodes)]
    const workerId = this.#parts.workers.take(nodeId)
    this.#workerId = workerId
    report({ kind: 'start', at, workerId, nodeId, nodes, ranks: this.#ranks.length })
    if (timeoutSeconds === null) return
    this.#cancelTimeout = clock.after(timeoutSeconds * 1000, () => {
      const text = `${this.spec.executable} ran longer than ${timeoutSeconds} s and was stopped`
      this.#end({ kind: 'fail', error: new TimeoutError(text) })
    })
  }

  /** Ignores success, because the step then exits as a result of its ranks. */
  #stepEnded(how: string): void {
    if (how === 'exit code 0' || this.#stop !== null) return
    const output = this.#step?.output ?? ''
    const text = `the step of ${this.spec.executable} ended with ${how}: ${output}`
    const refusal = passingRefusal(output)
    const hint = refusal === null ? {} : { hint: `${refusal}: give the task \`retries\`.` }
    const error = new BackendError(text.trim(), { code: 'RankStepError', ...hint })
    this.#stepCode = Number(/^exit code (\d+)$/.exec(how)?.[1] ?? NaN)
    this.#cancelTimeout()
    // Waits for the rank that aborted, which reports its exit code and is named in the error.
    this.#cancelTimeout = this.#parts.clock.after(afterStepMs, () => {
      this.#end({ kind: 'fail', error })
    })
  }

  #end(stop: Stop): void {
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
    const ends = this.#ends.toSorted((a, b) => a.rank - b.rank)
    const failure = firstFailure(ends, this.#stepCode)
    // A task that has not begun is placed on other nodes, without counting an attempt.
    if (this.#begun === null && this.#stop?.kind === 'rank' && isLoss(failure)) return this.start()
    const hasBegun = this.#begun !== null
    // The ranks exited before the step's output about them arrived.
    const times = ends.filter((end) => end.report.kind === 'complete').map((end) => end.report.at)
    if (!hasBegun && times.length > 0) this.#begin(earliestOf(times) ?? this.#now())
    if (this.#begun === null) this.#parts.onBegun()
    const report = this.#toReport(ends, failure, hasBegun)
    this.#report(report, report.kind === 'fail' ? (failure?.node ?? null) : null)
  }

  #report(report: EndReport, failedOn: string | null): void {
    this.#isOver = true
    if (this.#workerId !== null) this.#parts.workers.release(this.#workerId)
    this.#parts.onEnd(failedOn)
    this.#parts.report(report)
    this.#over.resolve()
  }

  #toReport(ends: readonly RankEnd[], failure: RankEnd | null, hasBegun: boolean): EndReport {
    const { job, spec } = this
    const at = this.#now()
    const workerId = this.#workerId === null ? {} : { workerId: this.#workerId }
    const facts = { ...joinFacts(ends, spec), ...workerId }
    const output = joinOutputs(ends)
    const stop = this.#stop
    if (stop === null) {
      const value = { ...output, exitCode: 0 }
      return { kind: 'complete', at, value, facts: { ...facts, exitCode: 0 } }
    }
    if (stop.kind === 'cancel') {
      return { kind: 'cancel', at, reason: stop.reason, facts: { ...facts, ...output } }
    }
    const isTimeout = stop.kind === 'fail' && stop.error instanceof TimeoutError
    const about = { uid: job.uid, program: spec.executable, hasBegun }
    const isRank = failure !== null && !isTimeout
    const error = isRank ? toRankError(failure, about) : stop.kind === 'fail' ? stop.error : null
    const own = isRank ? failure.report.facts : undefined
    const { exitCode, signal, stdoutTail, stderrTail } = own ?? {}
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

function earliestOf(times: readonly (Moment | undefined)[]): Moment | undefined {
  const known = times.filter((at) => at !== undefined)
  return known.toSorted((a, b) => a.monotonicMs - b.monotonicMs)[0]
}

const toStop = (report: EndReport): Stop =>
  report.kind === 'cancel' ? { kind: 'cancel', reason: report.reason } : { kind: 'rank' }

const isLoss = (failure: RankEnd | null): boolean =>
  failure?.report.kind === 'fail' &&
  TuttiError.isInstance(failure.report.error) &&
  failure.report.error.code === 'NodeLostError'

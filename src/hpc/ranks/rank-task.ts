/**
 * One attempt of an MPI program: reserves the slots of all ranks together, and has the scheduler
 * start one step that connects them. If a rank fails, all are stopped. The result of the task is
 * derived from the results of its ranks.
 */

import { resolve } from 'node:path'
import type { AttemptFacts, Job, TaskReport } from '../../backends/backend.ts'
import type { CapturedOutput } from '../../backends/local/programs/protocol.ts'
import type { ClusterConnection } from '../../cluster/io/driver/cluster-connection.ts'
import type { ResultReport } from '../../cluster/wire/results.ts'
import { type Clock, readMoment } from '../../foundation/clock.ts'
import { BackendError, TimeoutError, TuttiError } from '../../foundation/errors.ts'
import { definedFields } from '../../foundation/options.ts'
import { ExecutableFailedError, ExecutableNotFoundError } from '../../foundation/task-errors.ts'
import { ExecutableNotPermittedError } from '../../foundation/task-errors.ts'
import type { Moment } from '../../tasks/lifecycle.ts'
import type { ProgramSpec } from '../../tasks/spec.ts'
import type { Allocation } from '../allocation.ts'
import type { RemoteProcess } from '../remote-process.ts'
import { parseTemporaryRefusal } from '../slurm/slurm-output.ts'
import { RankJob, type RankOwner } from './rank-job.ts'
import type { RankWorkers } from './rank-turns.ts'
import { rankStartedLine, newRendezvous, toStepCommand } from './rank-job.ts'

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
    // Gives the rank that aborted time to exit. The error of its exit is better than this one: it
    // names the rank and its exit code.
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
    return readMoment(this.#parts.clock)
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

interface RankResult {
  readonly rank: number
  readonly node: string
  readonly report: ResultReport
}

function joinOutputs(results: readonly RankResult[]): CapturedOutput {
  const parts = results.map(({ report }) => toOutput(report))
  return {
    stdout: parts.map(({ stdout }) => stdout).join(''),
    stderr: parts.map(({ stderr }) => stderr).join(''),
    ...(parts.some(({ stdoutTruncated }) => stdoutTruncated) ? { stdoutTruncated: true } : {}),
    ...(parts.some(({ stderrTruncated }) => stderrTruncated) ? { stderrTruncated: true } : {}),
  }
}

function toOutput(report: ResultReport): CapturedOutput {
  if (report.kind === 'complete') return report.value as CapturedOutput
  const { stdout = '', stderr = '', stdoutTruncated, stderrTruncated } = report.facts ?? {}
  return { stdout, stderr, ...definedFields({ stdoutTruncated, stderrTruncated }) }
}

/** Adds up the resources of all ranks. File names keep `%r`, the placeholder for the rank. */
function joinFacts(results: readonly RankResult[], spec: ProgramSpec): AttemptFacts {
  const all = results.map(({ report }) => report.facts)
  const sum = (key: 'cpuSeconds' | 'peakMemoryBytes'): AttemptFacts => {
    const known = all.map((facts) => facts?.[key]).filter((one) => one !== undefined)
    return known.length === 0 ? {} : { [key]: known.reduce((total, one) => total + one, 0) }
  }
  const { captureStdio, workDir, cwd } = spec
  const toPath = (file: string): string => resolve(workDir ?? '.', cwd ?? '.', file)
  const { stdout, stderr } = captureStdio ?? {}
  return {
    ...sum('cpuSeconds'),
    ...sum('peakMemoryBytes'),
    ...(stdout === undefined ? {} : { stdoutPath: toPath(stdout) }),
    ...(stderr === undefined ? {} : { stderrPath: toPath(stderr) }),
  }
}

/**
 * Returns the rank that failed first, because others may fail as a consequence. Prefers ranks that
 * exited with `stepCode`, the exit code of the step, because `MPI_Abort` sets it.
 */
function findFirstFailure(
  results: readonly RankResult[],
  stepCode: number | null,
): RankResult | null {
  const all = results.filter(({ report }) => report.kind === 'fail')
  const aborted = all.filter(({ report }) => report.facts?.exitCode === stepCode)
  const failed = aborted.length > 0 ? aborted : all
  const timeOf = ({ report }: RankResult): number => report.at?.monotonicMs ?? Infinity
  return failed.toSorted((a, b) => timeOf(a) - timeOf(b) || a.rank - b.rank)[0] ?? null
}

/** Converts the error of the first failed rank into the error of the task. */
function toRankError(
  { rank, node, report }: RankResult,
  { uid, program, hasStarted }: { uid: string; program: string; hasStarted: boolean },
): unknown {
  if (report.kind !== 'fail') return null
  const { error } = report
  if (!(error instanceof ExecutableFailedError)) return error
  const { exitCode, signal, stdout, stderr, stdoutTruncated, stderrTruncated } = error
  if (!hasStarted && exitCode === 127) {
    return new ExecutableNotFoundError(`${program} was not found on node ${node}`)
  }
  if (!hasStarted && exitCode === 126) {
    return new ExecutableNotPermittedError(`${program} may not be executed on node ${node}`)
  }
  const exitText = signal === null ? `exited with code ${exitCode}` : `was killed by ${signal}`
  return new ExecutableFailedError(`rank ${rank} of ${program} on node ${node} ${exitText}`, {
    uid,
    exitCode,
    signal,
    stdout,
    stderr,
    rank,
    ...(signal === null ? {} : { code: error.code }),
    ...definedFields({ stdoutTruncated, stderrTruncated }),
  })
}

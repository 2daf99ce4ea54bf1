/** What results of agents do to the jobs of the driver. */

import type { BackendListener } from '../../../backends/backend.ts'
import { fromErrorRecord, toErrorRecord } from '../../../foundation/error-record.ts'
import { BackendError, WorkerLostError } from '../../../foundation/errors.ts'
import { splitUids } from '../../wire/columns.ts'
import { unpackCompletions, type WireCompletions } from '../../wire/completions.ts'
import {
  agentClosedReason,
  type AgentReport,
  type HeldJob,
  type ReportedEvents,
  type ResultsMessage,
} from '../../wire/messages.ts'
import type { ResultReport } from '../../wire/results.ts'
import type { ReceivedMessage } from './agent-results.ts'
import type { DriverInstruction, StoredParts } from './driver-interface.ts'
import type { DriverJobs } from './driver-jobs.ts'
import { toEndMoment } from './job-times.ts'
import type { DriverJob, RemoteAgent } from './remote-agent.ts'
import { type FoundResult, ReturnedRun } from './returned-run.ts'

export interface ReceivedResultsOptions {
  readonly jobs: DriverJobs
  readonly listener: BackendListener
  readonly instruct: (instruction: DriverInstruction) => void
}

export class ReceivedResults {
  readonly returned: ReturnedRun
  readonly #jobs: DriverJobs
  readonly #instruct: (instruction: DriverInstruction) => void
  /** Results whose parts the store has lost. Their agents were asked to store them again. */
  #restoring: StoredParts[] = []

  constructor({ jobs, listener, instruct }: ReceivedResultsOptions) {
    this.#jobs = jobs
    this.#instruct = instruct
    const reportResult = (one: DriverJob, end: FoundResult): void => {
      const { agent = null, message = null } = end.source ?? {}
      this.#report({ one, end, agent, message })
    }
    this.returned = new ReturnedRun({ jobs, listener, reportResult })
  }

  /** Handles starts and events. Keeps events of tasks that were not submitted again yet. */
  addReport(agent: RemoteAgent, report: Pick<AgentReport, 'starts' | 'events'>): void {
    const jobs = this.#jobs
    const now = jobs.readTime()
    for (const { index, uid, attempt, driverStart, atMs, workerId, ...known } of report.starts) {
      const one = jobs.find(index, uid, attempt, driverStart ?? jobs.driverStart)
      if (one?.agent === agent)
        jobs.reportStart(one, agent, { beganMs: atMs, workerId, ...known }, now)
    }
    for (const event of report.events) {
      const { taskId } = event
      const isKept = taskId !== null && (!agent.hasReportedEarlier || this.returned.has(taskId))
      if (isKept && jobs.findByUid(taskId)?.agent !== agent) {
        this.returned.addEvent(taskId, { source: agent, event })
      } else jobs.reportEvent(agent, event, now)
    }
  }

  /** Adds a message that came over the agent's link or, for a lost agent, from the stream. */
  addMessage(agent: RemoteAgent, payload: ResultsMessage, size: number): void {
    const { completions, ends, driverStart, reports = [] } = payload
    const count = completions.indexes.length + ends.length
    const message = agent.results.add(payload.number, count, size)
    if (message === null) return
    for (const report of reports) this.addReport(agent, report)
    this.#jobs.placement.setAhead(agent.name, payload.ahead)
    if (driverStart === this.#jobs.driverStart) this.#addCompletions(agent, completions, message)
    else this.#addEnds(agent, toEnds(completions, driverStart), message)
    this.#addEnds(
      agent,
      ends.map((end) => ({ driverStart, ...end })),
      message,
    )
  }

  /**
   * Adds what the stream has of a lost agent. Events that the agent stored when it left are older
   * than results before them.
   */
  addStoredOf(agent: RemoteAgent, messages: readonly ResultsMessage[]): void {
    const { arrived } = agent.results
    const own = messages.filter(({ use, number }) => use === agent.use && number > arrived)
    for (const { reports = [] } of own) for (const one of reports) this.addReport(agent, one)
    for (const one of own) this.addMessage(agent, { ...one, reports: [] }, 0)
  }

  /** Adds results of earlier starts that the stream has. */
  addStored({ agent, completions, ends, driverStart, reports = [] }: ResultsMessage): void {
    if (driverStart === this.#jobs.driverStart) return
    for (const event of reports.flatMap(({ events }: ReportedEvents) => events)) {
      const source = { name: agent, offset: null }
      if (event.taskId !== null) this.returned.addEvent(event.taskId, { source, event })
    }
    for (const end of toEnds(completions, driverStart)) this.returned.addResult(end)
    for (const end of ends) this.returned.addResult({ driverStart, ...end })
  }

  #addCompletions(
    agent: RemoteAgent,
    completions: WireCompletions,
    message: ReceivedMessage,
  ): void {
    const jobs = this.#jobs
    const { driverStart } = jobs
    const { indexes, attempts, times, workers, values } = completions
    const uids = splitUids(completions.uids, indexes.length)
    const facts = completions.workerIds.map((workerId) => Object.freeze({ workerId }))
    const now = jobs.readTime()
    for (let row = 0; row < uids.length; row++) {
      const uid = uids[row] ?? ''
      const attempt = attempts?.[row] ?? 1
      const one = jobs.find(indexes[row] ?? -1, uid, attempt, driverStart)
      const worker = facts[workers?.[row] ?? 0]
      if (one?.agent !== agent || worker === undefined) {
        jobs.drop(agent.name, uid, attempt, message)
        continue
      }
      const { workerId } = worker
      const beganMs = times[row * 2] ?? 0
      const atMs = times[row * 2 + 1] ?? 0
      jobs.reportStart(one, agent, { beganMs, atMs, workerId }, now)
      const at = toEndMoment(one, agent, atMs, now)
      jobs.end(one, { kind: 'complete', at, value: values?.[row], facts: worker }, message)
    }
  }

  #addEnds(agent: RemoteAgent, ends: readonly FoundResult[], message: ReceivedMessage): void {
    const jobs = this.#jobs
    for (const end of ends) {
      const { index, uid, attempt, driverStart } = end
      const one = jobs.find(index, uid, attempt, driverStart)
      if (one?.agent === agent) {
        this.#report({ one, end, agent, message })
        continue
      }
      const isFound =
        driverStart !== jobs.driverStart &&
        (!agent.hasReportedEarlier || this.returned.isHeld(agent, end))
      if (!isFound) jobs.drop(agent.name, uid, attempt, message)
      else if (end.outcome.kind === 'stored') {
        // The agent keeps the value, because the store may lose it before it is read.
        this.returned.addResult({ ...end, source: { agent, message } })
      } else {
        // This process keeps it now, and the stream.
        message.left--
        this.returned.addResult(end)
      }
    }
  }

  #report(parts: StoredParts): void {
    const { one, end, agent, message } = parts
    if (end.outcome.kind === 'stored') {
      one.isEnding = true
      if (message !== null) agent?.results.beginReading(message)
      return this.#instruct({ kind: 'read parts', parts })
    }
    const jobs = this.#jobs
    const { beganMs, atMs, workerId, outcome } = end
    const now = jobs.readTime()
    if (beganMs !== null && workerId !== null) {
      jobs.reportStart(one, agent, { beganMs, workerId, atMs }, now)
    }
    const facts = end.facts === null ? {} : { facts: end.facts }
    const at = toEndMoment(one, agent, atMs, now)
    if (outcome.kind === 'complete') {
      jobs.end(one, { kind: 'complete', at, value: outcome.value, ...facts }, message)
    } else if (outcome.kind === 'fail') {
      const error = fromErrorRecord(outcome.error)
      const thrown = outcome.isThrown ? ({ isThrown: true } as const) : {}
      jobs.end(one, { kind: 'fail', at, error, ...thrown, ...facts }, message)
    } else if (outcome.kind === 'cancel') {
      const { cancelReason } = one
      if (cancelReason === null) this.#abandon(one, agent, outcome.reason, message)
      else jobs.end(one, { kind: 'cancel', at, reason: cancelReason, ...facts }, message)
    }
  }

  /** Handles an attempt that the agent canceled, because it closed or had lost the driver. */
  #abandon(
    one: DriverJob,
    agent: RemoteAgent | null,
    reason: string,
    message: ReceivedMessage | null,
  ): void {
    if (one.isStarted) {
      if (reason === agentClosedReason) agent?.abandoned.push(one.uid)
      return this.#jobs.end(one, toLostReport(one, agent?.name ?? '', reason), message)
    }
    if (message !== null) message.left--
    this.#jobs.move([one])
  }

  /** Reads lost parts again, which their agents may have stored again. Called at intervals. */
  tick(): void {
    const restoring = this.#restoring
    if (restoring.length === 0) return
    this.#restoring = []
    for (const parts of restoring) this.#instruct({ kind: 'read parts', parts })
  }

  /** Reports a result whose stored parts were read, or lost. */
  handleParts(parts: StoredParts, isLost: boolean): void {
    const { one, end, agent, message } = parts
    if (message !== null) agent?.results.endReading(message)
    if (!this.#jobs.has(one)) {
      // In the meantime, the job was ended, for example because the session is closing.
      if (message !== null) message.left--
      return
    }
    if (isLost && agent !== null && message !== null && agent.state !== 'lost') {
      agent.results.beginReading(message)
      this.#restoring.push(parts)
      const restore = { kind: 'restore', number: message.number } as const
      return this.#instruct({ kind: 'send', agent, message: restore })
    }
    one.isEnding = false
    if (!isLost) return this.#report(parts)
    if (agent === null || end.source !== undefined) {
      if (message !== null) message.left--
      return this.returned.rerun(one, end.attempt)
    }
    const error = new BackendError(`the broker has lost the value of task ${one.uid}`, {
      code: 'ResultLostError',
    })
    const outcome = { kind: 'fail', error: toErrorRecord(error), isThrown: false } as const
    this.#report({ ...parts, end: { ...end, outcome } })
  }
}

const toEnds = (completions: WireCompletions, driverStart: number): readonly FoundResult[] =>
  unpackCompletions(completions).map(({ value, ...completion }) => {
    const outcome = { kind: 'complete', value } as const
    return { ...completion, driverStart, facts: null, outcome }
  })

export function toLostReport(one: DriverJob, agent: string, reason: string): ResultReport {
  if (one.cancelReason !== null) return { kind: 'cancel', reason: one.cancelReason }
  const text = one.isStarted
    ? `node ${agent} was lost while it ran task ${one.uid}: ${reason}`
    : `node ${agent} was lost, as others before it, and task ${one.uid} may have begun: ${reason}`
  return { kind: 'fail', error: new WorkerLostError(text, { code: 'NodeLostError' }) }
}

/** The failure of an attempt of an earlier start whose node was lost. */
export function toLostResult(held: HeldJob, agent: string, reason: string): FoundResult {
  const { uid, attempt, driverStart } = held
  const text = `node ${agent} was lost while it ran task ${uid}: ${reason}`
  const error = toErrorRecord(new WorkerLostError(text, { code: 'NodeLostError' }))
  const outcome = { kind: 'fail', error, isThrown: false } as const
  const unknown = { index: -1, beganMs: null, atMs: 0, workerId: null, facts: null }
  return { ...unknown, uid, attempt, driverStart, outcome }
}

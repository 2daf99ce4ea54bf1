/** Continues tasks where an earlier start of the driver left them. */

import { type BackendListener, toEventNotice } from '../../../backends/backend.ts'
import { TaskMoved } from '../../../events/library-events.ts'
import type { Moment } from '../../../tasks/lifecycle.ts'
import type { AgentReport, AgentStart, HeldJob, JobReference } from '../../wire/messages.ts'
import type { WireEnd } from '../../wire/messages.ts'
import type { AgentLink, DriverJob } from '../agent-link.ts'
import type { DriverJobs } from '../jobs/driver-jobs.ts'
import type { EarlierRun, EndSource } from './earlier-run.ts'
import type { ReceivedMessage } from '../recorded-messages.ts'

export interface ContinuedJobsOptions {
  readonly jobs: DriverJobs
  readonly earlier: EarlierRun
  /** Reports a result from an earlier start; `message` is set if its agent still has it. */
  readonly takeEnd: (one: DriverJob, end: WireEnd, message: ReceivedMessage | null) => void
  /** The agents in use, by name. */
  readonly agents: ReadonlyMap<string, AgentLink>
  readonly listener: BackendListener
  /** Called with attempts that a missing agent may have begun, and that get other numbers. */
  readonly onSkipped: (agent: AgentStart, moved: readonly JobReference[]) => void
}

interface SkippedAttempts {
  readonly agent: AgentStart
  readonly moved: JobReference[]
}

/** Matches jobs of this start with the results and attempts of an earlier start. */
export class ContinuedJobs {
  readonly #options: ContinuedJobsOptions
  #isBusy = false
  /** Tasks that may have begun on a node that is gone, by node. */
  readonly #moved = new Map<string, string[]>()
  /** Attempts whose numbers are skipped because of a missing agent, by the agent's epoch. */
  readonly #skipped = new Map<number, SkippedAttempts>()

  constructor(options: ContinuedJobsOptions) {
    this.#options = options
  }

  /** Whether waiting jobs are being matched. Nothing may be sent meanwhile. */
  get isBusy(): boolean {
    return this.#isBusy
  }

  /**
   * Matches jobs that were submitted before the data of an earlier start was read. While a result
   * is reported, the session may submit or cancel other jobs.
   */
  continueWaiting(): void {
    this.#compareAll()
    this.reportMoved()
  }

  #compareAll(): void {
    const { jobs, earlier } = this.#options
    if (earlier.isEmpty || this.#isBusy) return
    this.#isBusy = true
    for (const one of jobs.all) {
      if (one.isEnding || !earlier.has(one.uid) || !jobs.has(one)) continue
      const attempt = earlier.heldOf(one.uid)?.held.attempt ?? Infinity
      if (attempt < one.wireAttempt) earlier.giveUp(one.uid)
      if (one.agent !== null) this.#comparePlaced(one, one.agent)
      else {
        jobs.placement.remove(one)
        if (!this.#takeLeft(one)) jobs.placement.putBack([one])
      }
    }
    this.#isBusy = false
  }

  /** Called once after the data of an earlier start was read, for all jobs submitted before. */
  continueFirst(): void {
    const { jobs } = this.#options
    const before = jobs.all
    this.#compareAll()
    for (const one of before) {
      if (one.agent === null && !one.isEnding && jobs.has(one)) this.#skipUnknown(one)
    }
    this.reportMoved()
  }

  /** Reports starts and events. Keeps events of tasks that were not submitted again yet. */
  takeReport(agent: AgentLink, report: Pick<AgentReport, 'starts' | 'events'>, now: Moment): void {
    const { earlier, jobs } = this.#options
    for (const { index, uid, attempt, atMs, workerId, ...known } of report.starts) {
      const one = jobs.find(index, uid, attempt)
      const start = { beganMs: atMs, workerId, ...known }
      if (one?.agent === agent) jobs.reportStart(one, agent, start, now)
    }
    for (const event of report.events) {
      const { taskId } = event
      const isLeft = taskId !== null && (!agent.hasReportedEarlier || earlier.has(taskId))
      if (isLeft) earlier.addEvent(taskId, { source: agent, event })
      else jobs.reportEvent(agent, event, now)
    }
  }

  /** Reports earlier events of the task's code, after the start of the task. */
  #reportPending(one: DriverJob, agent: AgentLink | null, left: HeldJob & { atMs?: number }): void {
    const { jobs, earlier } = this.#options
    const pending = earlier.takeEvents(one.uid)
    if (pending.length === 0) return
    const { beganMs, workerId, atMs = beganMs } = left
    const now = jobs.readTime()
    if (beganMs !== null && workerId !== null && atMs !== null) {
      jobs.reportStart(one, agent, { beganMs, workerId, atMs }, now)
    }
    for (const { source, event } of pending) jobs.reportEvent(source, event, now)
  }

  /** Reports jobs that may have begun on nodes that are gone, and will begin again elsewhere. */
  reportMoved(): void {
    // Moved jobs are reported together after matching.
    if (this.#isBusy) return
    for (const [nodeId, tasks] of this.#moved) {
      const fields = { count: tasks.length, tasks }
      this.#options.listener.notice(toEventNotice(TaskMoved, fields, { nodeId }))
    }
    this.#moved.clear()
    for (const { agent, moved } of this.#skipped.values()) this.#options.onSkipped(agent, moved)
    this.#skipped.clear()
  }

  #addMoved(nodeId: string, uid: string): void {
    const tasks = this.#moved.get(nodeId)
    if (tasks === undefined) this.#moved.set(nodeId, [uid])
    else tasks.push(uid)
  }

  /** Skips attempt numbers that missing agents may have used. */
  #skipUnknown(one: DriverJob, isNew = one.job.attempt === 1): void {
    if (one.group !== null) return
    const { jobs, earlier } = this.#options
    const unknown = earlier.takeUnknown(one.uid, isNew)
    if (unknown === null) return
    const { agent, attempts } = unknown
    jobs.renumber(one, attempts)
    this.#addMoved(agent.name, one.uid)
    const skipped = this.#skipped.get(agent.epoch) ?? { agent, moved: [] }
    skipped.moved.push([one.uid, one.wireAttempt - 1])
    this.#skipped.set(agent.epoch, skipped)
  }

  #messageOf({ agent, epoch, number }: EndSource): ReceivedMessage | null {
    const { jobs, agents } = this.#options
    const link = agents.get(agent)
    if (link?.endsEpoch !== epoch || !link.keeps(number)) return null
    return jobs.recorded.expect(link, number, 1)
  }

  /** Repeats an attempt that had ended for an earlier start. Call `reportMoved` afterwards. */
  runAgain(one: DriverJob, attempt: number): void {
    const { jobs } = this.#options
    jobs.continueFrom(one, attempt + 1, 1)
    this.#skipUnknown(one, true)
    jobs.placeAgain([one])
  }

  /** Handles a job that was sent before its earlier result or held attempt was known. */
  #comparePlaced(one: DriverJob, agent: AgentLink): void {
    const { jobs, earlier } = this.#options
    if (one.group !== null) return
    if (!earlier.hasEnded(one.uid, one.wireAttempt)) return this.#chooseHolder(one, agent)
    agent.cancel([one.uid, one.wireAttempt], 'an earlier start has ended it')
    jobs.leave(one)
    this.#takeLeft(one)
  }

  /**
   * An agent that was found late holds the attempt that was sent to another agent, or a later one.
   * Only one of the two continues: the running one, if the other has not reported a start.
   */
  #chooseHolder(one: DriverJob, agent: AgentLink): void {
    const { jobs, earlier } = this.#options
    const { uid, wireAttempt } = one
    const other = earlier.heldOf(uid)
    if (other === undefined || other.agent === agent) return
    if (one.isStarted || other.held.beganMs === null) {
      this.#addMoved(other.agent.name, uid)
      earlier.giveUp(uid)
      jobs.skipNext(uid, other.held.attempt - wireAttempt)
      return
    }
    this.#addMoved(agent.name, uid)
    agent.cancel([uid, wireAttempt], 'it runs elsewhere')
    jobs.leave(one)
    if (!this.#takeLeft(one)) jobs.placement.putBack([one])
  }

  /**
   * Continues with the result or the running attempt of an earlier start; `false` if the job must
   * run.
   */
  continue(one: DriverJob): boolean {
    if (this.#takeLeft(one)) return true
    this.#skipUnknown(one)
    return false
  }

  #takeLeft(one: DriverJob): boolean {
    const { jobs, earlier, takeEnd, agents } = this.#options
    const left = earlier.isEmpty ? null : earlier.take(one.uid, one.wireAttempt)
    if (left === null) return false
    const { end, source, adoption, attempt, uncounted } = left
    const isGone = adoption !== undefined && agents.get(adoption.agent.name) !== adoption.agent
    // The agent may come back, and would confuse this attempt with its own of the same number.
    const skipped = isGone ? 1 : 0
    jobs.continueFrom(one, attempt + skipped, uncounted + skipped)
    if (end !== undefined) {
      // From now on, a cancellation by the session has no effect.
      one.isEnding = true
      this.#reportPending(one, null, end)
      takeEnd(one, end, source === undefined ? null : this.#messageOf(source))
      return true
    }
    if (adoption !== undefined && isGone) this.#addMoved(adoption.agent.name, one.uid)
    if (adoption === undefined || isGone) return false
    const { agent, held } = adoption
    jobs.adopt(one, agent)
    const { beganMs, workerId } = held
    if (beganMs !== null && workerId !== null) {
      jobs.reportStart(one, agent, { beganMs, workerId }, jobs.readTime())
    }
    this.#reportPending(one, agent, held)
    return true
  }
}

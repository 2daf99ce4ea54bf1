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
  /** Reports an end that is left from an earlier start; `message` if its agent still has it. */
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

/** Matches jobs of this start with the ends and attempts that an earlier start left. */
export class ContinuedJobs {
  readonly #options: ContinuedJobsOptions
  #isBusy = false
  /** By node: tasks that may have begun there. */
  readonly #moved = new Map<string, string[]>()
  /** By epoch of a missing agent: attempts whose numbers are skipped because of it. */
  readonly #skipped = new Map<number, SkippedAttempts>()

  constructor(options: ContinuedJobsOptions) {
    this.#options = options
  }

  /** Whether waiting jobs are being compared with what is left: then nothing may be sent. */
  get isBusy(): boolean {
    return this.#isBusy
  }

  /**
   * For jobs that were submitted before it was known what an earlier start left. While an end is
   * reported, the session may submit or cancel other jobs.
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

  /** Called once when it is known what an earlier start left, for all jobs submitted before. */
  continueFirst(): void {
    const { jobs } = this.#options
    const before = jobs.all
    this.#compareAll()
    for (const one of before) {
      if (one.agent === null && !one.isEnding && jobs.has(one)) this.#skipUnknown(one)
    }
    this.reportMoved()
  }

  /** Reports starts and events; keeps events of tasks that an earlier start left. */
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

  /** Reports events that the task's code sent before, after the start that precedes them. */
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

  /** Reports jobs that may have begun at nodes that are gone, and begin again elsewhere. */
  reportMoved(): void {
    // Reported together when the comparison is done.
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

  /** Repeats an attempt that had ended for an earlier start. `reportMoved` must be called after. */
  runAgain(one: DriverJob, attempt: number): void {
    const { jobs } = this.#options
    jobs.continueFrom(one, attempt + 1, 1)
    this.#skipUnknown(one, true)
    jobs.placeAgain([one])
  }

  /** For a job that was sent before it was known that it had ended, or is held by an agent. */
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
   * One of the two continues: the one that runs, if the other has not reported a start.
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

  /** Takes over the end or the running attempt of an earlier start; `false` if the job must run. */
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
    // The agent may come back, and would mistake the number for the attempt that it has.
    const skipped = isGone ? 1 : 0
    jobs.continueFrom(one, attempt + skipped, uncounted + skipped)
    if (end !== undefined) {
      // A cancel by the session from now on has no effect.
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

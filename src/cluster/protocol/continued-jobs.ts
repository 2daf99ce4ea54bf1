/** Continues tasks where an earlier start of the driver left them. */

import { type BackendListener, toEventNotice } from '../../backends/backend.ts'
import { TaskMoved } from '../../events/library-events.ts'
import {
  type AgentReport,
  type AgentStart,
  type HeldJob,
  type JobReference,
  type WireResult,
} from '../wire/messages.ts'
import type { DriverJob, RemoteAgent } from './remote-agent.ts'
import type { DriverJobs } from './driver-jobs.ts'
import type { EarlierRun, ResultSource } from './earlier-run.ts'
import type { ReceivedMessage } from './recorded-messages.ts'

export interface ContinuedJobsOptions {
  readonly jobs: DriverJobs
  readonly earlier: EarlierRun
  /** `message` is `null` if the agent no longer keeps it. */
  readonly reportResult: (one: DriverJob, end: WireResult, message: ReceivedMessage | null) => void
  readonly agents: ReadonlyMap<string, RemoteAgent>
  readonly listener: BackendListener
  /** Called with attempts that a missing agent may have begun. Their numbers are not used again. */
  readonly onSkipped: (agent: AgentStart, moved: readonly JobReference[]) => void
}

/** Matches jobs of this start with the results and attempts of an earlier start. */
export class ContinuedJobs {
  readonly #options: ContinuedJobsOptions
  #isMatching = false
  /** Tasks that may have begun on a node that is gone now, by node. */
  readonly #moved = new Map<string, string[]>()
  /** Attempt numbers that a missing agent may have used, by the agent's epoch. */
  readonly #skipped = new Map<number, { agent: AgentStart; moved: JobReference[] }>()

  constructor(options: ContinuedJobsOptions) {
    this.#options = options
  }

  /** Whether waiting jobs are being matched. No job may be sent until that is done. */
  get isMatching(): boolean {
    return this.#isMatching
  }

  /** Continues waiting jobs. The session may submit or cancel jobs while a result is reported. */
  continueWaitingJobs(): void {
    this.#matchAll()
    this.reportMoved()
  }

  #matchAll(): void {
    const { jobs, earlier } = this.#options
    if (earlier.isEmpty || this.#isMatching) return
    this.#isMatching = true
    for (const one of jobs.all) {
      if (one.isEnding || !earlier.has(one.uid) || !jobs.has(one)) continue
      const attempt = earlier.getHeld(one.uid)?.held.attempt ?? Infinity
      if (attempt < one.wireAttempt) earlier.cancelHeld(one.uid)
      if (one.agent !== null) this.#matchPlaced(one, one.agent)
      else {
        jobs.placement.remove(one)
        if (!this.#resumeJob(one)) jobs.placement.putBack([one])
      }
    }
    this.#isMatching = false
  }

  /**
   * Continues the jobs that were submitted before the data of an earlier start was read. Called
   * once.
   */
  continueInitialJobs(): void {
    const { jobs } = this.#options
    const initialJobs = jobs.all
    this.#matchAll()
    for (const one of initialJobs) {
      if (one.agent === null && !one.isEnding && jobs.has(one)) this.#skipUnknownAttempts(one)
    }
    this.reportMoved()
  }

  /** Reports starts and events. Keeps events of tasks that were not submitted again yet. */
  handleReport(agent: RemoteAgent, report: Pick<AgentReport, 'starts' | 'events'>): void {
    const { earlier, jobs } = this.#options
    const now = jobs.readTime()
    for (const { index, uid, attempt, atMs, workerId, ...known } of report.starts) {
      const one = jobs.find(index, uid, attempt)
      const start = { beganMs: atMs, workerId, ...known }
      if (one?.agent === agent) jobs.reportStart(one, agent, start, now)
    }
    for (const event of report.events) {
      const { taskId } = event
      const isFromEarlierRun = taskId !== null && (!agent.hasReportedEarlier || earlier.has(taskId))
      if (isFromEarlierRun) earlier.addEvent(taskId, { source: agent, event })
      else jobs.reportEvent(agent, event, now)
    }
  }

  /** Reports the kept events of a task after the start of the task. */
  #reportPending(
    one: DriverJob,
    agent: RemoteAgent | null,
    left: HeldJob & { atMs?: number },
  ): void {
    const { jobs, earlier } = this.#options
    const pending = earlier.removeEvents(one.uid)
    if (pending.length === 0) return
    const { beganMs, workerId, atMs = beganMs } = left
    const now = jobs.readTime()
    if (beganMs !== null && workerId !== null && atMs !== null) {
      jobs.reportStart(one, agent, { beganMs, workerId, atMs }, now)
    }
    for (const { source, event } of pending) jobs.reportEvent(source, event, now)
  }

  reportMoved(): void {
    // Does nothing while jobs are being matched, so that all moved jobs are reported together.
    if (this.#isMatching) return
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

  #skipUnknownAttempts(one: DriverJob, isNew = !one.isRetry): void {
    if (one.group !== null) return
    const { jobs, earlier } = this.#options
    const unknown = earlier.nextUnknownAttempts(one.uid, isNew)
    if (unknown === null) return
    const { agent, attempts } = unknown
    jobs.renumber(one, attempts)
    this.#addMoved(agent.name, one.uid)
    const skipped = this.#skipped.get(agent.epoch) ?? { agent, moved: [] }
    skipped.moved.push([one.uid, one.wireAttempt - 1])
    this.#skipped.set(agent.epoch, skipped)
  }

  #findMessage({ agent, epoch, number }: ResultSource): ReceivedMessage | null {
    const { jobs, agents } = this.#options
    const found = agents.get(agent)
    if (found?.results.epoch !== epoch || !found.results.isUnread(number)) return null
    return jobs.recorded.createMessage(found, number, 1)
  }

  /**
   * Runs a task again. `attempt` is its attempt that ended under an earlier start of the driver.
   * Call `reportMoved` afterwards.
   */
  rerun(one: DriverJob, attempt: number): void {
    const { jobs } = this.#options
    jobs.continueAtAttempt(one, attempt + 1, 1)
    this.#skipUnknownAttempts(one, true)
    jobs.requeue([one])
  }

  #matchPlaced(one: DriverJob, agent: RemoteAgent): void {
    const { jobs, earlier } = this.#options
    if (one.group !== null) return
    if (!earlier.hasEnded(one.uid, one.wireAttempt)) return this.#chooseHolder(one, agent)
    agent.cancel([one.uid, one.wireAttempt], 'an earlier start has ended it')
    jobs.detachFromAgent(one)
    this.#resumeJob(one)
  }

  /**
   * Decides which of two agents continues a job that both have. The agent that was found late
   * continues it only if it has begun the attempt and `agent` has not.
   */
  #chooseHolder(one: DriverJob, agent: RemoteAgent): void {
    const { jobs, earlier } = this.#options
    const { uid, wireAttempt } = one
    const other = earlier.getHeld(uid)
    if (other === undefined || other.agent === agent) return
    if (one.isStarted || other.held.beganMs === null) {
      this.#addMoved(other.agent.name, uid)
      earlier.cancelHeld(uid)
      jobs.skipNumbers(uid, other.held.attempt - wireAttempt)
      return
    }
    this.#addMoved(agent.name, uid)
    agent.cancel([uid, wireAttempt], 'it runs elsewhere')
    jobs.detachFromAgent(one)
    if (!this.#resumeJob(one)) jobs.placement.putBack([one])
  }

  /** Uses a result or a running attempt of an earlier start. Returns `false` if there is none. */
  continueJob(one: DriverJob): boolean {
    if (this.#resumeJob(one)) return true
    this.#skipUnknownAttempts(one)
    return false
  }

  #resumeJob(one: DriverJob): boolean {
    const { jobs, earlier, reportResult, agents } = this.#options
    const continuation = earlier.isEmpty ? null : earlier.takeContinuation(one.uid, one.wireAttempt)
    if (continuation === null) return false
    const { end, source, adoption, attempt, uncounted } = continuation
    const isGone = adoption !== undefined && agents.get(adoption.agent.name) !== adoption.agent
    // If the agent of the attempt is gone, skips a number: the agent may come back and confuse the
    // next attempt with its own.
    const skipped = isGone ? 1 : 0
    jobs.continueAtAttempt(one, attempt + skipped, uncounted + skipped)
    if (end !== undefined) {
      // From here on, the session can no longer cancel the job.
      one.isEnding = true
      this.#reportPending(one, null, end)
      reportResult(one, end, source === undefined ? null : this.#findMessage(source))
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

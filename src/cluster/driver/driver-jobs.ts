/** The jobs of a session in the cluster: where each one is, and what is reported of it. */

import {
  type BackendListener,
  type Job,
  type TaskReport,
  toEventNotice,
} from '../../backends/backend.ts'
import { eventClassOf } from '../../events/define-event.ts'
import { StaleResult } from '../../events/library-events.ts'
import type { Clock } from '../../foundation/clock.ts'
import type { Moment } from '../../tasks/lifecycle.ts'
import type { WireEvent } from '../wire/messages.ts'
import type { AgentLink } from './agent-link.ts'
import { DriverJob } from './agent-link.ts'
import { Placement } from './placement.ts'
import { type ReceivedMessage, RecordedMessages } from './recorded-messages.ts'

export type EndReport = Exclude<TaskReport, { kind: 'start' }>

/** Tasks whose next attempt avoids the node of the last one. */
const mostAvoided = 10_000

export class DriverJobs {
  readonly placement = new Placement<DriverJob>()
  readonly recorded = new RecordedMessages()
  readonly #listener: BackendListener
  readonly #clock: Clock
  readonly #jobs = new Map<string, DriverJob>()
  /** Attempts of an earlier start, by task: the numbers of this one's attempts begin after them. */
  readonly #attemptsBefore = new Map<string, number>()
  /** Where the last attempt of a task failed. */
  readonly #failedOn = new Map<string, string>()
  #sequence = 0

  constructor(listener: BackendListener, clock: Clock) {
    this.#listener = listener
    this.#clock = clock
  }

  /** A copy: a loop over it may end them. */
  get all(): readonly DriverJob[] {
    return [...this.#jobs.values()]
  }

  /** A job that the session has submitted just now. It is not placed yet. */
  add(job: Job, nowMs: number): DriverJob {
    const { uid, attempt } = job
    const wireAttempt = attempt + (this.#attemptsBefore.get(uid) ?? 0)
    const avoid = this.#failedOn.get(uid) ?? null
    const one = new DriverJob(job, ++this.#sequence, wireAttempt, avoid, nowMs)
    this.#jobs.set(uid, one)
    return one
  }

  /** The job under the attempt's number at the agents; `null` when it is over. */
  find(uid: string, wireAttempt: number): DriverJob | null {
    const one = this.#jobs.get(uid)
    return one?.wireAttempt === wireAttempt ? one : null
  }

  /** The job of the session's own object. */
  findOwn(job: Job): DriverJob | null {
    const one = this.#jobs.get(job.uid)
    return one?.job === job ? one : null
  }

  /** The number goes on after this many attempts of an earlier start. */
  numberAfter(one: DriverJob, attempts: number): void {
    const before = attempts - one.job.attempt + 1
    this.#attemptsBefore.set(one.uid, before)
    one.wireAttempt = one.job.attempt + before
  }

  assign(one: DriverJob, agent: AgentLink): void {
    one.agent = agent
    one.sinceMs = this.#clock.monotonicMs()
    agent.jobs.add(one)
  }

  /** A job that an earlier start of the session has sent there. */
  adopt(one: DriverJob, agent: AgentLink): void {
    this.placement.book(agent.name, one)
    this.assign(one, agent)
    // It was sent at a time that nobody knows.
    one.sinceMs = -Infinity
  }

  /** For jobs that were sent and not begun. */
  placeAgain(jobs: readonly DriverJob[]): void {
    const back: DriverJob[] = []
    const nowMs = this.#clock.monotonicMs()
    for (const one of jobs) {
      this.leave(one)
      one.sinceMs = nowMs
      const reason = one.cancelReason
      if (reason === null) back.push(one)
      else this.end(one, { kind: 'cancel', reason }, null)
    }
    this.placement.putBack(back)
  }

  /**
   * For jobs of a node that was lost and may come back: under a new number, because that node would
   * take the old one for what it has.
   */
  move(jobs: readonly DriverJob[]): void {
    for (const one of jobs) this.numberAfter(one, one.wireAttempt)
    this.placeAgain(jobs)
  }

  /** It does not count at its agent any more. */
  leave(one: DriverJob): void {
    const { agent } = one
    if (agent === null) return
    agent.jobs.delete(one)
    this.placement.release(agent.name, one)
    one.agent = null
  }

  /** Times are those of the agent's clock; `endedMs` where the end is told with the start. */
  reportStart(
    one: DriverJob,
    agent: AgentLink | null,
    beganMs: number,
    workerId: string,
    endedMs = beganMs,
  ): void {
    if (one.isStarted) return
    const at = this.#momentOf(this.#toHere(one, agent, beganMs, endedMs - beganMs))
    one.startedMs = at.monotonicMs
    // Worker ids begin with the node.
    const nodeId = agent?.name ?? workerId.split('/')[0] ?? ''
    this.#listener.report(one.job, { kind: 'start', at, workerId, nodeId })
  }

  /** `message` is the one that told the end, if an agent did. */
  end(one: DriverJob, report: EndReport, message: ReceivedMessage | null): void {
    const { uid, agent } = one
    this.leave(one)
    this.#jobs.delete(uid)
    if (report.kind === 'fail' && agent !== null) this.#avoidNext(uid, agent.name)
    else if (this.#failedOn.size > 0) this.#failedOn.delete(uid)
    this.recorded.reported(message)
    this.#listener.report(one.job, report)
  }

  /** An end that comes after the task has moved or ended. */
  drop(nodeId: string, uid: string, attempt: number, message: ReceivedMessage | null): void {
    if (message !== null) this.recorded.dropped(message)
    this.#listener.notice(toEventNotice(StaleResult, { attempt }, { taskId: uid, nodeId }))
  }

  /** What the node's backend or the code of a task told, at its time. */
  reportEvent(agent: AgentLink, event: WireEvent): void {
    const { taskId, fields, atMs } = event
    const nowMs = this.#clock.monotonicMs()
    const ageMs = Math.max(0, nowMs - agent.agent.offset.toHere(atMs))
    const timed = { ...fields, event_time: this.#clock.now() - ageMs / 1000 }
    const about = { nodeId: agent.name, ...(taskId === null ? {} : { taskId }) }
    this.#listener.notice(toEventNotice(eventClassOf(event), timed, about))
  }

  /**
   * The end of an attempt, at a time of the agent's clock. The estimate of that clock's offset may
   * have changed since the start: an attempt lasts as long as the agent has measured.
   */
  endOf(
    one: DriverJob,
    agent: AgentLink | null,
    { beganMs, atMs }: { readonly beganMs: number | null; readonly atMs: number },
  ): Moment {
    const { startedMs } = one
    return this.#momentOf(
      startedMs === null || beganMs === null
        ? this.#toHere(one, agent, atMs, 0)
        : startedMs + (atMs - beganMs),
    )
  }

  /**
   * Not before the job was sent, and early enough that what took `durationMs` is over by now,
   * whatever the clocks say. Without an agent, which is gone with its clock, it is over just now.
   */
  #toHere(one: DriverJob, agent: AgentLink | null, atMs: number, durationMs: number): number {
    const latestMs = this.#clock.monotonicMs() - Math.max(0, durationMs)
    if (agent === null) return latestMs
    return Math.min(latestMs, Math.max(one.sinceMs, agent.agent.offset.toHere(atMs)))
  }

  /** Its wall time is not after now. */
  #momentOf(monotonicMs: number): Moment {
    const ageMs = Math.max(0, this.#clock.monotonicMs() - monotonicMs)
    return { monotonicMs, wallSeconds: this.#clock.now() - ageMs / 1000 }
  }

  #avoidNext(uid: string, agent: string): void {
    if (this.#failedOn.size >= mostAvoided) this.#failedOn.clear()
    this.#failedOn.set(uid, agent)
  }
}

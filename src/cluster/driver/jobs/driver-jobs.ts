/** The jobs of a session in the cluster: where each job is, and what is reported about it. */

import {
  type BackendListener,
  type Job,
  type OutputFiles,
  type TaskReport,
  toEventNotice,
} from '../../../backends/backend.ts'
import { TaggedJob } from '../../../backends/job-tag.ts'
import { byTurn } from '../../../backends/local/job-queue.ts'
import { eventClassOf } from '../../../events/define-event.ts'
import { StaleResult } from '../../../events/library-events.ts'
import type { Clock } from '../../../foundation/clock.ts'
import { WorkerLostError } from '../../../foundation/errors.ts'
import type { Moment } from '../../../tasks/lifecycle.ts'
import type { Announcement, Offer, ReturnedJob, WireEvent } from '../../wire/messages.ts'
import { type AgentLink, DriverJob, type DriverJobGroup } from '../agent-link.ts'
import { AgentRefusals } from '../agent-refusals.ts'
import type { GroupOptions } from '../cluster-connection.ts'
import type { EventSource } from '../directory/clock-offset.ts'
import { toEventSeconds, toStart } from './job-times.ts'
import { type HeldView, noneHeld } from '../placement/held-nodes.ts'
import { toRunning } from '../placement/job-group.ts'
import type { PlacementTimes } from '../placement/late-jobs.ts'
import { Placement } from '../placement/placement.ts'
import { type ReceivedMessage, RecordedMessages } from '../recorded-messages.ts'

export type EndReport = Exclude<TaskReport, { kind: 'start' }>

/** A start by the agent's clock. `atMs` is the end time, if the result is reported as well. */
interface ReportedStart {
  readonly beganMs: number
  readonly workerId: string
  readonly atMs?: number
  readonly files?: OutputFiles
}

/** Where jobs may run, and for how long. */
export interface JobPlaces {
  /** The agents in use, by name. */
  readonly links: ReadonlyMap<string, AgentLink>
  /** Seconds until nothing can run on this node, or on any node; `Infinity` if unlimited. */
  readonly secondsLeft: (node?: string) => number
  readonly horizons?: readonly number[]
  /** The resources that services hold, which these jobs cannot use. */
  readonly held: HeldView
}

const anywhere: JobPlaces = { links: new Map(), secondsLeft: () => Infinity, held: noneHeld }

/** Only jobs sent longer ago are recalled, because their starts would have been reported. */
const recallMs = 400
/** The maximum number of tasks for which the node of a failed attempt is remembered. */
const maxAvoided = 10_000
/**
 * A task that crashes its node immediately is never reported as begun. After this many lost nodes,
 * its attempt counts as begun.
 */
const maxMoves = 3

export class DriverJobs {
  readonly placement: Placement<DriverJob>
  readonly recorded = new RecordedMessages()
  readonly refusals = new AgentRefusals()
  readonly held: HeldView
  readonly #listener: BackendListener
  readonly #clock: Clock
  readonly #places: JobPlaces
  readonly #table = new JobTable()
  /**
   * By how much attempt numbers at agents exceed those of the session because of moves, by task.
   */
  readonly #renumbered = new Map<string, number>()
  /** The node on which the last attempt of each task failed. */
  readonly #failedOn = new Map<string, string>()
  /** Tasks with an attempt that counts as begun because too many nodes were lost with it. */
  readonly #suspects = new Set<string>()
  #sequence = 0

  constructor(listener: BackendListener, clock: Clock, places: JobPlaces = anywhere) {
    const { links, secondsLeft, horizons = [], held } = places
    const jobsAt = (name: string): readonly DriverJob[] => links.get(name)?.jobs.toArray() ?? []
    this.#places = places
    this.held = held
    this.#listener = listener
    this.#clock = clock
    const running: PlacementTimes['running'] = (name) => {
      const nowMs = clock.monotonicMs()
      return jobsAt(name).map((one) => toRunning(one, nowMs))
    }
    this.placement = new Placement({ secondsLeft, running, horizons }, held)
    held.attach({ changed: (name) => this.placement.setHeld(name), jobsAt })
  }

  /** All jobs in the order of arrival. A copy, so that jobs may end during a loop over it. */
  get all(): readonly DriverJob[] {
    return this.#table.toArray()
  }

  /** Adds a job that the session has just submitted. It is not placed yet. */
  add(job: Job, nowMs: number): DriverJob {
    const { uid, attempt } = job
    // Most sessions have none, and a map lookup would double the cost of this function.
    const skipped = this.#renumbered.size === 0 ? 0 : (this.#renumbered.get(uid) ?? 0)
    const avoid = this.#failedOn.size === 0 ? null : (this.#failedOn.get(uid) ?? null)
    const wireAttempt = attempt + skipped
    const index = this.#table.nextIndex
    const one = new DriverJob(job, index, ++this.#sequence, wireAttempt, avoid, nowMs)
    one.excluded = this.refusals.exclusionOf(one.spec)
    this.#table.add(one)
    return one
  }

  /** Adds jobs that begin together or not at all. A member that an agent returns fails. */
  addTogether(jobs: readonly Job[], options: GroupOptions, nowMs: number): readonly DriverJob[] {
    const { perNode, avoid, onPlaced, node = null } = options
    const group: DriverJobGroup = { jobs: [], unplaced: jobs.length, perNode, node, onPlaced }
    for (const job of jobs) {
      const wireAttempt = job.attempt + (this.#renumbered.get(job.uid) ?? 0)
      const index = this.#table.nextIndex
      const one = new DriverJob(job, index, ++this.#sequence, wireAttempt, avoid, nowMs, group)
      this.#table.add(one)
      group.jobs.push(one)
    }
    return group.jobs
  }

  /**
   * Finds a job by its attempt number at agents; `null` if it has ended. The index is a hint,
   * because an earlier start of the driver may have assigned it.
   */
  find(index: number, uid: string, wireAttempt: number): DriverJob | null {
    const one = this.#table.find(index, uid)
    return one?.wireAttempt === wireAttempt ? one : null
  }

  /** Finds the entry of a job that the session passed. */
  findOwn(job: Job): DriverJob | null {
    const tag = TaggedJob.tagOf(job)
    const index = tag instanceof DriverJob ? tag.index : -1
    const one = this.#table.find(index, job.uid)
    return one?.job === job ? one : null
  }

  has(one: DriverJob): boolean {
    return this.findOwn(one.job) === one
  }

  /**
   * Takes all jobs that wait for a node, for a caller that ends them. They are marked as ending,
   * because the session may cancel other jobs while one is reported, and must not end them twice.
   */
  takeWaiting(): readonly DriverJob[] {
    const waiting = this.placement.takeAll()
    for (const one of waiting) one.isEnding = true
    return waiting
  }

  /** Numbers the job at agents after the attempts of an earlier start. */
  continueFrom(one: DriverJob, attempt: number, uncounted: number): void {
    const number = attempt - (this.#renumbered.get(one.uid) ?? 0)
    one.wireAttempt = attempt
    if (number <= one.job.attempt) return
    const before = one.continued?.uncounted ?? 0
    one.continued = { number, uncounted: before + uncounted }
  }

  /** Adds an agent that accepts jobs. Its rules may differ from those in an earlier use. */
  addAgent({ name, facts, only, allow }: Announcement, offer: Offer): void {
    const waiting = this.refusals.forget(name) ? this.placement.takeExcluding(name) : []
    for (const one of waiting) one.excluded = this.refusals.exclusionOf(one.spec)
    this.placement.putBack(waiting)
    this.placement.addNode(name, facts, offer, { only, allow })
  }

  assign(one: DriverJob, agent: AgentLink, nowMs: number): void {
    one.agent = agent
    one.sinceMs = nowMs
    agent.jobs.add(one)
    if (one.group === null || --one.group.unplaced > 0) return
    one.group.onPlaced(one.group.jobs.map((member) => member.agent?.name ?? ''))
  }

  /** Assigns a job that an earlier start of the session has sent to the agent. */
  adopt(one: DriverJob, agent: AgentLink): void {
    this.placement.book(agent.name, one)
    // The time when the job was sent is unknown.
    this.assign(one, agent, -Infinity)
  }

  /**
   * Takes back jobs that an agent returned without beginning them. `true` if the agent does not
   * allow some of them, which then wait for another agent.
   */
  takeBack(agent: AgentLink, returned: readonly ReturnedJob[]): boolean {
    let hasRefused = false
    const back: DriverJob[] = []
    for (const { index, uid, attempt, notAllowed } of returned) {
      const one = this.find(index, uid, attempt)
      if (one?.agent !== agent) continue
      if (notAllowed !== undefined) {
        this.refusals.add(agent.name, one.spec, notAllowed)
        hasRefused = true
      }
      back.push(one)
    }
    this.placeAgain(back)
    return hasRefused
  }

  /** Places jobs again that were sent, but have not begun. */
  placeAgain(jobs: readonly DriverJob[]): void {
    const back: DriverJob[] = []
    const nowMs = this.#clock.monotonicMs()
    for (const one of jobs) {
      this.leave(one)
      one.sinceMs = nowMs
      one.excluded = this.refusals.exclusionOf(one.spec)
      const reason = one.cancelReason
      if (reason !== null) this.end(one, { kind: 'cancel', reason }, null)
      else if (one.group === null) back.push(one)
      else this.end(one, { kind: 'fail', error: lostBeforeStart(one) }, null)
    }
    this.placement.putBack(back)
  }

  /**
   * The jobs of a lost node that have moved too often, so that their attempts count as begun.
   * Includes only as many as the node could run concurrently, in the order in which agents begin
   * jobs.
   */
  countMoves({ jobs, agent }: AgentLink): ReadonlySet<DriverJob> {
    const counted = new Set<DriverJob>()
    const { facts, state } = agent.announcement
    // An agent that left normally has reported all starts.
    if (state === 'gone') return counted
    const all = jobs.toArray().toSorted(byTurn)
    let free = facts.cores
    for (const one of all) if (one.isStarted) free -= one.spec.resources.cores
    for (const one of all) {
      if (one.isStarted || free <= 0) continue
      free -= one.spec.resources.cores
      if (++one.moves < (this.#suspects.has(one.uid) ? 1 : maxMoves)) continue
      counted.add(one)
      if (this.#suspects.size >= maxAvoided) this.#suspects.clear()
      this.#suspects.add(one.uid)
    }
    return counted
  }

  /**
   * Moves jobs of a lost node. They get new attempt numbers, because the node may come back and
   * would confuse them with its own attempts.
   */
  move(jobs: readonly DriverJob[]): void {
    for (const one of jobs) this.renumber(one, 1)
    this.placeAgain(jobs)
  }

  /** Skips `by` attempt numbers that agents may have used for attempts unknown to the session. */
  renumber(one: DriverJob, by: number): void {
    this.skipNext(one.uid, by)
    one.wireAttempt += by
  }

  /** Increases the attempt number of the next attempt of this task. */
  skipNext(uid: string, by: number): void {
    if (by > 0) this.#renumbered.set(uid, (this.#renumbered.get(uid) ?? 0) + by)
  }

  /** Removes jobs that had begun on a lost node. Their failures are reported a little later. */
  leaveLost(jobs: readonly DriverJob[], agent: string): void {
    for (const one of jobs) {
      this.leave(one)
      one.isEnding = true
      this.#avoidNext(one.uid, agent)
    }
  }

  /** Recalls jobs that wait at a busy node while another is idle, such as a new one. */
  recallWaiting(): void {
    const { placement } = this
    const beforeMs = this.#clock.monotonicMs() - recallMs
    let free = placement.waiting > 0 ? 0 : placement.freeCores
    for (const link of this.#places.links.values()) {
      const count = Math.min(free, placement.waitingAt(link.name))
      if (count === 0) continue
      free -= link.recall(count, beforeMs)
    }
  }

  /** Removes the job from its agent. */
  leave(one: DriverJob): void {
    const { agent } = one
    if (agent === null) return
    agent.jobs.delete(one)
    this.placement.release(agent.name, one)
    one.agent = null
  }

  /** Reads the time once per message, because reading the clocks costs more than a job. */
  readTime(): Moment {
    return { monotonicMs: this.#clock.monotonicMs(), wallSeconds: this.#clock.now() }
  }

  /** Times are by the agent's clock. `atMs` is the end time, if reported with the start. */
  reportStart(
    one: DriverJob,
    agent: AgentLink | null,
    { beganMs, workerId, atMs = beganMs, files }: ReportedStart,
    now: Moment,
  ): void {
    if (one.isStarted) return
    const at = toStart(one, agent, { beganMs, atMs }, now)
    // Worker ids begin with the name of the node.
    const nodeId = agent?.name ?? workerId.split('/')[0] ?? ''
    const facts = files === undefined ? {} : { facts: files }
    this.#report(one, { kind: 'start', at, workerId, nodeId, ...facts })
  }

  #report(one: DriverJob, report: TaskReport): void {
    const { continued } = one
    this.#listener.report(one.job, continued === null ? report : { ...report, continued })
  }

  /** `message` is the message that contained the result, if an agent sent it. */
  end(one: DriverJob, report: EndReport, message: ReceivedMessage | null): void {
    const { uid, agent } = one
    this.leave(one)
    this.#table.delete(one)
    if (report.kind === 'fail') {
      if (agent !== null) this.#avoidNext(uid, agent.name)
    } else {
      if (this.#failedOn.size > 0) this.#failedOn.delete(uid)
      if (this.#suspects.size > 0) this.#suspects.delete(uid)
    }
    // The session does not confirm members of a group.
    if (one.group === null) this.recorded.reported(message, one.job)
    else if (message !== null) this.recorded.dropped(message)
    this.#report(one, report)
  }

  /** Drops a result that arrived after the task has moved or ended. */
  drop(nodeId: string, uid: string, attempt: number, message: ReceivedMessage | null): void {
    if (message !== null) this.recorded.dropped(message)
    this.#listener.notice(toEventNotice(StaleResult, { attempt }, { taskId: uid, nodeId }))
  }

  /** Reports an event of the node's backend or of a task's code, with its time. */
  reportEvent({ name, agent }: EventSource, event: WireEvent, now: Moment): void {
    const { taskId, fields, atMs } = event
    const one = taskId === null ? undefined : this.#table.find(-1, taskId)
    const atSeconds = toEventSeconds(one, agent, atMs, now)
    const timed = { ...fields, event_time: atSeconds }
    const about = { nodeId: name, ...(taskId === null ? {} : { taskId }) }
    this.#listener.notice(toEventNotice(eventClassOf(event), timed, about))
  }

  #avoidNext(uid: string, agent: string): void {
    if (this.#failedOn.size >= maxAvoided) this.#failedOn.clear()
    this.#failedOn.set(uid, agent)
  }
}

/** The error of a group member whose node was lost, or returned the job, before it began. */
const lostBeforeStart = ({ uid }: DriverJob): WorkerLostError =>
  new WorkerLostError(`a node was lost before task ${uid} began on it`, { code: 'NodeLostError' })

/**
 * Jobs by the index that is sent to agents and comes back: an array access instead of a lookup by
 * string. Jobs whose index was assigned by another start of the driver are found by uid.
 */
class JobTable {
  readonly #jobs: (DriverJob | undefined)[] = []
  readonly #free: number[] = []
  /** Created at the first index that does not match, dropped when no job is left. */
  #byUid: Map<string, DriverJob> | null = null

  get nextIndex(): number {
    return this.#free.at(-1) ?? this.#jobs.length
  }

  add(one: DriverJob): void {
    if (one.index === this.#jobs.length) this.#jobs.push(one)
    else {
      this.#free.pop()
      this.#jobs[one.index] = one
    }
    this.#byUid?.set(one.uid, one)
    TaggedJob.setTag(one.job, one)
  }

  find(index: number, uid: string): DriverJob | undefined {
    const one = this.#jobs[index]
    if (one?.uid === uid) return one
    this.#byUid ??= new Map(this.toArray().map((job) => [job.uid, job]))
    return this.#byUid.get(uid)
  }

  delete(one: DriverJob): void {
    if (this.#jobs[one.index] !== one) return
    this.#jobs[one.index] = undefined
    this.#free.push(one.index)
    TaggedJob.removeTag(one.job, one)
    if (this.#byUid?.get(one.uid) === one) this.#byUid.delete(one.uid)
    if (this.#free.length === this.#jobs.length) this.#clear()
  }

  toArray(): DriverJob[] {
    const all = this.#jobs.filter((one) => one !== undefined)
    return all.toSorted((a, b) => a.sequence - b.sequence)
  }

  #clear(): void {
    this.#jobs.length = 0
    this.#free.length = 0
    this.#byUid = null
  }
}

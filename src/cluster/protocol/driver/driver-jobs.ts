/** All jobs of a session: the agent and the state of each. */

import {
  type BackendListener,
  type Job,
  type OutputFiles,
  type TaskReport,
  toEventNotice,
} from '../../../backends/backend.ts'
import { TaggedJob } from '../../../backends/job-tag.ts'
import { byTurn } from '../../../backends/local/job-queue.ts'
import { resolveEventClass } from '../../../events/define-event.ts'
import { StaleResult } from '../../../events/library-events.ts'
import { WorkerLostError } from '../../../foundation/errors.ts'
import type { Moment } from '../../../tasks/lifecycle.ts'
import type { ResultReport } from '../../wire/results.ts'
import type {
  Announcement,
  JobReference,
  Offer,
  ReturnedJob,
  WireEvent,
} from '../../wire/messages.ts'
import {
  DriverJob,
  type DriverJobGroup,
  type GroupOptions,
  type RemoteAgent,
} from './remote-agent.ts'
import { AgentRefusals } from './agent-refusals.ts'
import type { EventSource } from './clock-offset.ts'
import { toEventSeconds, toStartMoment } from './job-times.ts'
import { type HeldView, noHeldNodes } from '../placement/held-nodes.ts'
import { toRunningRequest } from '../placement/job-group.ts'
import type { PlacementTimes } from '../placement/late-jobs.ts'
import { Placement } from '../placement/placement.ts'
import { type ReceivedMessage, RecordedResults } from './agent-results.ts'

/** Times are by the agent's clock. `atMs` is set if the result has arrived as well. */
interface ReportedStart {
  readonly beganMs: number
  readonly workerId: string
  readonly atMs?: number
  readonly files?: OutputFiles
}

export interface PlacementParts {
  readonly agents: ReadonlyMap<string, RemoteAgent>
  readonly secondsLeft: (node?: string) => number
  readonly horizons?: readonly number[]
  readonly held: HeldView
}

const defaultPlacementParts: PlacementParts = {
  agents: new Map(),
  secondsLeft: () => Infinity,
  held: noHeldNodes,
}

/**
 * A job is recalled only if it was sent at least this long ago. By then, its start would be known.
 */
const minRecallAgeMs = 400
/** The maximum number of tasks for which the node of a failed attempt is remembered. */
const maxAvoided = 10_000
/**
 * After this many lost nodes, an attempt counts as begun, because it may crash nodes when it
 * begins.
 */
const maxMoves = 3

export class DriverJobs {
  readonly placement: Placement<DriverJob>
  readonly recorded = new RecordedResults()
  /** This start of the driver; 0 before the session is claimed. */
  driverStart = 0
  readonly refusals = new AgentRefusals()
  readonly held: HeldView
  /**
   * Reads the monotonic clock and the wall clock. Called once per message, because reading them
   * costs more than handling a job.
   */
  readonly readTime: () => Moment
  readonly #listener: BackendListener
  readonly #agents: ReadonlyMap<string, RemoteAgent>
  readonly #table = new JobTable()
  /** By task: the attempt number for agents minus the attempt number of the session. */
  readonly #skippedNumbers = new Map<string, number>()
  readonly #failedOn = new Map<string, string>()
  /** Tasks whose attempt counts as begun, because too many nodes that had it were lost. */
  readonly #suspects = new Set<string>()
  #sequence = 0

  constructor(
    listener: BackendListener,
    readTime: () => Moment,
    parts: PlacementParts = defaultPlacementParts,
  ) {
    const { agents, secondsLeft, horizons = [], held } = parts
    const jobsAt = (name: string): readonly DriverJob[] => agents.get(name)?.jobs.toArray() ?? []
    this.#agents = agents
    this.held = held
    this.#listener = listener
    this.readTime = readTime
    const running: PlacementTimes['running'] = (name) => {
      const nowMs = readTime().monotonicMs
      return jobsAt(name).map((one) => toRunningRequest(one, nowMs))
    }
    this.placement = new Placement({ secondsLeft, running, horizons }, held)
    held.attach({ changed: (name) => this.placement.setHeld(name), jobsAt })
  }

  /** All jobs in the order of arrival. This is a copy, so jobs may end during a loop over it. */
  get all(): readonly DriverJob[] {
    return this.#table.toArray()
  }

  add(job: Job, nowMs: number): DriverJob {
    const avoidedNode = this.#failedOn.size === 0 ? null : (this.#failedOn.get(job.uid) ?? null)
    const one = this.#create(job, avoidedNode, nowMs, null)
    one.exclusion = this.refusals.findExclusion(one.spec)
    return one
  }

  /** Adds jobs that begin together or not at all. If an agent returns such a job, the job fails. */
  addTogether(jobs: readonly Job[], options: GroupOptions, nowMs: number): readonly DriverJob[] {
    const { jobsPerNode, avoidedNode, onPlaced, node = null } = options
    const counts = { unplacedCount: jobs.length, jobsPerNode }
    const group: DriverJobGroup = { jobs: [], ...counts, node, onPlaced }
    for (const job of jobs) group.jobs.push(this.#create(job, avoidedNode, nowMs, group))
    return group.jobs
  }

  #create(
    job: Job,
    avoidedNode: string | null,
    nowMs: number,
    group: DriverJobGroup | null,
  ): DriverJob {
    // Most sessions skip no attempt numbers. The check avoids a lookup, which would double the
    // cost.
    const skipped = this.#skippedNumbers.size === 0 ? 0 : (this.#skippedNumbers.get(job.uid) ?? 0)
    const attempt = job.attempt + skipped
    const index = this.#table.nextIndex
    const one = new DriverJob(job, index, ++this.#sequence, attempt, avoidedNode, nowMs, group)
    this.#table.add(one)
    return one
  }

  /**
   * Finds a job by what identifies its attempt at agents; `null` if it has ended. `index` is only a
   * hint.
   */
  find(index: number, uid: string, wireAttempt: number, driverStart: number): DriverJob | null {
    const one = this.#table.find(index, uid)
    return one?.wireAttempt === wireAttempt && one.driverStart === driverStart ? one : null
  }

  findByUid(uid: string): DriverJob | null {
    return this.#table.find(-1, uid) ?? null
  }

  findEntry(job: Job): DriverJob | null {
    const tag = TaggedJob.tagOf(job)
    const index = tag instanceof DriverJob ? tag.index : -1
    const one = this.#table.find(index, job.uid)
    return one?.job === job ? one : null
  }

  has(one: DriverJob): boolean {
    return this.findEntry(one.job) === one
  }

  /**
   * Removes and returns all waiting jobs, which the caller must end. They are marked as ending, so
   * that none ends twice.
   */
  removeWaiting(): readonly DriverJob[] {
    const waiting = this.placement.takeAll()
    for (const one of waiting) one.isEnding = true
    return waiting
  }

  /** Continues with the attempt of an earlier start of the driver, or the one after it. */
  continueAtAttempt(one: DriverJob, attempt: number, uncounted: number): void {
    const number = attempt - (this.#skippedNumbers.get(one.uid) ?? 0)
    one.wireAttempt = attempt
    if (number <= one.job.attempt) return
    const uncountedBefore = one.continued?.uncounted ?? 0
    one.continued = { number, uncounted: uncountedBefore + uncounted }
  }

  /** Adds an agent that accepts jobs. Forgets its refusals, because its rules may have changed. */
  addAgent({ name, facts, only, allow }: Announcement, offer: Offer): void {
    const waiting = this.refusals.removeAgent(name) ? this.placement.removeExcluding(name) : []
    for (const one of waiting) one.exclusion = this.refusals.findExclusion(one.spec)
    this.placement.putBack(waiting)
    this.placement.addNode(name, facts, offer, { only, allow })
  }

  assign(one: DriverJob, agent: RemoteAgent, nowMs: number): void {
    one.agent = agent
    one.driverStart = this.driverStart
    one.sinceMs = nowMs
    agent.jobs.add(one)
    if (one.group === null || --one.group.unplacedCount > 0) return
    one.group.onPlaced(one.group.jobs.map((member) => member.agent?.name ?? ''))
  }

  /** Takes over an attempt that an earlier start of the driver has sent to the agent. */
  adopt(one: DriverJob, agent: RemoteAgent, driverStart: number): void {
    this.placement.addRunning(agent.name, one)
    // The time when the job was sent is unknown.
    this.assign(one, agent, -Infinity)
    one.driverStart = driverStart
  }

  /**
   * Puts jobs that the agent returned back into the queue. Returns `true` if the agent does not
   * allow some of them.
   */
  acceptReturned(agent: RemoteAgent, returned: readonly ReturnedJob[]): boolean {
    let hasRefused = false
    const accepted: DriverJob[] = []
    for (const { index, uid, attempt, driverStart = this.driverStart, notAllowed } of returned) {
      const one = this.find(index, uid, attempt, driverStart)
      if (one?.agent !== agent) continue
      if (notAllowed !== undefined) {
        this.refusals.add(agent.name, one.spec, notAllowed)
        hasRefused = true
      }
      accepted.push(one)
    }
    this.requeue(accepted)
    return hasRefused
  }

  requeue(jobs: readonly DriverJob[]): void {
    const requeued: DriverJob[] = []
    const nowMs = this.readTime().monotonicMs
    for (const one of jobs) {
      this.detachFromAgent(one)
      one.sinceMs = nowMs
      one.exclusion = this.refusals.findExclusion(one.spec)
      const reason = one.cancelReason
      if (reason !== null) this.end(one, { kind: 'cancel', reason }, null)
      else if (one.group === null) requeued.push(one)
      else this.end(one, { kind: 'fail', error: createLostError(one) }, null)
    }
    this.placement.putBack(requeued)
  }

  /**
   * Divides the jobs of a lost agent into those that count as begun, which fail, and the others,
   * which move to other agents.
   */
  divideLost(agent: RemoteAgent): {
    readonly begun: readonly DriverJob[]
    readonly moved: readonly DriverJob[]
  } {
    // Jobs that are ending are not lost: their results have arrived, and their values are being
    // read.
    for (const one of agent.jobs.toArray()) if (one.isEnding) this.detachFromAgent(one)
    const oftenMoved = this.#findExcessiveMoves(agent)
    const hasBegun = (one: DriverJob): boolean => one.isStarted || oftenMoved.has(one)
    const all = agent.jobs.toArray()
    return { begun: all.filter(hasBegun), moved: all.filter((one) => !hasBegun(one)) }
  }

  /**
   * Counts a move for each job that the lost node may have begun. Returns the jobs with too many
   * moves, which count as begun.
   */
  #findExcessiveMoves({ jobs, announcement }: RemoteAgent): ReadonlySet<DriverJob> {
    const oftenMoved = new Set<DriverJob>()
    const { facts, state } = announcement
    // An agent that left normally has reported all starts.
    if (state === 'gone') return oftenMoved
    const all = jobs.toArray().toSorted(byTurn)
    let free = facts.cores
    for (const one of all) if (one.isStarted) free -= one.spec.resources.cores
    for (const one of all) {
      if (one.isStarted || free <= 0) continue
      free -= one.spec.resources.cores
      if (++one.moves < (this.#suspects.has(one.uid) ? 1 : maxMoves)) continue
      oftenMoved.add(one)
      if (this.#suspects.size >= maxAvoided) this.#suspects.clear()
      this.#suspects.add(one.uid)
    }
    return oftenMoved
  }

  /** Queues jobs of a lost node again, with new attempt numbers, because the node may come back. */
  move(jobs: readonly DriverJob[]): void {
    for (const one of jobs) {
      this.#skippedNumbers.set(one.uid, (this.#skippedNumbers.get(one.uid) ?? 0) + 1)
      one.wireAttempt++
    }
    this.requeue(jobs)
  }

  /** Detaches jobs that had begun on a lost node. Their failures are reported a little later. */
  detachLost(jobs: readonly DriverJob[], agent: string): void {
    for (const one of jobs) {
      this.detachFromAgent(one)
      one.isEnding = true
      this.#rememberFailure(one.uid, agent)
    }
  }

  /** Returns jobs that wait at their agents although other agents have free cores. */
  findRecalled(nowMs: number): ReadonlyMap<RemoteAgent, readonly JobReference[]> {
    const { placement } = this
    const recalled = new Map<RemoteAgent, readonly JobReference[]>()
    let free = placement.waiting > 0 ? 0 : placement.freeCores
    for (const agent of this.#agents.values()) {
      const count = Math.min(free, placement.waitingAt(agent.name))
      if (count === 0) continue
      const jobs = agent.findUnbegun(count, nowMs - minRecallAgeMs)
      free -= jobs.length
      recalled.set(agent, jobs)
    }
    return recalled
  }

  detachFromAgent(one: DriverJob): void {
    const { agent } = one
    if (agent === null) return
    agent.jobs.delete(one)
    // A restarted agent has the name of its predecessor.
    if (this.#agents.get(agent.name) === agent) this.placement.release(agent.name, one)
    one.agent = null
    one.earlyEvents = null
  }

  reportStart(
    one: DriverJob,
    agent: RemoteAgent | null,
    { beganMs, workerId, atMs = beganMs, files }: ReportedStart,
    now: Moment,
  ): void {
    if (one.isStarted) return
    const at = toStartMoment(one, agent, { beganMs, atMs }, now)
    // Worker ids begin with the name of the node.
    const nodeId = agent?.name ?? workerId.split('/')[0] ?? ''
    const facts = files === undefined ? {} : { facts: files }
    this.#report(one, { kind: 'start', at, workerId, nodeId, ...facts })
    const { earlyEvents } = one
    if (earlyEvents === null || agent === null) return
    one.earlyEvents = null
    for (const event of earlyEvents) this.reportEvent(agent, event, now)
  }

  #report(one: DriverJob, report: TaskReport): void {
    const { continued } = one
    this.#listener.report(one.job, continued === null ? report : { ...report, continued })
  }

  /** `message` is the agent's message with the result, if any. */
  end(one: DriverJob, report: ResultReport, message: ReceivedMessage | null): void {
    const { uid, agent } = one
    this.detachFromAgent(one)
    this.#table.delete(one)
    if (report.kind === 'fail') {
      if (agent !== null) this.#rememberFailure(uid, agent.name)
    } else {
      if (this.#failedOn.size > 0) this.#failedOn.delete(uid)
      if (this.#suspects.size > 0) this.#suspects.delete(uid)
    }
    // The session does not confirm the jobs of a group.
    if (one.group === null) this.recorded.markReported(message, one.job)
    else if (message !== null) message.left--
    this.#report(one, report)
  }

  /** Drops the result of an attempt that was given up, or whose task has ended. */
  drop(nodeId: string, uid: string, attempt: number, message: ReceivedMessage | null): void {
    if (message !== null) message.left--
    this.#listener.notice(toEventNotice(StaleResult, { attempt }, { taskId: uid, nodeId }))
  }

  reportEvent({ name, offset }: EventSource, event: WireEvent, now: Moment): void {
    const { taskId, fields, atMs } = event
    const one = taskId === null ? undefined : this.#table.find(-1, taskId)
    if (one?.agent?.name === name && !one.isStarted) {
      one.earlyEvents ??= []
      one.earlyEvents.push(event)
      return
    }
    const atSeconds = toEventSeconds(one, offset, atMs, now)
    const timed = { ...fields, event_time: atSeconds }
    const about = { nodeId: name, ...(taskId === null ? {} : { taskId }) }
    this.#listener.notice(toEventNotice(resolveEventClass(event), timed, about))
  }

  #rememberFailure(uid: string, agent: string): void {
    if (this.#failedOn.size >= maxAvoided) this.#failedOn.clear()
    this.#failedOn.set(uid, agent)
  }
}

const createLostError = ({ uid }: DriverJob): WorkerLostError =>
  new WorkerLostError(`a node was lost before task ${uid} began on it`, { code: 'NodeLostError' })

/** Finds jobs by index, or by uid if the index is from another start of the driver. */
class JobTable {
  readonly #jobs: (DriverJob | undefined)[] = []
  readonly #free: number[] = []
  /** Created when an index does not match for the first time. Dropped when no job is left. */
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

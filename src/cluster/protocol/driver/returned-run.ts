/**
 * What earlier starts of the driver have left: results, and attempts that agents hold. Jobs of this
 * start continue from there. Only the session id and the uid identify a task.
 */

import { type BackendListener, toEventNotice } from '../../../backends/backend.ts'
import { TaskMoved } from '../../../events/library-events.ts'
import type { AgentStart, HeldJob, WireEvent, WireResult } from '../../wire/messages.ts'
import type { ReceivedMessage } from './agent-results.ts'
import type { EventSource } from './clock-offset.ts'
import type { DriverJobs } from './driver-jobs.ts'
import type { DriverJob, RemoteAgent } from './remote-agent.ts'

/** The message with a result, of an agent that keeps the result until it is recorded. */
export interface ResultSource {
  readonly agent: RemoteAgent
  readonly message: ReceivedMessage
}

/** A result, with the start of the driver that sent its attempt. */
export type FoundResult = WireResult & {
  readonly driverStart: number
  /** Only for a result whose value is in the store: its agent can store the value again. */
  readonly source?: ResultSource
}

interface FoundAttempt {
  readonly agent: RemoteAgent
  readonly held: HeldJob
}

/** An event that a task's code sent while its driver was away. */
interface PendingEvent {
  readonly source: EventSource
  readonly event: WireEvent
}

/** How a task continues: with a result, or with an attempt that runs. */
interface Continuation {
  readonly end?: FoundResult
  readonly adopted?: FoundAttempt
  /** The number of the attempt that has a result or is adopted, or else of the next attempt. */
  readonly attempt: number
  /** The number of earlier attempts that do not count as failures: canceled or moved ones. */
  readonly uncounted: number
}

export interface ReturnedRunOptions {
  readonly jobs: DriverJobs
  readonly listener: BackendListener
  readonly reportResult: (one: DriverJob, end: FoundResult) => void
}

export class ReturnedRun {
  readonly #options: ReturnedRunOptions
  /** The results of each task, the earliest attempt first. */
  readonly #results = new Map<string, readonly FoundResult[]>()
  readonly #held = new Map<string, FoundAttempt>()
  readonly #events = new Map<string, PendingEvent[]>()
  /** By uid: the cancel reasons of tasks whose earlier attempts are not known yet. */
  readonly #canceled = new Map<string, string>()
  /** By start: the names of agents that earlier starts used and that do not answer. */
  readonly #missing = new Map<number, string>()
  /** Tasks whose last known attempt has failed. Used only while agents are missing. */
  readonly #failed = new Set<string>()
  /** By node: tasks that may have begun there, and begin elsewhere now. */
  readonly #moved = new Map<string, string[]>()
  #isMatching = false

  constructor(options: ReturnedRunOptions) {
    this.#options = options
  }

  get isEmpty(): boolean {
    return this.#results.size === 0 && this.#held.size === 0
  }

  /** Whether waiting jobs are being matched. No job may be sent until that is done. */
  get isMatching(): boolean {
    return this.#isMatching
  }

  addResult(end: FoundResult): void {
    const { uid } = end
    if (this.#canceled.has(uid)) return settle(end)
    const held = this.#held.get(uid)?.held
    if (held !== undefined && isSameAttempt(held, end)) this.#held.delete(uid)
    const known = this.#results.get(uid) ?? []
    const same = known.find((one) => isSameAttempt(one, end))
    if (same !== undefined && (same.source !== undefined || end.source === undefined)) {
      return settle(end)
    }
    const others = known.filter((one) => one !== same)
    this.#results.set(uid, [...others, end].toSorted(compareAttempts))
  }

  /** Whether the agent holds this attempt for a task that was not submitted yet. */
  isHeld(agent: RemoteAgent, attempt: Attempt & { readonly uid: string }): boolean {
    const found = this.#held.get(attempt.uid)
    return found?.agent === agent && isSameAttempt(found.held, attempt)
  }

  addHeld(agent: RemoteAgent, held: HeldJob): void {
    const { uid } = held
    const added = { agent, held }
    const reason = this.#canceled.get(uid)
    if (reason !== undefined) return cancelFound(added, reason)
    if (this.isHeld(agent, held)) {
      this.#held.set(uid, added)
      return
    }
    const known = this.#held.get(uid)
    const isLater = known === undefined || compareAttempts(known.held, held) < 0
    if (isLater) this.#held.set(uid, added)
    const other = isLater ? known : added
    if (other !== undefined) cancelFound(other, movedReason)
  }

  /** Keeps an event until the task has been submitted and its attempt or result was found. */
  addEvent(uid: string, pending: PendingEvent): void {
    const known = this.#events.get(uid)
    if (known === undefined) this.#events.set(uid, [pending])
    else known.push(pending)
  }

  has(uid: string): boolean {
    return this.#results.has(uid) || this.#held.has(uid)
  }

  /** Cancels all attempts of a task at all agents, including agents that have not answered yet. */
  cancel(uid: string, reason: string): void {
    this.#canceled.set(uid, reason)
    this.#events.delete(uid)
    this.#results.get(uid)?.forEach(settle)
    this.#results.delete(uid)
    this.#cancelHeld(uid, reason)
  }

  #cancelHeld(uid: string, reason = movedReason): void {
    const found = this.#held.get(uid)
    this.#held.delete(uid)
    if (found !== undefined) cancelFound(found, reason)
  }

  /** Notes an agent that does not answer. It may have begun attempts that nobody knows. */
  addMissing({ name, start }: AgentStart): void {
    this.#missing.set(start, name)
  }

  markFound({ start }: AgentStart): void {
    this.#missing.delete(start)
  }

  /**
   * The attempts of a lost agent that have begun count as failed. The other tasks move to another
   * agent when they are submitted.
   */
  removeAgent(agent: RemoteAgent, toFailure: (held: HeldJob) => FoundResult): void {
    for (const [uid, { held, agent: holder }] of this.#held) {
      if (holder !== agent || held.beganMs === null) continue
      this.#held.delete(uid)
      this.addResult(toFailure(held))
    }
  }

  /** Continues waiting jobs. The session may submit or cancel jobs while a result is reported. */
  continueWaitingJobs(): void {
    this.#matchAll()
    this.reportMoved()
  }

  /** Continues the jobs that were submitted before the agents had answered. Called once. */
  continueInitialJobs(): void {
    const { jobs } = this.#options
    const initial = jobs.all
    this.#matchAll()
    for (const one of initial) {
      if (one.agent === null && !one.isEnding && jobs.has(one)) this.#reportIfMaybeBegun(one)
    }
    this.reportMoved()
  }

  /** Uses a result or a running attempt of an earlier start. Returns `false` if there is none. */
  continueJob(one: DriverJob): boolean {
    if (this.#resumeJob(one)) return true
    this.#reportIfMaybeBegun(one)
    return false
  }

  /** Runs a task again whose value is lost. `attempt` is the one that had returned the value. */
  rerun(one: DriverJob, attempt: number): void {
    const { jobs } = this.#options
    jobs.continueAtAttempt(one, attempt + 1, 1)
    jobs.requeue([one])
  }

  reportMoved(): void {
    // Does nothing while jobs are being matched, so that all moved jobs are reported together.
    if (this.#isMatching || this.#moved.size === 0) return
    for (const [nodeId, tasks] of this.#moved) {
      const fields = { count: tasks.length, tasks }
      this.#options.listener.notice(toEventNotice(TaskMoved, fields, { nodeId }))
    }
    this.#moved.clear()
  }

  #addMoved(nodeId: string, uid: string): void {
    const tasks = this.#moved.get(nodeId)
    if (tasks === undefined) this.#moved.set(nodeId, [uid])
    else tasks.push(uid)
  }

  /** A task may have begun on a missing agent, unless one of its attempts is known. */
  #reportIfMaybeBegun(one: DriverJob): void {
    const [name] = [...this.#missing.values()].slice(-1)
    if (name === undefined || one.group !== null) return
    const isNew = this.#failed.delete(one.uid) || !one.isRetry
    if (isNew) this.#addMoved(name, one.uid)
  }

  #matchAll(): void {
    const { jobs } = this.#options
    if (this.isEmpty || this.#isMatching) return
    this.#isMatching = true
    for (const one of jobs.all) {
      if (one.isEnding || one.group !== null || !this.has(one.uid) || !jobs.has(one)) continue
      if (one.agent !== null) this.#matchPlaced(one, one.agent)
      else {
        jobs.placement.remove(one)
        if (!this.#resumeJob(one)) jobs.placement.putBack([one])
      }
    }
    this.#isMatching = false
  }

  /** A job was sent to an agent before an earlier result or attempt of its task was found. */
  #matchPlaced(one: DriverJob, agent: RemoteAgent): void {
    const { uid, wireAttempt, driverStart } = one
    const last = this.#results.get(uid)?.findLast((end) => !isCanceled(end))
    const held = this.#held.get(uid)
    const isLast =
      last !== undefined && (held === undefined || compareAttempts(held.held, last) < 0)
    if (isLast && (isCompletion(last) || !one.isStarted)) {
      this.#takeFromAgent(one, agent, 'an earlier start has ended it')
      return
    }
    this.#results.get(uid)?.forEach(settle)
    this.#results.delete(uid)
    if (held === undefined || held.agent === agent) return
    const isOwnLater = wireAttempt > held.held.attempt && driverStart > held.held.driverStart
    if (one.isStarted || held.held.beganMs === null || isOwnLater) {
      this.#addMoved(held.agent.name, uid)
      this.#cancelHeld(uid)
      return
    }
    this.#addMoved(agent.name, uid)
    this.#takeFromAgent(one, agent, 'it runs elsewhere')
  }

  #takeFromAgent(one: DriverJob, agent: RemoteAgent, reason: string): void {
    const { jobs } = this.#options
    agent.cancel([one.uid, one.wireAttempt, one.driverStart], reason)
    jobs.detachFromAgent(one)
    if (!this.#resumeJob(one)) jobs.placement.putBack([one])
  }

  #resumeJob(one: DriverJob): boolean {
    if (this.isEmpty || one.group !== null || !this.has(one.uid)) return false
    const { jobs, reportResult } = this.#options
    const { end, adopted, attempt, uncounted } = this.#takeContinuation(one.uid, one.wireAttempt)
    jobs.continueAtAttempt(one, attempt, uncounted)
    if (end !== undefined) {
      // From here on, the session can no longer cancel the job.
      one.isEnding = true
      this.#reportPending(one, null, end)
      reportResult(one, end)
      return true
    }
    if (adopted === undefined) return false
    const { agent, held } = adopted
    if (agent.state === 'lost') {
      this.#addMoved(agent.name, one.uid)
      return false
    }
    jobs.adopt(one, agent, held.driverStart)
    const { beganMs, workerId } = held
    if (beganMs !== null && workerId !== null) {
      jobs.reportStart(one, agent, { beganMs, workerId }, jobs.readTime())
    }
    this.#reportPending(one, agent, held)
    return true
  }

  /** Reports the kept events of a task after the start of the task. */
  #reportPending(
    one: DriverJob,
    agent: RemoteAgent | null,
    left: HeldJob & { atMs?: number },
  ): void {
    const { jobs } = this.#options
    const pending = this.#events.get(one.uid)
    if (pending === undefined) return
    this.#events.delete(one.uid)
    const { beganMs, workerId, atMs = beganMs } = left
    const now = jobs.readTime()
    if (beganMs !== null && workerId !== null && atMs !== null) {
      jobs.reportStart(one, agent, { beganMs, workerId, atMs }, now)
    }
    for (const { source, event } of pending) jobs.reportEvent(source, event, now)
  }

  /**
   * Removes and returns the state of a task from `attempt` on. This is the latest attempt if it
   * runs or has completed, or else one failure per call.
   */
  #takeContinuation(uid: string, attempt: number): Continuation {
    const all = this.#results.get(uid) ?? []
    const ends = all.filter((end) => end.attempt >= attempt)
    const found = this.#held.get(uid)
    const last = ends.at(-1)
    this.#results.delete(uid)
    const isAdopted =
      found !== undefined &&
      found.held.attempt >= attempt &&
      (last === undefined || compareAttempts(last, found.held) < 0)
    if (isAdopted) {
      this.#held.delete(uid)
      all.forEach(settle)
      const { attempt: at } = found.held
      return { adopted: found, attempt: at, uncounted: countUncounted(attempt, at, ends) }
    }
    this.#cancelHeld(uid)
    const completed = ends.findLast(isCompletion)
    const end = completed ?? ends.find((one) => !isCanceled(one))
    const later =
      completed === undefined && end !== undefined ? ends.slice(ends.indexOf(end) + 1) : []
    for (const one of all) if (one !== end && !later.includes(one)) settle(one)
    if (end === undefined) {
      const next = last === undefined ? attempt : last.attempt + 1
      return { attempt: next, uncounted: countUncounted(attempt, next, ends) }
    }
    if (later.length > 0) this.#results.set(uid, later)
    else if (completed === undefined && this.#missing.size > 0) this.#failed.add(uid)
    return { end, attempt: end.attempt, uncounted: countUncounted(attempt, end.attempt, ends) }
  }
}

const movedReason = 'it has moved'

interface Attempt {
  readonly attempt: number
  readonly driverStart: number
}

/** Later starts of the driver have later attempts, whatever their numbers. */
const compareAttempts = (a: Attempt, b: Attempt): number =>
  a.driverStart - b.driverStart || a.attempt - b.attempt

const isSameAttempt = (a: Attempt, b: Attempt): boolean => compareAttempts(a, b) === 0

function cancelFound({ agent, held }: FoundAttempt, reason: string): void {
  agent.cancel([held.uid, held.attempt, held.driverStart], reason)
}

/** Nobody needs the result. */
function settle({ source }: FoundResult): void {
  if (source !== undefined) source.message.left--
}

const kindOf = ({ outcome }: WireResult) => (outcome.kind === 'stored' ? outcome.of : outcome.kind)
const isCompletion = (end: WireResult): boolean => kindOf(end) === 'complete'
const isCanceled = (end: WireResult): boolean => kindOf(end) === 'cancel'

const countUncounted = (from: number, to: number, ends: readonly WireResult[]): number =>
  Math.max(0, to - from - ends.filter((end) => end.attempt < to && !isCanceled(end)).length)

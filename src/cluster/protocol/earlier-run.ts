/**
 * What an earlier start of the session left behind: results in the stream, and jobs at agents.
 * Tasks with the same uid continue from these.
 */

import { toErrorRecord } from '../../foundation/error-record.ts'
import { WorkerLostError } from '../../foundation/errors.ts'
import { unpackCompletions } from '../wire/completions.ts'
import { refersToObject } from '../wire/results.ts'
import type {
  AgentStart,
  ResultsMessage,
  HeldJob,
  JobReference,
  LostAttempt,
  WireResult,
  WireEvent,
} from '../wire/messages.ts'
import type { RemoteAgent } from './remote-agent.ts'
import type { EventSource } from './clock-offset.ts'

/**
 * The message that contained a result. If the broker's store has lost a large part of the result,
 * the agent can send that part again.
 */
export interface ResultSource {
  readonly agent: string
  readonly epoch: number
  readonly number: number
}

export interface AdoptedAttempt {
  readonly agent: RemoteAgent
  readonly held: HeldJob
}

/** An event that a task's code sent while its driver was away. */
export interface PendingEvent {
  readonly source: EventSource
  readonly event: WireEvent
}

/** How a task continues. Without `end` and `adoption` it must run. */
export interface Continuation {
  /** Never a cancellation, because tasks that were canceled with their driver run again. */
  readonly end?: WireResult
  /** Set only if the result refers to an object in the broker's store. */
  readonly source?: ResultSource
  readonly adoption?: AdoptedAttempt
  /** The number of the attempt that has a result or is adopted, or else of the next attempt. */
  readonly attempt: number
  /** The number of earlier attempts that do not count as failures: canceled or moved ones. */
  readonly uncounted: number
}

export class EarlierRun {
  /** The results of each task, in ascending order of attempts. */
  readonly #results = new Map<string, readonly WireResult[]>()
  readonly #held = new Map<string, AdoptedAttempt>()
  readonly #events = new Map<string, PendingEvent[]>()
  readonly #sources = new Map<WireResult, ResultSource>()
  /** The names of agents that earlier starts used and that are gone, by epoch. */
  readonly #missing = new Map<number, string>()
  /** Tasks whose last known attempt has failed. Recorded only while agents are missing. */
  readonly #failed = new Set<string>()
  /**
   * By uid: the cancel reasons of tasks that were canceled before their agent had listed its
   * attempts.
   */
  readonly #canceled = new Map<string, string>()

  get isEmpty(): boolean {
    return this.#results.size === 0 && this.#held.size === 0
  }

  /** `epoch` identifies the session on the agent, and `number` the message within it. */
  addResults(message: ResultsMessage, epoch: number, number: number): void {
    const { agent, completions, ends, reports = [] } = message
    for (const event of reports.flatMap(({ events }) => events)) {
      const source = { name: agent, offset: null }
      if (event.taskId !== null) this.addEvent(event.taskId, { source, event })
    }
    for (const { value, ...completion } of unpackCompletions(completions)) {
      const outcome = { kind: 'complete', value } as const
      this.#addResult({ ...completion, facts: null, outcome })
    }
    for (const end of ends) {
      if (this.#addResult(end) && refersToObject(end))
        this.#sources.set(end, { agent, epoch, number })
    }
  }

  /**
   * Keeps the result until its task is submitted. Returns `false` if it is not from an earlier
   * start.
   */
  addLateResult(agent: RemoteAgent, end: WireResult, source: ResultSource): boolean {
    const { uid, attempt } = end
    if (this.#canceled.has(uid)) return true
    const known = this.#held.get(uid)
    const isHeld = known?.agent === agent && known.held.attempt === attempt
    if (!isHeld && agent.hasReportedEarlier) return false
    if (isHeld) this.#held.delete(uid)
    if (this.#addResult(end) && refersToObject(end)) this.#sources.set(end, source)
    return true
  }

  /** Adds an event. It is reported before the task's result or when the attempt is adopted. */
  addEvent(uid: string, pending: PendingEvent): void {
    const known = this.#events.get(uid)
    if (known === undefined) this.#events.set(uid, [pending])
    else known.push(pending)
  }

  removeEvents(uid: string): readonly PendingEvent[] {
    const events = this.#events.get(uid) ?? []
    this.#events.delete(uid)
    return events
  }

  findUnread(epoch: number): ReadonlySet<number> {
    const sources = [...this.#sources.values()].filter((source) => source.epoch === epoch)
    return new Set(sources.map(({ number }) => number))
  }

  addLost(lost: readonly LostAttempt[]): void {
    for (const { uid, attempt, message } of lost) {
      const error = toErrorRecord(new WorkerLostError(message, { code: 'NodeLostError' }))
      const outcome = { kind: 'fail', error, isThrown: false } as const
      this.#addResult({ ...unreportedFields, uid, attempt, outcome })
    }
  }

  /** Adds attempts that did not fail, but whose numbers must not be used again. */
  addMoved(moved: readonly JobReference[]): void {
    const outcome = { kind: 'cancel', reason: 'it has moved' } as const
    for (const [uid, attempt] of moved)
      this.#addResult({ ...unreportedFields, uid, attempt, outcome })
  }

  findUnbegun(agent: RemoteAgent): readonly JobReference[] {
    const found: JobReference[] = []
    for (const { held, agent: holder } of this.#held.values()) {
      if (holder === agent && held.beganMs === null) found.push([held.uid, held.attempt])
    }
    return found
  }

  addHeld(agent: RemoteAgent, held: readonly HeldJob[]): void {
    for (const one of held) {
      const reason = this.#canceled.get(one.uid)
      if (reason === undefined) this.#addHeld({ agent, held: one })
      else agent.cancel([one.uid, one.attempt], reason)
    }
  }

  /** Keeps the later of two attempts of a task. The earlier one was given up and is canceled. */
  #addHeld(added: AdoptedAttempt): void {
    const { uid } = added.held
    const known = this.#held.get(uid)
    const isLater = known === undefined || known.held.attempt < added.held.attempt
    if (isLater) this.#held.set(uid, added)
    const other = isLater ? known : added
    other?.agent.cancel([uid, other.held.attempt], 'it has moved')
  }

  /** Cancels all attempts of a task at all agents, including agents that have not answered yet. */
  cancel(uid: string, reason: string): void {
    this.#canceled.set(uid, reason)
    this.#events.delete(uid)
    const adoption = this.#held.get(uid)
    this.#held.delete(uid)
    adoption?.agent.cancel([uid, adoption.held.attempt], reason)
  }

  /**
   * Fails the begun attempts of a lost agent and returns them. The other tasks move to another
   * agent when they are submitted.
   */
  removeAgent(agent: RemoteAgent, reason: string): readonly LostAttempt[] {
    const lost: LostAttempt[] = []
    for (const [uid, { held, agent: holder }] of this.#held) {
      if (holder !== agent || held.beganMs === null) continue
      const message = `node ${agent.name} was lost while it ran task ${uid}: ${reason}`
      lost.push({ uid, attempt: held.attempt, message })
      this.#held.delete(uid)
    }
    this.addLost(lost)
    return lost
  }

  /** Marks an agent of an earlier driver as gone. It may have begun attempts nobody knows. */
  addMissing({ name, epoch }: AgentStart): void {
    this.#missing.set(epoch, name)
  }

  markFound({ epoch }: AgentStart): void {
    this.#missing.delete(epoch)
  }

  /**
   * For a task without a known attempt: the missing agent on which it may have begun, and the
   * maximum number of such attempts. `null` if an attempt is known or no agent is missing.
   */
  nextUnknownAttempts(
    uid: string,
    isFirst: boolean,
  ): { agent: AgentStart; attempts: number } | null {
    if (this.#missing.size === 0) return null
    const [epoch, name] = [...this.#missing].at(-1) ?? [0, '']
    const isNew = this.#failed.delete(uid) || isFirst
    return isNew ? { agent: { name, epoch }, attempts: this.#missing.size } : null
  }

  getHeld(uid: string): AdoptedAttempt | undefined {
    return this.#held.get(uid)
  }

  cancelHeld(uid: string): void {
    const adoption = this.#held.get(uid)
    this.#held.delete(uid)
    adoption?.agent.cancel([uid, adoption.held.attempt], 'it has moved')
  }

  has(uid: string): boolean {
    return this.#results.has(uid) || this.#held.has(uid)
  }

  /** Whether this is the latest known attempt of the task and has completed or failed. */
  hasEnded(uid: string, attempt: number): boolean {
    const last = this.#results.get(uid)?.at(-1)
    const isLatest = last?.attempt === attempt && !isCanceled(last)
    return isLatest && (this.#held.get(uid)?.held.attempt ?? 0) <= attempt
  }

  /**
   * Removes and returns the state of a task from `attempt` on. This is the latest attempt if it
   * runs or has completed, or else one failure per call. `null` if nothing is left.
   */
  takeContinuation(uid: string, attempt: number): Continuation | null {
    const adoption = this.#held.get(uid)
    const known = this.#results.get(uid) ?? []
    const ends = known.filter((end) => end.attempt >= attempt)
    this.#held.delete(uid)
    this.#results.delete(uid)
    const sources = new Map(known.map((end) => [end, this.#sources.get(end)]))
    for (const end of known) this.#sources.delete(end)
    const last = ends.at(-1)?.attempt ?? 0
    const heldAttempt = adoption?.held.attempt ?? 0
    if (adoption !== undefined && heldAttempt >= attempt && heldAttempt > last) {
      return {
        adoption,
        attempt: heldAttempt,
        uncounted: countUncounted(attempt, heldAttempt, ends),
      }
    }
    const completed = ends.findLast(({ outcome }) => isCompletion(outcome))
    const end = completed ?? ends.find((one) => !isCanceled(one))
    if (end === undefined) {
      const next = last + 1
      return last === 0 ? null : { attempt: next, uncounted: countUncounted(attempt, next, ends) }
    }
    const laterResults = completed === undefined ? ends.slice(ends.indexOf(end) + 1) : []
    if (laterResults.length > 0) this.#results.set(uid, laterResults)
    for (const one of laterResults) {
      const kept = sources.get(one)
      if (kept !== undefined) this.#sources.set(one, kept)
    }
    const source = sources.get(end)
    if (completed === undefined && laterResults.length === 0 && this.#missing.size > 0) {
      this.#failed.add(uid)
    }
    const common = { attempt: end.attempt, uncounted: countUncounted(attempt, end.attempt, ends) }
    return { end, ...(source === undefined ? {} : { source }), ...common }
  }

  #addResult(end: WireResult): boolean {
    const known = this.#results.get(end.uid) ?? []
    if (known.some(({ attempt }) => attempt === end.attempt)) return false
    this.#results.set(
      end.uid,
      [...known, end].toSorted((a, b) => a.attempt - b.attempt),
    )
    return true
  }
}

const unreportedFields = { index: -1, beganMs: null, atMs: 0, workerId: null, facts: null } as const

const isCompletion = ({ kind }: WireResult['outcome']): boolean =>
  kind === 'complete' || kind === 'complete-large'

const isCanceled = ({ outcome }: WireResult): boolean => outcome.kind === 'cancel'

const countUncounted = (from: number, to: number, ends: readonly WireResult[]): number =>
  to - from - ends.filter((end) => end.attempt < to && !isCanceled(end)).length

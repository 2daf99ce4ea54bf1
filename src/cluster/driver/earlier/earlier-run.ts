/**
 * The state that an earlier start of the same session left in the cluster: results in its stream,
 * and jobs that agents hold. A task that is submitted again with its uid continues from this state.
 */

import { toErrorRecord } from '../../../foundation/error-record.ts'
import { WorkerLostError } from '../../../foundation/errors.ts'
import { unpackCompletions } from '../../wire/completions.ts'
import { namesObject } from '../../wire/ends.ts'
import type {
  AgentStart,
  EndsMessage,
  HeldJob,
  JobReference,
  LostAttempt,
  WireEnd,
  WireEvent,
} from '../../wire/messages.ts'
import type { AgentLink } from '../agent-link.ts'
import type { EventSource } from '../directory/clock-offset.ts'

/** The message of a result, whose agent can be asked again for an object of the result. */
export interface EndSource {
  readonly agent: string
  readonly epoch: number
  readonly number: number
}

export interface Adoption {
  readonly agent: AgentLink
  readonly held: HeldJob
}

/** An event that a task's code sent while its driver was away. */
export interface PendingEvent {
  readonly source: EventSource
  readonly event: WireEvent
}

/** How a task continues. Without a result or an adopted attempt it must run. */
export interface Continuation {
  /** Never a cancellation: tasks that were canceled with their driver run again. */
  readonly end?: WireEnd
  /** Only set for a result that refers to an object. */
  readonly source?: EndSource
  readonly adoption?: Adoption
  /** The number of this attempt, or of the next one. */
  readonly attempt: number
  /** Attempts before this one that are not failures of the task: canceled or moved ones. */
  readonly uncounted: number
}

export class EarlierRun {
  /** The results of each task, in ascending order of attempts. */
  readonly #ends = new Map<string, readonly WireEnd[]>()
  readonly #held = new Map<string, Adoption>()
  readonly #events = new Map<string, PendingEvent[]>()
  /** The messages of results that refer to objects. */
  readonly #sources = new Map<WireEnd, EndSource>()
  /** The names of agents of earlier starts that are gone, by epoch. */
  readonly #missing = new Map<number, string>()
  /** Tasks whose last known attempt has failed, while agents are missing. */
  readonly #failed = new Set<string>()
  /**
   * The cancel reasons of tasks that were canceled before it was known which attempts agents hold.
   */
  readonly #canceled = new Map<string, string>()

  get isEmpty(): boolean {
    return this.#ends.size === 0 && this.#held.size === 0
  }

  /** `epoch` and `number` identify the message: the use of its agent, and its number there. */
  addEnds(message: EndsMessage, epoch: number, number: number): void {
    const { agent, completions, ends, reports = [] } = message
    for (const event of reports.flatMap(({ events }) => events)) {
      const source = { name: agent, agent: null }
      if (event.taskId !== null) this.addEvent(event.taskId, { source, event })
    }
    for (const { value, ...completion } of unpackCompletions(completions)) {
      const outcome = { kind: 'complete', value } as const
      this.#addEnd({ ...completion, facts: null, outcome })
    }
    for (const end of ends) {
      if (this.#addEnd(end) && namesObject(end)) this.#sources.set(end, { agent, epoch, number })
    }
  }

  /**
   * Adds a result that arrived after its agent has listed its attempts. It is kept until its task
   * is submitted. `false` if it does not belong to an earlier start.
   */
  addLateEnd(agent: AgentLink, end: WireEnd, source: EndSource): boolean {
    const { uid, attempt } = end
    if (this.#canceled.has(uid)) return true
    const known = this.#held.get(uid)
    const isHeld = known?.agent === agent && known.held.attempt === attempt
    if (!isHeld && agent.hasReportedEarlier) return false
    if (isHeld) this.#held.delete(uid)
    if (this.#addEnd(end) && namesObject(end)) this.#sources.set(end, source)
    return true
  }

  /** Adds an event, which is reported before the task's result, or when the task is adopted. */
  addEvent(uid: string, pending: PendingEvent): void {
    const known = this.#events.get(uid)
    if (known === undefined) this.#events.set(uid, [pending])
    else known.push(pending)
  }

  takeEvents(uid: string): readonly PendingEvent[] {
    const events = this.#events.get(uid) ?? []
    this.#events.delete(uid)
    return events
  }

  /** Messages of one use of an agent that refer to unread objects. */
  unreadOf(epoch: number): ReadonlySet<number> {
    const sources = [...this.#sources.values()].filter((source) => source.epoch === epoch)
    return new Set(sources.map(({ number }) => number))
  }

  /** Adds attempts that the earlier start has failed because their nodes were lost. */
  addLost(lost: readonly LostAttempt[]): void {
    for (const { uid, attempt, message } of lost) {
      const error = toErrorRecord(new WorkerLostError(message, { code: 'NodeLostError' }))
      const outcome = { kind: 'fail', error, isThrown: false } as const
      this.#addEnd({ ...unreported, uid, attempt, outcome })
    }
  }

  /** Adds attempts that did not fail, but whose numbers must not be used again. */
  addMoved(moved: readonly JobReference[]): void {
    const outcome = { kind: 'cancel', reason: 'it has moved' } as const
    for (const [uid, attempt] of moved) this.#addEnd({ ...unreported, uid, attempt, outcome })
  }

  /** Attempts that an agent holds, without a reported start. */
  unbegunOf(agent: AgentLink): readonly JobReference[] {
    const found: JobReference[] = []
    for (const { held, agent: holder } of this.#held.values()) {
      if (holder === agent && held.beganMs === null) found.push([held.uid, held.attempt])
    }
    return found
  }

  addHeld(agent: AgentLink, held: readonly HeldJob[]): void {
    for (const one of held) {
      const reason = this.#canceled.get(one.uid)
      if (reason === undefined) this.#addHeld({ agent, held: one })
      else agent.cancel([one.uid, one.attempt], reason)
    }
  }

  /** Keeps the later of two attempts of a task, because the earlier one was given up. */
  #addHeld(added: Adoption): void {
    const { uid } = added.held
    const known = this.#held.get(uid)
    const isLater = known === undefined || known.held.attempt < added.held.attempt
    if (isLater) this.#held.set(uid, added)
    const other = isLater ? known : added
    other?.agent.cancel([uid, other.held.attempt], 'it has moved')
  }

  /**
   * Cancels all attempts of a task that agents hold, including agents that have not answered yet.
   */
  cancel(uid: string, reason: string): void {
    this.#canceled.set(uid, reason)
    this.#events.delete(uid)
    const adoption = this.#held.get(uid)
    this.#held.delete(uid)
    adoption?.agent.cancel([uid, adoption.held.attempt], reason)
  }

  /**
   * Removes an agent that is gone. Returns its attempts that had begun, which have failed. The
   * others move when their tasks are submitted.
   */
  forget(agent: AgentLink, reason: string): readonly LostAttempt[] {
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

  /** Marks an agent of an earlier start as gone. It may have begun unknown attempts. */
  addMissing({ name, epoch }: AgentStart): void {
    this.#missing.set(epoch, name)
  }

  /** Called when a missing agent has come back and has listed its attempts. */
  found({ epoch }: AgentStart): void {
    this.#missing.delete(epoch)
  }

  /**
   * For a task without a known attempt, returns the missing agent at which it may have begun, and
   * the maximum number of such attempts. `null` if there is none.
   */
  takeUnknown(uid: string, isFirst: boolean): { agent: AgentStart; attempts: number } | null {
    if (this.#missing.size === 0) return null
    const [epoch, name] = [...this.#missing].at(-1) ?? [0, '']
    const isNew = this.#failed.delete(uid) || isFirst
    return isNew ? { agent: { name, epoch }, attempts: this.#missing.size } : null
  }

  /** The attempt of a task that an agent holds. */
  heldOf(uid: string): Adoption | undefined {
    return this.#held.get(uid)
  }

  /** Cancels the held attempt of a task, because it is not needed. */
  giveUp(uid: string): void {
    const adoption = this.#held.get(uid)
    this.#held.delete(uid)
    adoption?.agent.cancel([uid, adoption.held.attempt], 'it has moved')
  }

  has(uid: string): boolean {
    return this.#ends.has(uid) || this.#held.has(uid)
  }

  /** Whether this attempt is the latest one, and has completed or failed. */
  hasEnded(uid: string, attempt: number): boolean {
    const last = this.#ends.get(uid)?.at(-1)
    const isLatest = last?.attempt === attempt && !isCanceled(last)
    return isLatest && (this.#held.get(uid)?.held.attempt ?? 0) <= attempt
  }

  /**
   * Takes the remaining state of a task from this attempt on: its latest attempt if that is running
   * or has completed, otherwise its failures one after the other, so that they count as attempts.
   * Each is returned once. `null` if nothing remains.
   */
  take(uid: string, attempt: number): Continuation | null {
    const adoption = this.#held.get(uid)
    const known = this.#ends.get(uid) ?? []
    const ends = known.filter((end) => end.attempt >= attempt)
    this.#held.delete(uid)
    this.#ends.delete(uid)
    const sources = new Map(known.map((end) => [end, this.#sources.get(end)]))
    for (const end of known) this.#sources.delete(end)
    const last = ends.at(-1)?.attempt ?? 0
    const heldAttempt = adoption?.held.attempt ?? 0
    if (adoption !== undefined && heldAttempt >= attempt && heldAttempt > last) {
      return { adoption, attempt: heldAttempt, uncounted: countOthers(attempt, heldAttempt, ends) }
    }
    const completed = ends.findLast(({ outcome }) => isCompletion(outcome))
    const end = completed ?? ends.find((one) => !isCanceled(one))
    if (end === undefined) {
      const next = last + 1
      return last === 0 ? null : { attempt: next, uncounted: countOthers(attempt, next, ends) }
    }
    const later = completed === undefined ? ends.slice(ends.indexOf(end) + 1) : []
    if (later.length > 0) this.#ends.set(uid, later)
    for (const one of later) this.#keepSource(one, sources.get(one))
    const source = sources.get(end)
    if (completed === undefined && later.length === 0 && this.#missing.size > 0) {
      this.#failed.add(uid)
    }
    const common = { attempt: end.attempt, uncounted: countOthers(attempt, end.attempt, ends) }
    return { end, ...(source === undefined ? {} : { source }), ...common }
  }

  #keepSource(end: WireEnd, source: EndSource | undefined): void {
    if (source !== undefined) this.#sources.set(end, source)
  }

  /** `false` if the result is already known. */
  #addEnd(end: WireEnd): boolean {
    const known = this.#ends.get(end.uid) ?? []
    if (known.some(({ attempt }) => attempt === end.attempt)) return false
    this.#ends.set(
      end.uid,
      [...known, end].toSorted((a, b) => a.attempt - b.attempt),
    )
    return true
  }
}

/** The fields of a result that no agent has reported. */
const unreported = { index: -1, beganMs: null, atMs: 0, workerId: null, facts: null } as const

const isCompletion = ({ kind }: WireEnd['outcome']): boolean =>
  kind === 'complete' || kind === 'complete-large'

const isCanceled = ({ outcome }: WireEnd): boolean => outcome.kind === 'cancel'

/**
 * The number of attempts from `from` up to, but not including, `to` that are not known to have
 * failed.
 */
const countOthers = (from: number, to: number, ends: readonly WireEnd[]): number =>
  to - from - ends.filter((end) => end.attempt < to && !isCanceled(end)).length

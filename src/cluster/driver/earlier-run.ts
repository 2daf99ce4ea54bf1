/**
 * What an earlier start of the same session left in the cluster: ends that its stream has, and jobs
 * that agents hold. A task that is submitted again under its uid gets these instead of a new start.
 */

import { type BackendListener, toEventNotice } from '../../backends/backend.ts'
import { TaskMoved } from '../../events/library-events.ts'
import { toErrorRecord } from '../../foundation/error-record.ts'
import { WorkerLostError } from '../../foundation/errors.ts'
import { unpackCompletions } from '../wire/completions.ts'
import { namesObject } from '../wire/ends.ts'
import type { AgentStart, EndsMessage, HeldJob, LostAttempt, WireEnd } from '../wire/messages.ts'
import type { AgentLink, DriverJob } from './agent-link.ts'
import type { DriverJobs } from './driver-jobs.ts'
import type { ReceivedMessage } from './recorded-messages.ts'

/** The message that told an end: its agent may be asked again for an object that it names. */
interface EndSource {
  readonly agent: string
  readonly epoch: number
  readonly number: number
}

export interface Adoption {
  readonly agent: AgentLink
  readonly held: HeldJob
}

/** How a task goes on. Without an end or an adoption it has to run. */
export interface Continuation {
  /** Not a cancellation: what was canceled with its driver has not ended for a later one. */
  readonly end?: WireEnd
  /** Only of an end that names an object. */
  readonly source?: EndSource
  readonly adoption?: Adoption
  /** The number of this attempt, or of the next one. */
  readonly attempt: number
  /** Attempts before it that are no failures of the task: they were canceled, or have moved. */
  readonly uncounted: number
}

export class EarlierRun {
  /** Of each task in ascending order of its attempts. */
  readonly #ends = new Map<string, readonly WireEnd[]>()
  readonly #held = new Map<string, Adoption>()
  /** Of ends that name objects. */
  readonly #sources = new Map<WireEnd, EndSource>()
  /** By start: agents of earlier starts that are gone, and their names. */
  readonly #missing = new Map<number, string>()
  /** Tasks whose last known attempt has failed, if agents are missing. */
  readonly #failed = new Set<string>()

  get isEmpty(): boolean {
    return this.#ends.size === 0 && this.#held.size === 0
  }

  /** The message has this number in this use of its agent. */
  addEnds({ agent, completions, ends }: EndsMessage, epoch: number, number: number): void {
    for (const { value, ...completion } of unpackCompletions(completions)) {
      const outcome = { kind: 'complete', value } as const
      this.#addEnd({ ...completion, facts: null, outcome })
    }
    for (const end of ends) {
      if (this.#addEnd(end) && namesObject(end)) this.#sources.set(end, { agent, epoch, number })
    }
  }

  /** Messages of a use of an agent that name objects which nobody has asked for yet. */
  unreadOf(epoch: number): ReadonlySet<number> {
    const sources = [...this.#sources.values()].filter((source) => source.epoch === epoch)
    return new Set(sources.map(({ number }) => number))
  }

  /** Attempts that the earlier start has failed because their nodes were lost. */
  addLost(lost: readonly LostAttempt[]): void {
    for (const { uid, attempt, message } of lost) {
      const error = toErrorRecord(new WorkerLostError(message, { code: 'NodeLostError' }))
      const outcome = { kind: 'fail', error, isThrown: false } as const
      const unknown = { index: -1, beganMs: null, atMs: 0, workerId: null, facts: null }
      this.#addEnd({ ...unknown, uid, attempt, outcome })
    }
  }

  addHeld(agent: AgentLink, held: readonly HeldJob[]): void {
    for (const one of held) {
      const known = this.#held.get(one.uid)
      if (known === undefined || known.held.attempt < one.attempt) {
        this.#held.set(one.uid, { agent, held: one })
      }
    }
  }

  /**
   * An agent is gone, with what it held. Returns what it had begun: these attempts have failed. The
   * rest moves when its tasks are submitted.
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

  /** An agent of an earlier start is gone: it may have begun what nobody knows of. */
  miss({ name, epoch }: AgentStart): void {
    this.#missing.set(epoch, name)
  }

  /** It has come back, and has told what it has. */
  found({ epoch }: AgentStart): void {
    this.#missing.delete(epoch)
  }

  /**
   * For a task of which no further attempt is known: where it may have begun for an earlier start,
   * and how many such attempts there may be at most. `null` if nowhere.
   */
  takeUnknown(uid: string, isFirst: boolean): { nodeId: string; attempts: number } | null {
    if (this.#missing.size === 0) return null
    const [nodeId = ''] = [...this.#missing.values()].toReversed()
    const isNew = this.#failed.delete(uid) || isFirst
    return isNew ? { nodeId, attempts: this.#missing.size } : null
  }

  /** An attempt that an agent holds and that is older than this one. */
  takeOlder(uid: string, attempt: number): Adoption | null {
    const adoption = this.#held.get(uid)
    if (adoption === undefined || adoption.held.attempt >= attempt) return null
    this.#held.delete(uid)
    return adoption
  }

  has(uid: string): boolean {
    return this.#ends.has(uid) || this.#held.has(uid)
  }

  /** Whether this attempt has ended, other than with its driver, and is the latest one. */
  hasEnded(uid: string, attempt: number): boolean {
    const last = this.#ends.get(uid)?.at(-1)
    const isLatest = last?.attempt === attempt && !isCanceled(last)
    return isLatest && (this.#held.get(uid)?.held.attempt ?? 0) <= attempt
  }

  /**
   * What is left of a task from this attempt on: its latest attempt if that runs or has completed,
   * else its failures one after the other, so that they count as attempts. Each is given once.
   * `null` when there is nothing.
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

  /** `false` if it was there. */
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

const isCompletion = ({ kind }: WireEnd['outcome']): boolean =>
  kind === 'complete' || kind === 'complete-large'

const isCanceled = ({ outcome }: WireEnd): boolean => outcome.kind === 'cancel'

/** Of the attempts from one number to another those that have not failed, as far as is known. */
const countOthers = (from: number, to: number, ends: readonly WireEnd[]): number =>
  to - from - ends.filter((end) => end.attempt < to && !isCanceled(end)).length

export interface ContinuedJobsOptions {
  readonly jobs: DriverJobs
  readonly earlier: EarlierRun
  /** Reports an end that the earlier start has left, and the message if its agent has it. */
  readonly takeEnd: (one: DriverJob, end: WireEnd, message: ReceivedMessage | null) => void
  /** The agents that are used now. */
  readonly agents: ReadonlyMap<string, AgentLink>
  readonly listener: BackendListener
}

/** Jobs of this start that go on where an earlier one has left their tasks. */
export class ContinuedJobs {
  readonly #options: ContinuedJobsOptions
  #isBusy = false
  /** By node: tasks that may have begun there. */
  readonly #moved = new Map<string, string[]>()

  constructor(options: ContinuedJobsOptions) {
    this.#options = options
  }

  /** Jobs that wait are being compared with what is left: nothing may be sent. */
  get isBusy(): boolean {
    return this.#isBusy
  }

  /**
   * For jobs that were submitted before it was known what an earlier start left. The session may
   * submit or cancel others while it is told of an end.
   */
  continueWaiting(): void {
    this.#compareAll()
    this.tellMoved()
  }

  #compareAll(): void {
    const { jobs, earlier } = this.#options
    if (earlier.isEmpty || this.#isBusy) return
    this.#isBusy = true
    for (const one of jobs.all) {
      if (one.isEnding || !earlier.has(one.uid) || !jobs.has(one)) continue
      const older = earlier.takeOlder(one.uid, one.wireAttempt)
      older?.agent.cancel([one.uid, older.held.attempt], 'it has moved')
      if (one.agent !== null) this.#endPlaced(one, one.agent)
      else {
        jobs.placement.remove(one)
        if (!this.#takeLeft(one)) jobs.placement.putBack([one])
      }
    }
    this.#isBusy = false
  }

  /** Once, when it is known what an earlier start left: for all that was submitted before. */
  continueFirst(): void {
    const { jobs } = this.#options
    const before = jobs.all
    this.#compareAll()
    for (const one of before) {
      if (one.agent === null && !one.isEnding && jobs.has(one)) this.#skipUnknown(one)
    }
    this.tellMoved()
  }

  /** Tells of jobs that may have begun at nodes that are gone, and begin again elsewhere. */
  tellMoved(): void {
    // At its end, of all at once.
    if (this.#isBusy) return
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

  /** Numbers that agents may have used of which nobody knows are not used again. */
  #skipUnknown(one: DriverJob): void {
    if (one.group !== null) return
    const { jobs, earlier } = this.#options
    const unknown = earlier.takeUnknown(one.uid, one.job.attempt === 1)
    if (unknown === null) return
    jobs.renumber(one, unknown.attempts)
    this.#addMoved(unknown.nodeId, one.uid)
  }

  #messageOf({ agent, epoch, number }: EndSource): ReceivedMessage | null {
    const { jobs, agents } = this.#options
    const link = agents.get(agent)
    if (link?.endsEpoch !== epoch || !link.keeps(number)) return null
    return jobs.recorded.expect(link, number, 1)
  }

  /** One that was sent before it was known that its attempt has ended, here or elsewhere. */
  #endPlaced(one: DriverJob, agent: AgentLink): void {
    const { jobs, earlier } = this.#options
    if (one.group !== null || !earlier.hasEnded(one.uid, one.wireAttempt)) return
    agent.cancel([one.uid, one.wireAttempt], 'an earlier start has ended it')
    jobs.leave(one)
    this.#takeLeft(one)
  }

  /** Takes the end or the running attempt of an earlier start; `false` when the job must run. */
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
    // The agent may come back, and takes the number for what it has.
    const skipped = isGone ? 1 : 0
    jobs.continueFrom(one, attempt + skipped, uncounted + skipped)
    if (end !== undefined) {
      // A cancel that the session makes meanwhile changes nothing.
      one.isEnding = true
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
    return true
  }
}

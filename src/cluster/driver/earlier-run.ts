/**
 * What an earlier start of the same session left in the cluster: ends that its stream has, and jobs
 * that agents hold. A task that is submitted again under its uid gets these instead of a new start.
 */

import { toErrorRecord } from '../../foundation/error-record.ts'
import { WorkerLostError } from '../../foundation/errors.ts'
import { unpackCompletions } from '../wire/completions.ts'
import { namesObject } from '../wire/ends.ts'
import type { EndsMessage, HeldJob, WireEnd } from '../wire/messages.ts'
import type { AgentLink, DriverJob } from './agent-link.ts'
import type { DriverJobs } from './driver-jobs.ts'
import type { ReceivedMessage } from './recorded-messages.ts'
import type { LostAttempt } from './used-agents.ts'

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
  /** Attempts before it that were canceled: they are no failures of the task. */
  readonly uncounted: number
}

export class EarlierRun {
  /** Of each task in ascending order of its attempts. */
  readonly #ends = new Map<string, readonly WireEnd[]>()
  readonly #held = new Map<string, Adoption>()
  /** Of ends that name objects. */
  readonly #sources = new Map<WireEnd, EndSource>()

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

  /** An agent is gone, with what it held. */
  forget(agent: AgentLink): void {
    for (const [uid, held] of this.#held) if (held.agent === agent) this.#held.delete(uid)
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
      return { adoption, attempt: heldAttempt, uncounted: ends.filter(isCanceled).length }
    }
    const completed = ends.findLast(({ outcome }) => isCompletion(outcome))
    const end = completed ?? ends.find((one) => !isCanceled(one))
    if (end === undefined) return last === 0 ? null : { attempt: last + 1, uncounted: ends.length }
    const later = completed === undefined ? ends.slice(ends.indexOf(end) + 1) : []
    if (later.length > 0) this.#ends.set(uid, later)
    for (const one of later) this.#keepSource(one, sources.get(one))
    const source = sources.get(end)
    const before = ends.slice(0, ends.indexOf(end))
    const uncounted = before.filter(isCanceled).length
    return { end, ...(source === undefined ? {} : { source }), attempt: end.attempt, uncounted }
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

export interface ContinuedJobsOptions {
  readonly jobs: DriverJobs
  readonly earlier: EarlierRun
  /** Reports an end that the earlier start has left, and the message if its agent has it. */
  readonly takeEnd: (one: DriverJob, end: WireEnd, message: ReceivedMessage | null) => void
  /** The agents that are used now. */
  readonly agents: ReadonlyMap<string, AgentLink>
}

/** Jobs of this start that go on where an earlier one has left their tasks. */
export class ContinuedJobs {
  readonly #options: ContinuedJobsOptions
  #isBusy = false

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
    const { jobs, earlier } = this.#options
    if (earlier.isEmpty || this.#isBusy) return
    this.#isBusy = true
    for (const one of jobs.all) {
      if (one.isEnding || !earlier.has(one.uid) || !jobs.has(one)) continue
      if (one.agent !== null) this.#endPlaced(one, one.agent)
      else {
        jobs.placement.remove(one)
        if (!this.continue(one)) jobs.placement.putBack([one])
      }
    }
    this.#isBusy = false
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
    this.continue(one)
  }

  /** Takes the end or the running attempt of an earlier start; `false` when the job must run. */
  continue(one: DriverJob): boolean {
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

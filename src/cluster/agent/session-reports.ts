/** An agent's reports to a session's driver besides results: starts, returned jobs, events. */

import type { EventNotice } from '../../backends/backend.ts'
import type { Clock } from '../../foundation/clock.ts'
import { encode } from '../wire/codec.ts'
import type {
  AgentReport,
  NotAllowed,
  ReturnedJob,
  SentJob,
  ReportedEvents,
  WireEvent,
  WireStart,
} from '../wire/messages.ts'
import type { HeldAttempt } from './held-attempt.ts'

export interface SessionReportsOptions {
  readonly clock: Clock
  readonly head: () => Pick<AgentReport, 'offer' | 'endMessages' | 'needsRoom'>
  /** The maximum payload of a message, in bytes. */
  readonly limitBytes: () => number
  readonly link: () => ReportLink
  /** Called only for the first event that is dropped. */
  readonly onDropped: (why: string) => void
}

/** The link over which reports are sent. */
export interface ReportLink {
  send(payload: Buffer, hasEvents: boolean): void
  /** How many bytes the driver has not confirmed. */
  readonly unconfirmedBytes: number
}

/** While this many bytes wait for an unreachable driver, further events are dropped. */
const maxUnconfirmedBytes = 64 * 1024 * 1024

/** A start is reported after this time, unless the attempt has ended by then. */
const startNoticeMs = 50

export class SessionReports {
  readonly #options: SessionReportsOptions
  #starts: HeldAttempt[] = []
  #returned: ReturnedJob[] = []
  #events: WireEvent[] = []
  #lostBundles: string[] = []
  #isDue = false
  #dropped = 0

  constructor(options: SessionReportsOptions) {
    this.#options = options
  }

  addStart(held: HeldAttempt): void {
    this.#starts.push(held)
    if (this.#starts.length > 1) return
    this.#options.clock.after(startNoticeMs, () => this.#sendStarts())
  }

  /** Most attempts have ended by now, and their results include their starts. */
  #sendStarts(): void {
    if (this.#events.length > 0) return this.send()
    this.#starts = this.#starts.filter(({ isHeld }) => isHeld)
    if (this.#starts.length > 0) this.sendSoon()
  }

  /** Adds a job that has not begun. With `notAllowed`, the driver must not send it here again. */
  addReturned({ index, uid, attempt }: SentJob, notAllowed?: NotAllowed): void {
    const why = notAllowed === undefined ? {} : { notAllowed }
    this.#returned.push({ index, uid, attempt, ...why })
    this.sendSoon()
  }

  /** Reports that the broker has lost a bundle. */
  addLostBundle(digest: string): void {
    this.#lostBundles.push(digest)
    this.sendSoon()
  }

  /**
   * Wall clocks of machines differ, so the time is converted to the monotonic clock, whose offset
   * is known. The process may be interrupted between the two readings, but no event of a task gets
   * a time before its start or before an earlier event.
   */
  addEvent({ type, fields, taskId }: EventNotice, held?: HeldAttempt): void {
    const { clock, link } = this.#options
    if (link().unconfirmedBytes > maxUnconfirmedBytes) {
      return this.#drop(`${type.eventType}: the driver has not taken the earlier ones`)
    }
    const { event_time: at, ...own } = fields as { readonly event_time?: unknown }
    const nowMs = clock.monotonicMs()
    const ageMs = typeof at === 'number' ? Math.max(0, clock.now() - at) * 1000 : 0
    const { eventType, schema } = type
    const atMs = Math.max(nowMs - ageMs, held?.beganMs ?? -Infinity, held?.lastEventMs ?? -Infinity)
    if (held !== undefined) held.lastEventMs = atMs
    this.#events.push({ eventType, schema, fields: own, taskId, atMs })
    this.sendSoon()
  }

  /**
   * Called when a driver attaches, which learns of running attempts from the answer. Sends events
   * that were not confirmed before, for tasks that continue or whose results will be sent.
   */
  restart(unconfirmed: readonly ReportedEvents[], isLeft: (uid: string) => boolean): void {
    this.#reset()
    const earlier = unconfirmed.flatMap(({ events }) => events)
    const left = earlier.filter(({ taskId }) => taskId !== null && isLeft(taskId))
    if (left.length > 0) this.#events = [...left, ...this.#events]
    this.sendEvents()
  }

  #reset(): void {
    this.#starts = []
    this.#returned = []
    this.#lostBundles = []
  }

  sendSoon(): void {
    if (this.#isDue) return
    this.#isDue = true
    this.#options.clock.nextTurn(() => {
      if (this.#isDue) this.send()
    })
  }

  /** Called before results are sent, because events of a task must precede its result. */
  sendEvents(): void {
    if (this.#events.length > 0) this.send()
  }

  send(): void {
    this.#isDue = false
    const { head } = this.#options
    const starts: WireStart[] = []
    // Results include starts, but are sent after events, and a start must precede its task's
    // events.
    const withEvents = new Set(this.#events.map(({ taskId }) => taskId))
    for (const held of this.#starts) {
      const { index, uid, attempt, beganMs, workerId, files, isHeld } = held
      if (beganMs === null || workerId === null) continue
      if (!isHeld && !withEvents.has(uid)) continue
      const known = files === null ? {} : { files }
      starts.push({ index, uid, attempt, atMs: beganMs, workerId, ...known })
    }
    const report: AgentReport = {
      kind: 'report',
      ...head(),
      starts,
      returned: this.#returned,
      events: this.#events,
      lostBundles: this.#lostBundles,
    }
    this.#reset()
    this.#events = []
    this.#sendReport(report)
  }

  /** Halves a report that is too large for a message, by its events, returned jobs and starts. */
  #sendReport(report: AgentReport): void {
    const { link, limitBytes } = this.#options
    const payload = encode(report)
    const { events, returned, starts } = report
    if (payload.length <= limitBytes()) return link().send(payload, events.length > 0)
    const nothing = { ...report, starts: [], returned: [], events: [], lostBundles: [] }
    if (events.length === 1) this.#drop(`${events[0]?.eventType}: it is too large for a message`)
    if (events.length === 1) this.#sendReport({ ...report, events: [] })
    else if (events.length > 1) {
      const [first, second] = halvesOf(events)
      this.#sendReport({ ...report, events: first })
      this.#sendReport({ ...nothing, events: second })
    } else if (returned.length > 1) {
      const [first, second] = halvesOf(returned)
      this.#sendReport({ ...report, returned: first })
      this.#sendReport({ ...nothing, returned: second })
    } else if (starts.length > 1) {
      const [first, second] = halvesOf(starts)
      this.#sendReport({ ...report, starts: first })
      this.#sendReport({ ...nothing, starts: second })
    } else link().send(payload, false)
  }

  #drop(why: string): void {
    if (this.#dropped++ === 0) this.#options.onDropped(why)
  }
}

function halvesOf<T>(all: readonly T[]): readonly [T[], T[]] {
  const middle = all.length >> 1
  return [all.slice(0, middle), all.slice(middle)]
}

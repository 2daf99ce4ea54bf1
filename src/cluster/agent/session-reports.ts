/** An agent's reports to a driver about starts, returned jobs and events, but not results. */

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
  readonly header: () => Pick<AgentReport, 'offer' | 'endMessages' | 'needsRoom'>
  readonly limitBytes: () => number
  readonly link: () => ReportLink
  /** Called only for the first event that is dropped. */
  readonly onDropped: (why: string) => void
}

export interface ReportLink {
  send(payload: Buffer, hasEvents: boolean): void
  readonly unconfirmedBytes: number
}

/** Events are dropped while more than this many bytes wait for an unreachable driver. */
const maxUnconfirmedBytes = 64 * 1024 * 1024

/** The delay before a start is reported. If the attempt ends sooner, only its result is sent. */
const startReportDelayMs = 50

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
    this.#options.clock.after(startReportDelayMs, () => this.#sendStarts())
  }

  /** Sends the starts of running attempts. The result of an ended attempt contains its start. */
  #sendStarts(): void {
    if (this.#events.length > 0) return this.send()
    this.#starts = this.#starts.filter(({ isHeld }) => isHeld)
    if (this.#starts.length > 0) this.scheduleSend()
  }

  /** If `notAllowed` is given, the driver must not send the job here again. */
  addReturned({ index, uid, attempt }: SentJob, notAllowed?: NotAllowed): void {
    const why = notAllowed === undefined ? {} : { notAllowed }
    this.#returned.push({ index, uid, attempt, ...why })
    this.scheduleSend()
  }

  addLostBundle(digest: string): void {
    this.#lostBundles.push(digest)
    this.scheduleSend()
  }

  /**
   * Adds an event with a monotonic time, because wall clocks differ. The time is never before the
   * start or the previous event of the attempt.
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
    this.scheduleSend()
  }

  /**
   * Prepares for a driver that attaches. Discards starts and returned jobs, because the answer to
   * the driver lists the held jobs and their starts. Sends the unconfirmed events of tasks whose
   * results are not recorded.
   */
  restart(unconfirmed: readonly ReportedEvents[], isKnownTask: (uid: string) => boolean): void {
    this.#reset()
    const earlier = unconfirmed.flatMap(({ events }) => events)
    const unreported = earlier.filter(({ taskId }) => taskId !== null && isKnownTask(taskId))
    if (unreported.length > 0) this.#events = [...unreported, ...this.#events]
    this.sendEvents()
  }

  #reset(): void {
    this.#starts = []
    this.#returned = []
    this.#lostBundles = []
  }

  scheduleSend(): void {
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
    const { header } = this.#options
    const starts: WireStart[] = []
    // A result includes the start of its attempt. An ended attempt needs a separate start only if
    // this report contains events of its task: the driver gets these before the result.
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
      ...header(),
      starts,
      returned: this.#returned,
      events: this.#events,
      lostBundles: this.#lostBundles,
    }
    this.#reset()
    this.#events = []
    this.#sendReport(report)
  }

  /** Splits a report that is too large for a message. */
  #sendReport(report: AgentReport): void {
    const { link, limitBytes } = this.#options
    const payload = encode(report)
    const { events } = report
    if (payload.length <= limitBytes()) return link().send(payload, events.length > 0)
    if (events.length === 1) {
      this.#drop(`${events[0]?.eventType}: it is too large for a message`)
      return this.#sendReport({ ...report, events: [] })
    }
    const list = (['events', 'returned', 'starts'] as const).find((one) => report[one].length > 1)
    if (list === undefined) return link().send(payload, false)
    const emptyReport = { ...report, starts: [], returned: [], events: [], lostBundles: [] }
    const middle = report[list].length >> 1
    this.#sendReport({ ...report, [list]: report[list].slice(0, middle) })
    this.#sendReport({ ...emptyReport, [list]: report[list].slice(middle) })
  }

  #drop(why: string): void {
    if (this.#dropped++ === 0) this.#options.onDropped(why)
  }
}

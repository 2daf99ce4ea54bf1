/** An agent's reports to a driver about starts, returned jobs and events, but not results. */

import type { EventNotice } from '../../../backends/backend.ts'
import type { Moment } from '../../../tasks/lifecycle.ts'
import { encode } from '../../wire/codec.ts'
import type {
  AgentReport,
  NotAllowed,
  ReturnedJob,
  SentJob,
  WireEvent,
  WireStart,
} from '../../wire/messages.ts'
import type { HeldAttempt } from './held-attempts.ts'
import { maxKeptBytes } from './kept-messages.ts'

export interface AgentReportsOptions {
  readonly limitBytes: () => number
  readonly header: (nowMs: number) => Pick<AgentReport, 'offer' | 'needsRoom'>
  readonly driverStart: () => number
  readonly unacknowledgedBytes: () => number
  readonly send: (payload: Buffer, hasEvents: boolean, nowMs: number) => void
  /** Called only for the first event that is dropped. */
  readonly onDropped: (why: string) => void
}

/** The delay before a start is reported. If the attempt ends sooner, only its result is sent. */
const startReportDelayMs = 50

type Listed = Pick<AgentReport, 'starts' | 'events' | 'returned' | 'lostBundles'>

export class AgentReports {
  readonly #options: AgentReportsOptions
  #starts: HeldAttempt[] = []
  #startsDueMs = Infinity
  #returned: ReturnedJob[] = []
  #events: WireEvent[] = []
  #lostBundles: string[] = []
  #sendDueMs = Infinity
  #dropped = 0

  constructor(options: AgentReportsOptions) {
    this.#options = options
  }

  /** When `wake` has something to do. */
  get dueMs(): number {
    return Math.min(this.#startsDueMs, this.#sendDueMs)
  }

  wake(dueMs: number, nowMs: number): void {
    if (this.#startsDueMs <= dueMs) this.#addStarts(nowMs)
    if (this.#sendDueMs <= dueMs) this.send(nowMs)
  }

  addStart(held: HeldAttempt, nowMs: number): void {
    this.#starts.push(held)
    if (this.#starts.length === 1) this.#startsDueMs = nowMs + startReportDelayMs
  }

  /** If `notAllowed` is given, the driver must not send the job here again. */
  addReturned(
    job: SentJob & { readonly driverStart: number },
    nowMs: number,
    why?: NotAllowed,
  ): void {
    const { index, uid, attempt } = job
    const notAllowed = why === undefined ? {} : { notAllowed: why }
    this.#returned.push({ index, uid, attempt, ...this.#ownStart(job), ...notAllowed })
    this.#scheduleSend(nowMs)
  }

  addLostBundle(digest: string, nowMs: number): void {
    this.#lostBundles.push(digest)
    this.#scheduleSend(nowMs)
  }

  /**
   * Adds an event with a monotonic time, because wall clocks differ. The time is never before the
   * start or the previous event of the attempt.
   */
  addEvent(
    { type, fields, taskId }: EventNotice,
    held: HeldAttempt | undefined,
    now: Moment,
  ): void {
    if (this.#options.unacknowledgedBytes() > maxKeptBytes) {
      return this.#drop(`${type.eventType}: the driver has not taken the earlier ones`)
    }
    const { event_time: at, ...own } = fields as { readonly event_time?: unknown }
    const ageMs = typeof at === 'number' ? Math.max(0, now.wallSeconds - at) * 1000 : 0
    const { eventType, schema } = type
    const earliestMs = Math.max(held?.beganMs ?? -Infinity, held?.lastEventMs ?? -Infinity)
    const atMs = Math.max(now.monotonicMs - ageMs, earliestMs)
    if (held !== undefined) held.lastEventMs = atMs
    this.#events.push({ eventType, schema, fields: own, taskId, atMs })
    this.#scheduleSend(now.monotonicMs)
  }

  /** Called before results are sent, because events of a task must precede its result. */
  sendEvents(nowMs: number): void {
    if (this.#events.length > 0) this.send(nowMs)
  }

  send(nowMs: number): void {
    const { starts, returned, events, lostBundles } = this.#takeAll()
    this.#send({ starts, returned, events, lostBundles }, nowMs)
  }

  /** Sends the starts and events of a report again, which an earlier driver may have got. */
  resend(report: AgentReport, sentByStart: number, nowMs: number): void {
    const driverStart = this.#options.driverStart()
    const toResent = (start: WireStart): WireStart =>
      sentByStart === driverStart ? start : { driverStart: sentByStart, ...start }
    const starts = report.starts.map(toResent)
    this.#send({ starts, events: report.events, returned: [], lostBundles: [] }, nowMs)
  }

  /** Forgets starts and returned jobs. The answer to a driver that attaches tells them. */
  reset(): void {
    this.#starts = []
    this.#startsDueMs = Infinity
    this.#returned = []
    this.#lostBundles = []
  }

  /** Reports starts of running attempts. The result of an ended attempt contains its start. */
  #addStarts(nowMs: number): void {
    this.#startsDueMs = Infinity
    if (this.#events.length === 0) this.#starts = this.#starts.filter(({ isHeld }) => isHeld)
    if (this.#starts.length > 0) this.#sendDueMs = Math.min(this.#sendDueMs, nowMs)
  }

  #scheduleSend(nowMs: number): void {
    if (this.#sendDueMs === Infinity) this.#sendDueMs = nowMs
  }

  #takeAll(): Listed {
    const starts: WireStart[] = []
    // A result includes the start of its attempt. An ended attempt needs a separate start only if
    // this report contains events of its task: the driver gets these before the result.
    const withEvents = new Set(this.#events.map(({ taskId }) => taskId))
    for (const held of this.#starts) {
      const { index, uid, attempt, beganMs, workerId, files, isHeld } = held
      if (beganMs === null || workerId === null) continue
      if (!isHeld && !withEvents.has(uid)) continue
      const known = files === null ? {} : { files }
      const own = this.#ownStart(held)
      starts.push({ index, uid, attempt, ...own, atMs: beganMs, workerId, ...known })
    }
    const listed = { starts, returned: this.#returned, events: this.#events }
    const lostBundles = this.#lostBundles
    this.reset()
    this.#events = []
    this.#sendDueMs = Infinity
    return { ...listed, lostBundles }
  }

  #ownStart({ driverStart }: { readonly driverStart: number }): { readonly driverStart?: number } {
    return driverStart === this.#options.driverStart() ? {} : { driverStart }
  }

  /** Splits a report that is too large for a message. */
  #send(listed: Listed, nowMs: number): void {
    const { send, limitBytes, header } = this.#options
    const report: AgentReport = { kind: 'report', ...header(nowMs), ...listed }
    const payload = encode(report)
    const { events } = listed
    if (payload.length <= limitBytes()) return send(payload, events.length > 0, nowMs)
    if (events.length === 1) {
      this.#drop(`${events[0]?.eventType}: it is too large for a message`)
      return this.#send({ ...listed, events: [] }, nowMs)
    }
    const list = (['events', 'returned', 'starts'] as const).find((one) => listed[one].length > 1)
    if (list === undefined) return send(payload, false, nowMs)
    const nothing: Listed = { starts: [], returned: [], events: [], lostBundles: [] }
    const middle = listed[list].length >> 1
    this.#send({ ...listed, [list]: listed[list].slice(0, middle) }, nowMs)
    this.#send({ ...nothing, [list]: listed[list].slice(middle) }, nowMs)
  }

  #drop(why: string): void {
    if (this.#dropped++ === 0) this.#options.onDropped(why)
  }
}

/** The views of a session that writes no record, from its events since the first viewer. */

import type { Clock } from '../../foundation/clock.ts'
import { StateError } from '../../foundation/errors.ts'
import type { TelemetryEvent } from '../../events/vocabulary.ts'
import { createRunPass } from '../../views/all-panels.ts'
import type { ViewEvent, ViewSpan } from '../../views/panel.ts'
import { EventRing } from '../fold/event-ring.ts'
import type { ViewQuery } from '../protocol.ts'
import { answerQuery, answersRevision } from '../queries/queries.ts'
import type { QuerySource, ServingFacts } from '../queries/query-source.ts'
import { createFactsReader, type ReadFacts } from './telemetry-facts.ts'
import type { ViewSource } from './view-source.ts'

/** The part of a session's telemetry that a dashboard uses. */
export interface DashboardTelemetry {
  readonly sessionId: string
  /** The path of the record, which the dashboard reads if there is one. */
  readonly checkpointFile: string | null
  /** Calls back with every event until the returned function is called. */
  subscribe(callback: (event: TelemetryEvent) => unknown): () => void
}

/** The source of a live view: a server of models, or the telemetry of a session. */
export interface LiveFeed extends DashboardTelemetry {
  /**
   * `null` if no earlier events are missing. The page then does not explain why the view begins
   * when it does.
   */
  readonly beginReason?: null
  /** Like `subscribe`, for the spans of requests. */
  subscribeSpans?(callback: (span: ViewSpan) => void): () => void
  serving?(): Omit<ServingFacts, 'since'>
}

export class LiveSource implements ViewSource {
  readonly hasReport = false
  readonly #feed: LiveFeed
  readonly #clock: Clock
  readonly #readFacts: ReadFacts
  readonly #pass = createRunPass()
  readonly #ring = new EventRing()
  #unsubscribe: (() => void)[] | null = null
  #since = 0
  #now = 0
  #lastTime = 0
  #hasEnded = false

  constructor(feed: LiveFeed, clock: Clock) {
    this.#feed = feed
    this.#clock = clock
    this.#readFacts = createFactsReader(feed, clock)
    if (feed.beginReason === null) this.#begin()
  }

  refresh(): Promise<string> {
    this.#begin()
    this.#now = this.#hasEnded ? this.#lastTime : Math.max(this.#lastTime, this.#clock.now())
    const revision = `${this.#pass.counts.events}.${answersRevision(this.#pass)}`
    return Promise.resolve(`${revision}.${Math.floor(this.#now)}`)
  }

  #begin(): void {
    if (this.#unsubscribe !== null) return
    this.#since = this.#clock.now()
    const unsubscribeSpans = this.#feed.subscribeSpans?.((span) => this.#pass.takeSpan(span))
    this.#unsubscribe = [
      this.#feed.subscribe((event) => this.#take(event)),
      unsubscribeSpans ?? (() => {}),
    ]
  }

  async answer(query: ViewQuery): Promise<string> {
    const telemetry = this.#readFacts(query.kind)
    return JSON.stringify(await answerQuery({ ...this.#source(), telemetry }, query))
  }

  report(): never {
    throw new StateError('there is no report, because the session writes no record')
  }

  close(): Promise<void> {
    for (const unsubscribe of this.#unsubscribe ?? []) unsubscribe()
    return Promise.resolve()
  }

  #take(event: ViewEvent): void {
    this.#pass.take(event)
    this.#ring.add(event)
    this.#lastTime = Math.max(this.#lastTime, event.event_time)
    this.#hasEnded = event.event_type === 'SessionEnded'
  }

  #serving(): ServingFacts | null {
    const facts = this.#feed.serving?.()
    return facts === undefined ? null : { ...facts, since: this.#since }
  }

  #source(): QuerySource {
    return {
      pass: this.#pass,
      sessionId: this.#feed.sessionId,
      state: this.#hasEnded ? 'ended' : 'running',
      now: this.#now,
      files: [],
      metrics: null,
      telemetry: null,
      serving: this.#serving(),
      events: this.#ring.latest,
      reading: null,
      beginsAt: this.#feed.beginReason === null ? null : { time: this.#since, reason: beginReason },
      missing: [],
      readTask: () => Promise.resolve(null),
      at: () => Promise.reject(new StateError('replay needs a record, which this run has not')),
    }
  }
}

const beginReason =
  'The session writes no record, so the page shows what happened since its first viewer came.'

/** An agent's link to the driver of a session: exchanges ordered messages, receives heartbeats. */

import { type Clock, sleep } from '../../foundation/clock.ts'
import { messageOf } from '../../foundation/errors.ts'
import type { Broker } from '../broker/broker.ts'
import { decode } from '../wire/codec.ts'
import { type Keys, open } from '../wire/envelope.ts'
import {
  type AgentReport,
  type Attach,
  type DriverMessage,
  type EventsMark,
  expectMessage,
  type Heartbeat,
  maxSilenceMs,
  type PriorityRange,
  type ReportedEvents,
} from '../wire/messages.ts'
import type { PlacingDriver } from './held-attempt.ts'
import { ReliableLink } from '../wire/reliable-link.ts'
import type { SessionSubjects } from '../wire/subjects.ts'

export interface DriverLinkOptions {
  readonly agent: string
  readonly keys: () => Keys
  readonly subjects: SessionSubjects
  readonly broker: Broker
  readonly clock: Clock
  readonly onMessage: (message: DriverMessage) => void
  readonly onHeartbeat: (beat: Heartbeat) => void
  readonly onRefused: (reason: string) => void
}

const settleIntervalMs = 50
const settleTimeoutMs = 3000
const driverMessageKinds = ['jobs', 'cancel', 'recall', 'recorded', 'missing'] as const

export class DriverLink implements PlacingDriver {
  readonly #options: DriverLinkOptions
  readonly #sendSubject: string
  readonly #unsubscribe: (() => void)[]
  #link: ReliableLink
  #linkId: number
  #eventsNumber = 0
  #epoch: number
  #run: string
  #heartbeats = 0
  #lastHeardMs = -Infinity
  #reconnectedMs = -Infinity
  /** The id of the broker's server at the last heartbeat; `null` if the driver had no stream. */
  #heartbeatServerId: string | null
  #lastBeat: Heartbeat | null = null

  constructor(options: DriverLinkOptions, attach: Attach) {
    const { agent, broker, subjects } = options
    this.#options = options
    this.#sendSubject = subjects.fromAgent(agent)
    this.#epoch = attach.epoch
    this.#run = attach.run
    this.#heartbeatServerId = broker.serverId
    this.#link = this.#connect(attach)
    this.#linkId = attach.link
    const down = subjects.toAgent(agent)
    this.#unsubscribe = [
      broker.subscribe(down, ({ subject, data }) => this.#link.receive(subject, data)),
      broker.subscribe(subjects.heartbeat, ({ subject, data }) =>
        this.#handleHeartbeat(subject, data),
      ),
    ]
  }

  get epoch(): number {
    return this.#epoch
  }

  /**
   * Whether the session was closed while this agent was disconnected, and the driver that attaches
   * belongs to a new run. `false` after a restart of the server, which may have lost the stream.
   */
  wasClosedBefore({ epoch, run }: Attach): boolean {
    const isNewRun = run !== this.#run && epoch > this.#epoch
    return isNewRun && this.#heartbeatServerId === this.#options.broker.serverId
  }

  get lastHeardMs(): number {
    return Math.max(this.#lastHeardMs, this.#link.lastHeardMs)
  }

  /**
   * Whether the driver was heard recently and since the last reconnect. Otherwise, another run may
   * have taken over the stream.
   */
  get isHeard(): boolean {
    const { lastHeardMs } = this
    const nowMs = this.#options.clock.monotonicMs()
    return lastHeardMs > this.#reconnectedMs && nowMs - lastHeardMs <= maxSilenceMs
  }

  get hasWaiting(): boolean {
    return this.#lastBeat?.hasWaiting ?? false
  }

  get waitingPriorities(): PriorityRange | null {
    return this.#lastBeat?.waitingPriorities ?? null
  }

  /**
   * `false` if the driver has waiting jobs but no idle cores: returned jobs would only move from
   * one agent to another.
   */
  get canPlaceReturned(): boolean {
    return !this.hasWaiting || this.#lastBeat?.hasIdle === true
  }

  /** Connects to a driver, possibly to the same one again. Returns the unconfirmed events. */
  attach(attach: Attach): readonly ReportedEvents[] {
    const unconfirmed = this.unconfirmedEvents
    if (this.#epoch !== attach.epoch) this.#heartbeats = 0
    this.#epoch = attach.epoch
    this.#run = attach.run
    this.#heartbeatServerId = this.#options.broker.serverId
    this.#link = this.#connect(attach)
    this.#linkId = attach.link
    this.#eventsNumber = 0
    return unconfirmed
  }

  send(payload: Buffer, hasEvents: boolean): void {
    const number = this.#link.send(this.#sendSubject, payload)
    if (hasEvents) this.#eventsNumber = number
  }

  get unconfirmedMark(): EventsMark | undefined {
    if (this.#link.isAcknowledged(this.#eventsNumber)) return undefined
    return { link: this.#linkId, number: this.#eventsNumber }
  }

  get unconfirmedBytes(): number {
    return this.#link.unacknowledgedBytes
  }

  get unconfirmedEvents(): readonly ReportedEvents[] {
    if (this.unconfirmedMark === undefined) return []
    const reports = this.#link.unacknowledged.map(({ number, payload }) => {
      const { starts, events } = decode(payload) as AgentReport
      return { link: this.#linkId, number, starts, events }
    })
    return reports.filter(({ starts, events }) => starts.length + events.length > 0)
  }

  /** Resolves when the driver has confirmed all events or is silent, or after a time limit. */
  async settle(): Promise<void> {
    const { clock } = this.#options
    const untilMs = clock.monotonicMs() + settleTimeoutMs
    for (; this.unconfirmedMark !== undefined; await sleep(clock, settleIntervalMs)) {
      const nowMs = clock.monotonicMs()
      if (nowMs > untilMs || nowMs - this.lastHeardMs > maxSilenceMs) return
      this.tick()
    }
  }

  tick(): void {
    this.#link.tick()
  }

  handleReconnect(): void {
    this.#reconnectedMs = this.#options.clock.monotonicMs()
    this.#link.resend()
  }

  close(): void {
    for (const unsubscribe of this.#unsubscribe) unsubscribe()
  }

  /** Creates a new link. The driver counts as heard at this time. */
  #connect({ link }: Attach): ReliableLink {
    const { clock, keys, broker, onMessage, onRefused } = this.#options
    return new ReliableLink({
      clock,
      sendKey: keys().toDriver,
      receiveKey: keys().toAgent,
      epoch: link,
      idleSubject: this.#sendSubject,
      publish: (subject, data) => broker.publish(subject, data),
      onMessage: (payload) => onMessage(expectMessage(payload, ...driverMessageKinds)),
      onRefused,
    })
  }

  #handleHeartbeat(subject: string, data: Uint8Array): void {
    const { keys, clock, broker, onHeartbeat, onRefused } = this.#options
    try {
      const { epoch, number, payload } = open(keys().toAgent, subject, data)
      if (epoch !== this.#epoch) return
      if (number <= this.#heartbeats) return onRefused('it was sent before')
      const beat = expectMessage(payload, 'beat')
      this.#heartbeats = number
      this.#lastHeardMs = clock.monotonicMs()
      // If the driver has no stream, this agent could not tell a dead driver from a closed session.
      this.#heartbeatServerId = beat.hasStream ? broker.serverId : null
      this.#lastBeat = beat
      onHeartbeat(beat)
    } catch (error) {
      // After a silence, the heartbeat may come from a new driver that has not attached yet.
      if (clock.monotonicMs() - this.lastHeardMs > maxSilenceMs) return
      onRefused(messageOf(error))
    }
  }
}

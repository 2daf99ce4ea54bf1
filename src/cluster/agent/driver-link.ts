/** An agent's link to the driver of a session: ordered messages, and the driver's heartbeats. */

import { type Clock, sleep } from '../../foundation/clock.ts'
import { messageOf } from '../../foundation/errors.ts'
import type { Broker } from '../broker/broker.ts'
import { decode } from '../wire/codec.ts'
import { type Keys, open } from '../wire/envelope.ts'
import { expectMessage } from '../wire/message-forms.ts'
import {
  type AgentReport,
  type Attach,
  type Beat,
  type DriverMessage,
  type EventsMark,
  silenceMs,
  type ReportedEvents,
  type PriorityRange,
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
  readonly onBeat: (beat: Beat) => void
  readonly onRefused: (reason: string) => void
}

/** How often `settle` checks whether the driver has all events. */
const settleMs = 50
const maxSettleMs = 3000
const driverKinds = ['jobs', 'cancel', 'recall', 'recorded', 'missing'] as const

export class DriverLink implements PlacingDriver {
  readonly #options: DriverLinkOptions
  readonly #upSubject: string
  readonly #unsubscribe: (() => void)[]
  #link: ReliableLink
  #linkId: number
  /** The number of the last message with events. */
  #eventsNumber = 0
  #epoch: number
  #run: string
  #beats = 0
  #heardMs = -Infinity
  /** When the connection was last restored. */
  #connectedMs = -Infinity
  /** The server over which the driver's last heartbeat came; `null` if it had no stream. */
  #beatServerId: string | null
  #hasWaiting = false
  #waitingPriorities: PriorityRange | null = null
  #hasIdle = true

  constructor(options: DriverLinkOptions, attach: Attach) {
    const { agent, broker, subjects } = options
    this.#options = options
    this.#upSubject = subjects.upFrom(agent)
    this.#epoch = attach.epoch
    this.#run = attach.run
    this.#beatServerId = broker.serverId
    this.#link = this.#connect(attach)
    this.#linkId = attach.link
    const down = subjects.downTo(agent)
    this.#unsubscribe = [
      broker.subscribe(down, ({ subject, data }) => this.#link.receive(subject, data)),
      broker.subscribe(subjects.beat, ({ subject, data }) => this.#takeBeat(subject, data)),
    ]
  }

  get epoch(): number {
    return this.#epoch
  }

  /**
   * Whether the session was closed while this agent was disconnected, and another driver attaches
   * for a new run. `false` if the server was restarted since, because it may have lost the stream.
   */
  hasClosedBefore({ epoch, run }: Attach): boolean {
    const isAnother = run !== this.#run && epoch > this.#epoch
    return isAnother && this.#beatServerId === this.#options.broker.serverId
  }

  /** When the last message of the driver arrived. */
  get heardMs(): number {
    return Math.max(this.#heardMs, this.#link.heardMs)
  }

  /**
   * Whether the session continues: the driver was heard recently, and since the last reconnect. A
   * disconnected agent is not notified when the session is closed or another run takes the stream.
   */
  get isHeard(): boolean {
    const { heardMs } = this
    const nowMs = this.#options.clock.monotonicMs()
    return heardMs > this.#connectedMs && nowMs - heardMs <= silenceMs
  }

  /** Whether the driver has jobs that wait for an agent. */
  get hasWaiting(): boolean {
    return this.#hasWaiting
  }

  /** The priorities of the driver's jobs that may be sent ahead; `null` if there are none. */
  get waitingPriorities(): PriorityRange | null {
    return this.#waitingPriorities
  }

  /**
   * Whether the driver could give returned jobs to another agent. While jobs wait and no cores are
   * idle, all agents have work, and slow agents would only pass the same jobs around.
   */
  get canPlaceMore(): boolean {
    return this.#hasIdle || !this.#hasWaiting
  }

  /**
   * Attaches a new or restarted driver, or the same one again, with a new message count. Returns
   * the events that were not confirmed over the previous link.
   */
  attach(attach: Attach): readonly ReportedEvents[] {
    const unconfirmed = this.unconfirmedEvents
    if (this.#epoch !== attach.epoch) this.#beats = 0
    this.#epoch = attach.epoch
    this.#run = attach.run
    this.#beatServerId = this.#options.broker.serverId
    this.#link = this.#connect(attach)
    this.#linkId = attach.link
    this.#eventsNumber = 0
    return unconfirmed
  }

  send(payload: Buffer, hasEvents: boolean): void {
    const number = this.#link.send(this.#upSubject, payload)
    if (hasEvents) this.#eventsNumber = number
  }

  /** The last message with events, if the driver has not confirmed it. */
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

  /** Resolves when the driver has confirmed all events, is silent, or a time limit has passed. */
  async settle(): Promise<void> {
    const { clock } = this.#options
    const untilMs = clock.monotonicMs() + maxSettleMs
    for (; this.unconfirmedMark !== undefined; await sleep(clock, settleMs)) {
      const nowMs = clock.monotonicMs()
      if (nowMs > untilMs || nowMs - this.heardMs > silenceMs) return
      this.tick()
    }
  }

  tick(): void {
    this.#link.tick()
  }

  /** Must be called after each reconnect. */
  reconnected(): void {
    this.#connectedMs = this.#options.clock.monotonicMs()
    this.#link.resend()
  }

  close(): void {
    for (const unsubscribe of this.#unsubscribe) unsubscribe()
  }

  /** With a new link, the driver counts as heard now. */
  #connect({ link }: Attach): ReliableLink {
    const { clock, keys, broker, onMessage, onRefused } = this.#options
    return new ReliableLink({
      clock,
      sendKey: keys().toDriver,
      receiveKey: keys().toAgent,
      epoch: link,
      idleSubject: this.#upSubject,
      publish: (subject, data) => broker.publish(subject, data),
      onMessage: (payload) => onMessage(expectMessage(payload, ...driverKinds)),
      onRefused,
    })
  }

  #takeBeat(subject: string, data: Uint8Array): void {
    const { keys, clock, broker, onBeat, onRefused } = this.#options
    try {
      const { epoch, number, payload } = open(keys().toAgent, subject, data)
      if (epoch !== this.#epoch) return
      if (number <= this.#beats) return onRefused('it was sent before')
      const beat = expectMessage(payload, 'beat')
      this.#beats = number
      this.#heardMs = clock.monotonicMs()
      // Without a stream, a driver that dies would look like one that closed the session.
      this.#beatServerId = beat.hasStream ? broker.serverId : null
      this.#hasWaiting = beat.hasWaiting
      this.#waitingPriorities = beat.waitingPriorities ?? null
      this.#hasIdle = beat.hasIdle
      onBeat(beat)
    } catch (error) {
      // While the known driver is silent, a new one may send heartbeats before it attaches here.
      if (clock.monotonicMs() - this.heardMs > silenceMs) return
      onRefused(messageOf(error))
    }
  }
}

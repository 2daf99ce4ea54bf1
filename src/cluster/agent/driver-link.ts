/** An agent's side of a session's driver: messages in order, and beats that say it is alive. */

import type { Clock } from '../../foundation/clock.ts'
import { messageOf } from '../../foundation/errors.ts'
import type { Broker } from '../broker/broker.ts'
import { type Keys, open } from '../wire/envelope.ts'
import type { Attach, Beat, DriverMessage } from '../wire/messages.ts'
import { ReliableLink } from '../wire/reliable-link.ts'
import type { SessionSubjects } from '../wire/subjects.ts'

export interface DriverLinkOptions {
  /** The agent's name. */
  readonly agent: string
  readonly keys: Keys
  readonly subjects: SessionSubjects
  readonly broker: Broker
  readonly clock: Clock
  readonly onMessage: (message: DriverMessage) => void
  readonly onBeat: (beat: Beat) => void
  readonly onRefused: (reason: string) => void
}

export class DriverLink {
  readonly #options: DriverLinkOptions
  readonly #upSubject: string
  readonly #unsubscribe: (() => void)[]
  #link: ReliableLink
  #epoch: number
  #beats = 0
  #heardMs = -Infinity
  #hasWaiting = false

  constructor(options: DriverLinkOptions, attach: Attach) {
    const { agent, broker, subjects } = options
    this.#options = options
    this.#upSubject = subjects.upFrom(agent)
    this.#epoch = attach.epoch
    this.#link = this.#connect(attach)
    const down = subjects.downTo(agent)
    this.#unsubscribe = [
      broker.subscribe(down, ({ subject, data }) => this.#link.receive(subject, data)),
      broker.subscribe(subjects.beat, ({ subject, data }) => this.#takeBeat(subject, data)),
    ]
  }

  /** The start of the driver that is listened to. */
  get epoch(): number {
    return this.#epoch
  }

  /** When it was heard last. */
  get heardMs(): number {
    return Math.max(this.#heardMs, this.#link.heardMs)
  }

  /** Whether it has work that waits for a place. */
  get hasWaiting(): boolean {
    return this.#hasWaiting
  }

  /** A driver attaches: a later start, or the same one, whose messages count anew. */
  attach(attach: Attach): void {
    if (this.#epoch !== attach.epoch) this.#beats = 0
    this.#epoch = attach.epoch
    this.#link = this.#connect(attach)
  }

  send(payload: Buffer): void {
    this.#link.send(this.#upSubject, payload)
  }

  tick(): void {
    this.#link.tick()
  }

  resend(): void {
    this.#link.resend()
  }

  close(): void {
    for (const unsubscribe of this.#unsubscribe) unsubscribe()
  }

  /** It counts as heard now. */
  #connect({ link }: Attach): ReliableLink {
    const { clock, keys, broker, onMessage, onRefused } = this.#options
    return new ReliableLink({
      clock,
      sendKey: keys.toDriver,
      receiveKey: keys.toAgent,
      epoch: link,
      idleSubject: this.#upSubject,
      publish: (subject, data) => broker.publish(subject, data),
      onMessage: (payload) => onMessage(payload as DriverMessage),
      onRefused,
    })
  }

  #takeBeat(subject: string, data: Uint8Array): void {
    const { keys, clock, onBeat, onRefused } = this.#options
    try {
      const { epoch, number, payload } = open(keys.toAgent, subject, data)
      if (epoch !== this.#epoch) return
      if (number <= this.#beats) return onRefused('it was sent before')
      this.#beats = number
      this.#heardMs = clock.monotonicMs()
      const beat = payload as Beat
      this.#hasWaiting = beat.hasWaiting
      onBeat(beat)
    } catch (error) {
      onRefused(messageOf(error))
    }
  }
}

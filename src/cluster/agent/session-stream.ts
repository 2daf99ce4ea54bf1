/** The stream that keeps a session's ends, when the broker does not have it. */

import { type Broker, NoResponderError } from '../broker/broker.ts'
import type { SessionSubjects } from '../wire/subjects.ts'

const answerMs = 1000

export class SessionStream {
  readonly #broker: Broker
  readonly #subjects: SessionSubjects

  constructor(broker: Broker, subjects: SessionSubjects) {
    this.#broker = broker
    this.#subjects = subjects
  }

  /** For a living driver alone: one that has closed the session has removed its stream. */
  async openAgain(maxAgeSeconds: number): Promise<void> {
    if (!(await this.#hasDriver())) return
    const { stream, allEnds, used } = this.#subjects
    await this.#broker.store.openStream(stream, [allEnds, used], maxAgeSeconds)
  }

  /** Nobody will ask for the ends. */
  async isGone(): Promise<boolean> {
    if (await this.#hasDriver()) return false
    return !(await this.#broker.store.hasStream(this.#subjects.stream))
  }

  /** One that is stopped counts: it may go on. What came from it earlier says nothing. */
  async #hasDriver(): Promise<boolean> {
    try {
      await this.#broker.request(this.#subjects.owner, new Uint8Array(), answerMs)
      return true
    } catch (error) {
      return !(error instanceof NoResponderError)
    }
  }
}

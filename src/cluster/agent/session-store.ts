/** What an agent keeps in the broker for one session: its stream, and large values in it. */

import type { Clock } from '../../foundation/clock.ts'
import { type Broker, NoResponderError } from '../broker/broker.ts'
import { SessionStream } from '../broker/session-stream.ts'
import { StoredObjects } from '../broker/stored-objects.ts'
import type { SessionSubjects } from '../wire/subjects.ts'

export interface SessionStoreOptions {
  readonly broker: Broker
  readonly clock: Clock
  readonly subjects: SessionSubjects
  /** How long ends are kept. */
  readonly resultTtlSeconds: () => number
  /** The broker does not store what it is sent. */
  readonly onProblem: (error: unknown) => void
}

const answerMs = 1000

export class SessionStore {
  readonly objects: StoredObjects
  readonly #broker: Broker
  readonly #subjects: SessionSubjects
  readonly #stream: SessionStream

  constructor({ broker, clock, subjects, resultTtlSeconds, onProblem }: SessionStoreOptions) {
    const { stream, stored, objects } = subjects
    this.#broker = broker
    this.#subjects = subjects
    this.#stream = new SessionStream({
      store: broker.store,
      name: stream,
      subjects: stored,
      maxAgeSeconds: resultTtlSeconds,
      // One that has closed the session has removed its stream.
      mayOpen: () => this.#hasDriver(),
    })
    const openStream = (): Promise<boolean> => this.openStream()
    this.objects = new StoredObjects({ broker, clock, stream, objects, openStream, onProblem })
  }

  /** For a living driver alone, if the server has lost the stream. */
  openStream(): Promise<boolean> {
    return this.#stream.open()
  }

  /** Nobody will ask for the ends. */
  async isGone(): Promise<boolean> {
    if (await this.#hasDriver()) return false
    return !(await this.#broker.store.hasStream(this.#subjects.stream))
  }

  /** Stores and creates nothing more. */
  async close(): Promise<void> {
    this.objects.close()
    await this.#stream.close()
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

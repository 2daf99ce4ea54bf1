/** What an agent has in the broker for one session: its stream, and large values in it. */

import type { Clock } from '../../foundation/clock.ts'
import type { TaskSpec } from '../../tasks/spec.ts'
import type { Broker } from '../broker/broker.ts'
import { SessionStream } from '../broker/session-stream.ts'
import { StoredObjects } from '../broker/stored-objects.ts'
import { type Header, type Keys, noHeader, open, seal } from '../wire/envelope.ts'
import { decodeSpec } from '../wire/job-batches.ts'
import type { AgentNote, AgentStart, WireJob } from '../wire/messages.ts'
import { askOwner } from '../wire/owner-question.ts'
import type { SessionSubjects } from '../wire/subjects.ts'
import type { EndsOutbox } from './ends-outbox.ts'

export interface SessionStoreOptions {
  readonly broker: Broker
  readonly clock: Clock
  /** Of the cluster: with these a driver answers for its session. */
  readonly cluster: Keys
  /** Of the session's run. */
  readonly keys: () => Keys
  readonly run: () => string
  readonly self: AgentStart
  readonly subjects: SessionSubjects
  /** How long ends are kept. */
  readonly resultTtlSeconds: () => number
  /** How long an object is refused before it counts as larger than the store. */
  readonly patienceMs: () => number
  /** Whether the driver has all ends of a message of this agent, and needs them no more. */
  readonly isRecorded: (message: Header) => boolean
  /** The broker does not store what it is sent. */
  readonly onProblem: (error: unknown) => void
}

const answerMs = 1000
const appendMs = 5000

export class SessionStore {
  readonly objects: StoredObjects
  readonly #options: SessionStoreOptions
  readonly #broker: Broker
  readonly #cluster: Keys
  readonly #subjects: SessionSubjects
  readonly #stream: SessionStream
  #makingRoom: Promise<boolean> | null = null
  /** Where the stream is looked at next for what can be removed. */
  #roomFrom = 1

  constructor(options: SessionStoreOptions) {
    const { broker, clock, cluster, subjects, run, resultTtlSeconds, patienceMs, onProblem } =
      options
    const { stream, stored, objects } = subjects
    this.#options = options
    this.#broker = broker
    this.#cluster = cluster
    this.#subjects = subjects
    this.#stream = new SessionStream({
      store: broker.store,
      name: stream,
      subjects: stored,
      run,
      maxAgeSeconds: resultTtlSeconds,
      // One that has closed the session has removed its stream.
      mayOpen: () => this.#hasDriver(),
    })
    const openStream = (): Promise<boolean> => this.openStream()
    const owner = `agent "${options.self.name}"`
    const makeRoom = (): Promise<boolean> => this.makeRoom()
    const common = { owner, broker, clock, stream, patienceMs, makeRoom }
    this.objects = new StoredObjects({ ...common, objects, openStream, onProblem })
  }

  /**
   * Creates the stream for a living driver alone, if the server has lost it. `false` if there is
   * none, or that of another run.
   */
  async openStream(): Promise<boolean> {
    const run = this.#options.run()
    const { stream, used } = this.#subjects
    const found = await this.#broker.store.findStream(stream, used)
    if (found !== null) return found.label === run
    const opened = await this.#stream.open()
    return opened?.label === run
  }

  /**
   * The store is full: removes ends of this agent from the stream that the driver has recorded, the
   * oldest first. A later start of the driver finds these in its record alone. `false` if none was
   * found. Those who ask at the same time share one request.
   */
  makeRoom(): Promise<boolean> {
    this.#makingRoom ??= this.#removeRecorded()
      .catch(() => false)
      .finally(() => (this.#makingRoom = null))
    return this.#makingRoom
  }

  async #removeRecorded(): Promise<boolean> {
    const { isRecorded, keys, self } = this.#options
    const { stream } = this.#subjects
    const subject = this.#subjects.endsOf(self.name)
    const mayRemove = (data: Uint8Array): boolean => {
      try {
        return isRecorded(open(keys().toDriver, subject, data))
      } catch {
        // Of another run.
        return false
      }
    }
    const { store } = this.#broker
    const { removed, next } = await store.removeFirst(stream, subject, this.#roomFrom, mayRemove)
    this.#roomFrom = next
    return removed > 0
  }

  /**
   * For an agent whose driver, which had this `start`, is gone: resolves when the stream has all
   * ends, and that nothing else was begun here.
   */
  async settle(outbox: EndsOutbox, start: number, endsEpoch: number): Promise<void> {
    await outbox.settle(() => this.#isGone())
    const { self, keys } = this.#options
    const { stream, used } = this.#subjects
    if (outbox.isClosed) return
    try {
      if (!(await this.#broker.store.hasStream(stream))) return
      const note: AgentNote = { ...self, state: 'left', endsEpoch }
      const data = seal(keys().toDriver, used, { ...noHeader, epoch: start }, note)
      await this.#broker.store.append(used, data, appendMs)
    } catch {
      // A driver that returns takes the agent for lost.
    }
  }

  /** Nobody will ask for the ends. */
  async #isGone(): Promise<boolean> {
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
      const { answer } = await askOwner(this.#broker, this.#subjects.owner, this.#cluster, answerMs)
      return answer === 'signed' || answer === 'silent'
    } catch {
      // The broker cannot be reached.
      return true
    }
  }
}

/** Jobs whose specs were too large for a message, while these come from the broker's store. */
export class ArrivingSpecs {
  readonly #objects: StoredObjects
  /** Why they are canceled, or `null`. */
  readonly #jobs = new Map<string, string | null>()

  constructor(objects: StoredObjects) {
    this.#objects = objects
  }

  /** Remembers the reason for a job that is on its way. */
  cancel(uid: string, attempt: number, reason: string): void {
    const key = `${uid}#${attempt}`
    if (this.#jobs.has(key)) this.#jobs.set(key, reason)
  }

  /** Loads a spec and deletes it in the store. Rejects when the broker does not have it. */
  async load(
    { uid, attempt }: WireJob,
    name: string,
  ): Promise<{ readonly spec: TaskSpec; readonly cancelReason: string | null }> {
    const key = `${uid}#${attempt}`
    this.#jobs.set(key, null)
    try {
      const data = await this.#objects.take(name)
      if (data === null) throw new Error(`the broker has no object ${name}`)
      return { spec: decodeSpec(data), cancelReason: this.#jobs.get(key) ?? null }
    } finally {
      this.#jobs.delete(key)
    }
  }
}

/** An agent's access to one session's stream and large values in the broker. */

import type { Clock } from '../../foundation/clock.ts'
import type { TaskSpec } from '../../tasks/spec.ts'
import type { Broker } from '../broker/broker.ts'
import { SessionStream } from '../broker/session-stream.ts'
import { StoredObjects } from '../broker/stored-objects.ts'
import { type Header, type Keys, emptyHeader, open, seal } from '../wire/envelope.ts'
import { decodeSpec } from '../wire/job-batches.ts'
import type { AgentNote, AgentStart, WireJob } from '../wire/messages.ts'
import { requestOwner } from '../wire/owner-request.ts'
import type { SessionSubjects } from '../wire/subjects.ts'
import type { ResultOutbox } from './result-outbox.ts'

export interface SessionStoreOptions {
  readonly broker: Broker
  readonly clock: Clock
  /** The cluster's keys, with which a driver proves that it owns the session. */
  readonly cluster: Keys
  readonly keys: () => Keys
  readonly run: () => string
  readonly self: AgentStart
  readonly subjects: SessionSubjects
  readonly resultTtlSeconds: () => number
  readonly refusalTimeoutMs: () => number
  /**
   * Whether the driver has recorded the results of a message, so that the agent no longer keeps it.
   */
  readonly isRecorded: (message: Header) => boolean
  readonly onProblem: (error: unknown) => void
}

const answerTimeoutMs = 1000
const appendTimeoutMs = 5000

export class SessionStore {
  readonly objects: StoredObjects
  readonly #options: SessionStoreOptions
  readonly #stream: SessionStream
  #makingRoom: Promise<boolean> | null = null
  #removeFrom = 1

  constructor(options: SessionStoreOptions) {
    const { broker, subjects } = options
    this.#options = options
    this.#stream = new SessionStream({
      store: broker.store,
      name: subjects.stream,
      subjects: subjects.stored,
      run: options.run,
      maxAgeSeconds: options.resultTtlSeconds,
      // A driver that closes the session removes its stream. The stream must not be recreated then.
      mayCreate: () => this.#hasDriver(),
    })
    this.objects = new StoredObjects({
      ...options,
      ...subjects,
      owner: `agent "${options.self.name}"`,
      openStream: () => this.openStream(),
      makeRoom: () => this.makeRoom(),
    })
  }

  /** Recreates a lost stream for a live driver. Returns `false` if this run has no stream. */
  async openStream(): Promise<boolean> {
    const { broker, run, subjects } = this.#options
    const found = await broker.store.findStream(subjects.stream, subjects.used)
    return (found ?? (await this.#stream.open()))?.label === run()
  }

  /**
   * Removes recorded results, oldest first. Returns `false` if nothing was removed. Concurrent
   * calls share one request.
   */
  makeRoom(): Promise<boolean> {
    this.#makingRoom ??= this.#removeRecorded()
      .catch(() => false)
      .finally(() => (this.#makingRoom = null))
    return this.#makingRoom
  }

  async #removeRecorded(): Promise<boolean> {
    const { broker, isRecorded, keys, self, subjects } = this.#options
    const subject = subjects.agentResults(self.name)
    const mayRemove = (data: Uint8Array): boolean => {
      try {
        return isRecorded(open(keys().toDriver, subject, data))
      } catch {
        // The message belongs to another run.
        return false
      }
    }
    const { removed, next } = await broker.store.removeFirst(
      subjects.stream,
      subject,
      this.#removeFrom,
      mayRemove,
    )
    this.#removeFrom = next
    return removed > 0
  }

  /** Resolves when the stream has all results, and the note that the agent holds no more jobs. */
  async settle(outbox: ResultOutbox, start: number, endsEpoch: number): Promise<void> {
    await outbox.settle(() => this.#isStreamGone())
    const { self, keys, broker, subjects } = this.#options
    const { stream, used } = subjects
    if (outbox.isClosed) return
    try {
      if ((await broker.store.findStream(stream, used)) === null) return
      const note: AgentNote = { ...self, state: 'left', endsEpoch }
      const data = seal(keys().toDriver, used, { ...emptyHeader, epoch: start }, note)
      await broker.store.append(used, data, appendTimeoutMs)
    } catch {
      // Without the note, a driver that is restarted treats the agent as lost.
    }
  }

  async #isStreamGone(): Promise<boolean> {
    if (await this.#hasDriver()) return false
    const { broker, subjects } = this.#options
    return (await broker.store.findStream(subjects.stream, subjects.used)) === null
  }

  async close(): Promise<void> {
    this.objects.close()
    await this.#stream.close()
  }

  /** Whether the session has a driver. A suspended driver counts, because it may continue. */
  async #hasDriver(): Promise<boolean> {
    const { broker, subjects, cluster } = this.#options
    try {
      const { answer } = await requestOwner(broker, subjects.owner, cluster, answerTimeoutMs)
      return answer === 'signed' || answer === 'silent'
    } catch {
      // The broker is unreachable, so assume that there is a driver.
      return true
    }
  }
}

/** Jobs whose specs are too large for a message and are being loaded from the broker's store. */
export class ArrivingSpecs {
  readonly #objects: StoredObjects
  /** The cancel reason of each job; `null` if the job was not canceled. */
  readonly #jobs = new Map<string, string | null>()

  constructor(objects: StoredObjects) {
    this.#objects = objects
  }

  cancel(uid: string, attempt: number, reason: string): void {
    const key = `${uid}#${attempt}`
    if (this.#jobs.has(key)) this.#jobs.set(key, reason)
  }

  /** Loads a spec and deletes it from the store. Rejects if the broker does not have it. */
  async load(
    { uid, attempt }: WireJob,
    name: string,
  ): Promise<{ readonly spec: TaskSpec; readonly cancelReason: string | null }> {
    const key = `${uid}#${attempt}`
    this.#jobs.set(key, null)
    try {
      const data = await this.#objects.readAndDelete(name)
      if (data === null) throw new Error(`the broker has no object ${name}`)
      return { spec: decodeSpec(data), cancelReason: this.#jobs.get(key) ?? null }
    } finally {
      this.#jobs.delete(key)
    }
  }
}

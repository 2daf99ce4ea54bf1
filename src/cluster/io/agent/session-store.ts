/** An agent's access to one session's stream and large values in the broker. */

import type { Clock } from '../../../foundation/clock.ts'
import { type Broker, isNoRoom } from '../../broker/broker.ts'
import { SessionStream } from '../../broker/session-stream.ts'
import { isStoreTooSmall, type ObjectToStore, StoredObjects } from '../../broker/stored-objects.ts'
import type { AgentStimulus, SpecRequest } from '../../protocol/agent/agent-stimuli.ts'
import { type Key, type Keys, open } from '../../wire/envelope.ts'
import { decodeSpec } from '../../wire/job-batches.ts'
import { type Attach, expectMessage } from '../../wire/messages.ts'
import { isOwner, requestOwner } from '../../wire/owner-request.ts'
import type { SessionSubjects } from '../../wire/subjects.ts'

export interface SessionStoreOptions {
  readonly agent: string
  readonly broker: Broker
  readonly clock: Clock
  /** The cluster's keys, with which a driver proves that it owns the session. */
  readonly cluster: Keys
  /** The key of the run with which the agent signs. */
  readonly key: Key
  readonly subjects: SessionSubjects
  readonly attach: () => Attach
  /** Whether a message with results of this session is recorded. */
  readonly isRecorded: (use: number, number: number) => boolean
  readonly tell: (stimulus: AgentStimulus) => void
}

const answerTimeoutMs = 1000
const appendTimeoutMs = 5000

const hasNoRoom = (error: unknown): boolean =>
  [error, (error as Error | null)?.cause].some((one) => isNoRoom(one))

export class SessionStore {
  readonly objects: StoredObjects
  readonly #options: SessionStoreOptions
  readonly #stream: SessionStream
  readonly #puts = new Map<number, AbortController>()
  #removeFrom = 1

  constructor(options: SessionStoreOptions) {
    const { agent, broker, subjects, attach, tell } = options
    this.#options = options
    this.#stream = new SessionStream({
      store: broker.store,
      name: subjects.stream,
      subjects: subjects.stored,
      run: () => attach().run,
      maxAgeSeconds: () => attach().resultTtlSeconds,
      // A driver that closes the session removes its stream. The stream must not be recreated then.
      mayCreate: () => this.#hasDriver(),
    })
    this.objects = new StoredObjects({
      ...options,
      ...subjects,
      owner: `agent "${agent}"`,
      refusalTimeoutMs: () => attach().agentTimeoutSeconds * 1000,
      openStream: () => this.openStream(),
      makeRoom: () => this.makeRoom(),
      onProblem: (error) => tell({ kind: 'store-problem', error, isFull: hasNoRoom(error) }),
    })
  }

  async append(subject: string, data: Buffer, number: number, connection: number): Promise<void> {
    const { broker, tell } = this.#options
    try {
      await broker.store.append(subject, data, appendTimeoutMs)
      tell({ kind: 'appended', number, connection })
    } catch (error) {
      tell({ kind: 'append-refused', number, connection, error, isFull: hasNoRoom(error) })
    }
  }

  /** Finds the stream, or creates it for a live driver. */
  async openStream(): Promise<void> {
    const { broker, subjects, tell, attach } = this.#options
    try {
      const known = await broker.store.findStream(subjects.stream)
      const found = known ?? (await this.#stream.open())
      const isOurs = found?.label === attach().run
      tell({ kind: 'stream', isOurs, created: found?.created ?? null })
    } catch {
      tell({ kind: 'stream', isOurs: true, created: null })
    }
  }

  /** Removes recorded results from the stream, oldest first. */
  async makeRoom(): Promise<void> {
    const { agent, broker, key, isRecorded, subjects, tell } = this.#options
    const subject = subjects.agentResults(agent)
    const mayRemove = (data: Uint8Array): boolean => {
      try {
        const { use, number } = expectMessage(open(key, subject, data).payload, 'ends')
        return isRecorded(use, number)
      } catch {
        // The message belongs to another run.
        return false
      }
    }
    const { store } = broker
    const none = { removed: 0, next: 1 }
    const removal = store.removeFirst(subjects.stream, subject, this.#removeFrom, mayRemove)
    const { removed, next } = await removal.catch(() => none)
    this.#removeFrom = next
    tell({ kind: 'room', isMade: removed > 0 })
  }

  async loadSpec(request: SpecRequest): Promise<void> {
    const { tell } = this.#options
    try {
      const data = await this.objects.readAndDelete(request.object)
      tell({ kind: 'spec', request, spec: data === null ? null : decodeSpec(data) })
    } catch {
      tell({ kind: 'spec', request, spec: null })
    }
  }

  async put(id: number, object: ObjectToStore): Promise<void> {
    const { tell } = this.#options
    const canceled = new AbortController()
    this.#puts.set(id, canceled)
    try {
      tell({ kind: 'put', id, name: await this.objects.put(object, canceled.signal) })
    } catch (error) {
      if (isStoreTooSmall(error)) tell({ kind: 'unputable', id, error })
    } finally {
      this.#puts.delete(id)
    }
  }

  cancelPut(id: number): void {
    this.#puts.get(id)?.abort(new Error('nobody needs the object'))
  }

  async close(): Promise<void> {
    this.objects.close()
    await this.#stream.close()
  }

  /** Whether the session has a driver. A suspended driver counts, because it may continue. */
  async #hasDriver(): Promise<boolean> {
    const { broker, subjects, cluster } = this.#options
    try {
      const answer = await requestOwner(broker, subjects.owner, cluster, answerTimeoutMs)
      return isOwner(answer) || answer === 'silent'
    } catch {
      // The broker is unreachable, so assume that there is a driver.
      return true
    }
  }
}

/** What a driver's session has in the broker: its run with its keys, its stream and its values. */

import type { Clock } from '../../../foundation/clock.ts'
import type { Log } from '../../../foundation/log.ts'
import type { Broker } from '../../broker/broker.ts'
import { SessionStream } from '../../broker/session-stream.ts'
import { StoredObjects } from '../../broker/stored-objects.ts'
import { deriveKeys, type Keys } from '../../wire/envelope.ts'
import {
  newRunId,
  type SessionSubjects,
  sessionSubjects,
  type SessionUse,
} from '../../wire/subjects.ts'

export interface SessionDataOptions {
  readonly use: SessionUse
  readonly token: string
  readonly broker: Broker
  readonly clock: Clock
  readonly log: Log
  readonly agentTimeoutSeconds: number
  readonly resultTtlSeconds: number
  /** Called when the store is full. */
  readonly makeRoom: () => void
}

export class SessionData {
  readonly subjects: SessionSubjects
  /** The keys of the cluster. Those of the run are `keys`. */
  readonly cluster: Keys
  readonly stream: SessionStream
  readonly objects: StoredObjects
  /** The start of the driver; 0 before the session is claimed. */
  driverStart = 0
  readonly #options: SessionDataOptions
  #run = newRunId()
  #keys: Keys

  constructor(options: SessionDataOptions) {
    const { use, broker, clock, log, agentTimeoutSeconds, resultTtlSeconds, makeRoom } = options
    this.#options = options
    this.subjects = sessionSubjects(use)
    this.cluster = deriveKeys(options.token, null)
    this.#keys = this.#deriveKeys()
    const { stream: name, stored: subjects } = this.subjects
    const run = (): string => this.#run
    const maxAgeSeconds = (): number => resultTtlSeconds
    this.stream = new SessionStream({ store: broker.store, name, subjects, run, maxAgeSeconds })
    this.objects = new StoredObjects({
      ...this.subjects,
      owner: `backend "${use.backend}"`,
      broker,
      clock,
      refusalTimeoutMs: () => agentTimeoutSeconds * 1000,
      openStream: () => this.stream.open(),
      makeRoom,
      onProblem: ({ message }) => log.warn('ObjectNotStored', `${message}; it is sent again`),
    })
  }

  get run(): string {
    return this.#run
  }

  get keys(): Keys {
    return this.#keys
  }

  setRun(run: string): void {
    if (run === this.#run) return
    this.#run = run
    this.#keys = this.#deriveKeys()
  }

  #deriveKeys(): Keys {
    const { token, use } = this.#options
    return deriveKeys(token, { ...use, run: this.#run })
  }
}

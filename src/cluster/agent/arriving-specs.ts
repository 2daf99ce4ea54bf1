/** Jobs whose specs were too large for a message, while these come from the object store. */

import type { TaskSpec } from '../../tasks/spec.ts'
import type { BrokerStore } from '../broker/broker.ts'
import { loadObject } from '../broker/stored-object.ts'
import { decodeSpec } from '../wire/job-batches.ts'
import type { WireJob } from '../wire/messages.ts'

export class ArrivingSpecs {
  readonly #store: BrokerStore
  readonly #bucket: string
  /** Why they are canceled, or `null`. */
  readonly #jobs = new Map<string, string | null>()

  constructor(store: BrokerStore, bucket: string) {
    this.#store = store
    this.#bucket = bucket
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
      const data = await loadObject(this.#store, this.#bucket, name)
      if (data === null) throw new Error(`the broker has no object ${name}`)
      this.#store.deleteObject(this.#bucket, name).catch(() => {
        // Removed with the session, at the latest.
      })
      return { spec: decodeSpec(data), cancelReason: this.#jobs.get(key) ?? null }
    } finally {
      this.#jobs.delete(key)
    }
  }
}

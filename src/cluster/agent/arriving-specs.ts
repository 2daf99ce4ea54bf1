/** Jobs whose specs were too large for a message, while these come from the broker's store. */

import type { TaskSpec } from '../../tasks/spec.ts'
import type { StoredObjects } from '../broker/stored-objects.ts'
import { decodeSpec } from '../wire/job-batches.ts'
import type { WireJob } from '../wire/messages.ts'

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
      const data = await this.#objects.get(name)
      if (data === null) throw new Error(`the broker has no object ${name}`)
      this.#objects.delete(name)
      return { spec: decodeSpec(data), cancelReason: this.#jobs.get(key) ?? null }
    } finally {
      this.#jobs.delete(key)
    }
  }
}

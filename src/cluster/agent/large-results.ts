/** Stores the parts of results that are too large for a message, before the message is sent. */

import { toErrorRecord } from '../../foundation/error-record.ts'
import { isTooSmall, type ObjectToStore, type StoredObjects } from '../broker/stored-objects.ts'
import { encode } from '../wire/codec.ts'
import { toShortError } from '../wire/ends.ts'
import type { WireEnd } from '../wire/messages.ts'

export interface LargeEndsOptions {
  readonly objects: StoredObjects
  /** Whether the result fits into a message without storing parts. */
  readonly isSmall: (end: WireEnd) => boolean
}

/** A result that fits into a message, and the stored objects that it refers to. */
export interface StoredResult {
  readonly end: WireEnd
  readonly objects: readonly ObjectToStore[]
  /** Whether the broker has stored all parts. */
  readonly isWhole: boolean
}

/** Stores a part of a result; resolves with the object's name. */
type StorePart = (part: string, content: unknown) => Promise<string>

export class LargeResults {
  readonly #options: LargeEndsOptions
  /** Results that are being stored. */
  readonly #pending = new Map<WireEnd, AbortController>()

  constructor(options: LargeEndsOptions) {
    this.#options = options
  }

  /** Results that were not sent in a message yet. */
  get pending(): readonly WireEnd[] {
    return [...this.#pending.keys()]
  }

  get count(): number {
    return this.#pending.size
  }

  /** Stops storing the parts of a result. The attempt ends as canceled. */
  cancel(uid: string, attempt: number, reason: string): void {
    for (const [end, canceled] of this.#pending) {
      if (end.uid === uid && end.attempt === attempt) canceled.abort(reason)
    }
  }

  /**
   * Waits while the broker refuses the parts; `null` if the store is closed meanwhile. The result
   * stays pending until `sent`, so that it is always listed somewhere.
   */
  async store(end: WireEnd): Promise<StoredResult | null> {
    const canceled = new AbortController()
    this.#pending.set(end, canceled)
    const objects: ObjectToStore[] = []
    const names: string[] = []
    const store = async (part: string, content: unknown): Promise<string> => {
      const title = `the ${part} of task ${end.uid}`
      const object = { prefix: `${end.uid}/${end.attempt}/${part}`, title, data: encode(content) }
      const name = await this.#options.objects.put(object, canceled.signal)
      objects.push(object)
      names.push(name)
      return name
    }
    try {
      return { end: await this.#storeParts(end, store), objects, isWhole: true }
    } catch (error) {
      for (const name of names) this.#options.objects.delete(name)
      const { aborted, reason } = canceled.signal
      if (aborted) return withoutParts(end, { kind: 'cancel', reason: String(reason) })
      return isTooSmall(error) ? toFailure(end, error) : null
    }
  }

  sent(end: WireEnd): void {
    this.#pending.delete(end)
  }

  /** Stores a value, or the output of a program, and the error if the result is still too large. */
  async #storeParts(end: WireEnd, store: StorePart): Promise<WireEnd> {
    if (end.outcome.kind === 'complete') {
      const object = await store('value', end.outcome.value)
      return { ...end, outcome: { kind: 'complete-large', object } }
    }
    const { stdout, stderr, ...facts } = end.facts ?? {}
    let sent: WireEnd = { ...end, facts }
    if (stdout !== undefined) {
      sent = { ...sent, outputObject: await store('output', { stdout, stderr }) }
    }
    if (sent.outcome.kind !== 'fail' || this.#options.isSmall(sent)) return sent
    const { outcome } = sent
    const errorObject = await store('error', outcome.error)
    return { ...sent, errorObject, outcome: { ...outcome, error: toShortError(outcome.error) } }
  }
}

function withoutParts(end: WireEnd, outcome: WireEnd['outcome']): StoredResult {
  const { stdout: _, stderr: __, ...facts } = end.facts ?? {}
  return { end: { ...end, facts, outcome }, objects: [], isWhole: false }
}

/** Replaces a result that is too large for the store by a failure. */
function toFailure(end: WireEnd, error: unknown): StoredResult {
  const isFailure = end.outcome.kind === 'fail'
  const record = isFailure ? toShortError(end.outcome.error) : toErrorRecord(error)
  return withoutParts(end, { kind: 'fail', error: record, isThrown: false })
}

/** Ends with a part that is too large for a message: it is stored before the message is sent. */

import { toErrorRecord } from '../../foundation/error-record.ts'
import { isTooSmall, type ObjectToStore, type StoredObjects } from '../broker/stored-objects.ts'
import { encode } from '../wire/codec.ts'
import { toShortError } from '../wire/ends.ts'
import type { WireEnd } from '../wire/messages.ts'

export interface LargeEndsOptions {
  readonly objects: StoredObjects
  /** Whether a message could have it as it is. */
  readonly isSmall: (end: WireEnd) => boolean
}

/** What a message can have of an end, and what that names. */
export interface StoredEnd {
  readonly end: WireEnd
  readonly objects: readonly ObjectToStore[]
  /** Whether the broker has taken all of it. */
  readonly isWhole: boolean
}

/** The name of an object, from what it is of the end and its content. */
type StorePart = (part: string, content: unknown) => Promise<string>

export class LargeEnds {
  readonly #options: LargeEndsOptions
  /** Those that are being stored. */
  readonly #pending = new Map<WireEnd, AbortController>()

  constructor(options: LargeEndsOptions) {
    this.#options = options
  }

  /** Those that no message has yet. */
  get pending(): readonly WireEnd[] {
    return [...this.#pending.keys()]
  }

  get count(): number {
    return this.#pending.size
  }

  /** It ends as canceled: nobody waits until the broker has room for its value. */
  cancel(uid: string, attempt: number, reason: string): void {
    for (const [end, canceled] of this.#pending) {
      if (end.uid === uid && end.attempt === attempt) canceled.abort(reason)
    }
  }

  /**
   * Waits while the broker does not take it; `null` when it is closed before. It is pending until
   * `sent`, so that it is always known to somebody.
   */
  async store(end: WireEnd): Promise<StoredEnd | null> {
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

  /** A value; or the output of a program, and an error if it must be. */
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

function withoutParts(end: WireEnd, outcome: WireEnd['outcome']): StoredEnd {
  const { stdout: _, stderr: __, ...facts } = end.facts ?? {}
  return { end: { ...end, facts, outcome }, objects: [], isWhole: false }
}

/** For an end that the store does not take, whatever becomes of it. */
function toFailure(end: WireEnd, error: unknown): StoredEnd {
  const isFailure = end.outcome.kind === 'fail'
  const record = isFailure ? toShortError(end.outcome.error) : toErrorRecord(error)
  return withoutParts(end, { kind: 'fail', error: record, isThrown: false })
}

/** Stores parts of results in the broker if a result is too large for a message. */

import { toErrorRecord } from '../../foundation/error-record.ts'
import {
  isStoreTooSmall,
  type ObjectToStore,
  type StoredObjects,
} from '../broker/stored-objects.ts'
import { encode } from '../wire/codec.ts'
import { toShortError } from '../wire/results.ts'
import type { WireResult } from '../wire/messages.ts'

export interface LargeResultsOptions {
  readonly objects: StoredObjects
  readonly fitsMessage: (result: WireResult) => boolean
}

/** A result that fits into a message, and the stored objects that it refers to. */
export interface StoredResult {
  readonly result: WireResult
  readonly objects: readonly ObjectToStore[]
  readonly isComplete: boolean
}

type StorePart = (part: string, content: unknown) => Promise<string>

export class LargeResults {
  readonly #options: LargeResultsOptions
  readonly #pending = new Map<WireResult, AbortController>()

  constructor(options: LargeResultsOptions) {
    this.#options = options
  }

  /** Results whose parts are being stored, and stored results that were not sent yet. */
  get pending(): readonly WireResult[] {
    return [...this.#pending.keys()]
  }

  cancel(uid: string, attempt: number, reason: string): void {
    for (const [result, canceled] of this.#pending) {
      if (result.uid === uid && result.attempt === attempt) canceled.abort(reason)
    }
  }

  /**
   * Stores large parts, and retries if the broker refuses. Returns `null` if the store is closed
   * first.
   */
  async store(result: WireResult): Promise<StoredResult | null> {
    const canceled = new AbortController()
    this.#pending.set(result, canceled)
    const objects: ObjectToStore[] = []
    const names: string[] = []
    const store = async (part: string, content: unknown): Promise<string> => {
      const title = `the ${part} of task ${result.uid}`
      const object = {
        prefix: `${result.uid}/${result.attempt}/${part}`,
        title,
        data: encode(content),
      }
      const name = await this.#options.objects.put(object, canceled.signal)
      objects.push(object)
      names.push(name)
      return name
    }
    try {
      return { result: await this.#storeParts(result, store), objects, isComplete: true }
    } catch (error) {
      for (const name of names) this.#options.objects.delete(name)
      const { aborted, reason } = canceled.signal
      if (aborted) return withoutParts(result, { kind: 'cancel', reason: String(reason) })
      return isStoreTooSmall(error) ? toFailure(result, error) : null
    }
  }

  markSent(result: WireResult): void {
    this.#pending.delete(result)
  }

  async #storeParts(result: WireResult, store: StorePart): Promise<WireResult> {
    if (result.outcome.kind === 'complete') {
      const object = await store('value', result.outcome.value)
      return { ...result, outcome: { kind: 'complete-large', object } }
    }
    const { stdout, stderr, ...facts } = result.facts ?? {}
    let sent: WireResult = { ...result, facts }
    if (stdout !== undefined) {
      sent = { ...sent, outputObject: await store('output', { stdout, stderr }) }
    }
    if (sent.outcome.kind !== 'fail' || this.#options.fitsMessage(sent)) return sent
    const { outcome } = sent
    const errorObject = await store('error', outcome.error)
    return { ...sent, errorObject, outcome: { ...outcome, error: toShortError(outcome.error) } }
  }
}

function withoutParts(result: WireResult, outcome: WireResult['outcome']): StoredResult {
  const { stdout: _, stderr: __, ...facts } = result.facts ?? {}
  return { result: { ...result, facts, outcome }, objects: [], isComplete: false }
}

function toFailure(result: WireResult, error: unknown): StoredResult {
  const isFailure = result.outcome.kind === 'fail'
  const record = isFailure ? toShortError(result.outcome.error) : toErrorRecord(error)
  return withoutParts(result, { kind: 'fail', error: record, isThrown: false })
}

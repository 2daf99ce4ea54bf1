/**
 * Opens and removes a session's stream. Creates it if the server does not have it, but not after
 * `close`, so that a removed stream does not reappear.
 */

import type { Clock } from '../../foundation/clock.ts'
import { retry } from '../../runtime/retry.ts'
import type { BrokerStore, OpenedStream } from './broker.ts'

const removalPolicy = { delayMs: 200, maxAttempts: 5 }

export interface SessionStreamOptions {
  readonly store: BrokerStore
  readonly name: string
  readonly subjects: readonly string[]
  /** Identifies the session's run. Used as the stream's label. */
  readonly run: () => string
  readonly maxAgeSeconds: () => number
  readonly mayCreate?: () => Promise<boolean>
}

export class SessionStream {
  readonly #options: SessionStreamOptions
  #opening: Promise<OpenedStream | null> | null = null
  #isClosed = false
  #wasCreated = false

  constructor(options: SessionStreamOptions) {
    this.#options = options
  }

  /**
   * Creates the stream if necessary. Its label is the run that created it. Resolves with `null` if
   * it must not be created. Concurrent calls share one request.
   */
  open(): Promise<OpenedStream | null> {
    this.#opening ??= this.#open().finally(() => (this.#opening = null))
    return this.#opening
  }

  /** Whether this process has created the stream. */
  get wasCreated(): boolean {
    return this.#wasCreated
  }

  /** Makes sure that the stream is not created again. Resolves when no request is pending. */
  async close(): Promise<void> {
    this.#isClosed = true
    await this.#opening?.catch(() => {})
  }

  /** Closes this object and removes the stream. Retries: a restarting server loses requests. */
  async remove(clock: Clock): Promise<void> {
    await this.close()
    const { store, name } = this.#options
    await retry(removalPolicy, () => store.remove(name), { clock })
  }

  async #open(): Promise<OpenedStream | null> {
    const { store, name, subjects, run, maxAgeSeconds, mayCreate } = this.#options
    const isWanted = !this.#isClosed && (mayCreate === undefined || (await mayCreate()))
    // `close` may have been called while `mayCreate` was pending.
    if (!isWanted || this.#isClosed) return null
    const settings = { subjects, label: run(), maxAgeSeconds: maxAgeSeconds() }
    const opened = await store.openStream(name, settings)
    this.#wasCreated ||= opened.isCreated
    return opened
  }
}

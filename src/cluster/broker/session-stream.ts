/**
 * A process's access to the stream of one session. Creates the stream if the server does not have
 * it, but not after `close`, so that a removed stream does not reappear.
 */

import type { Clock } from '../../foundation/clock.ts'
import { retry } from '../../runtime/retry.ts'
import type { BrokerStore, OpenedStream } from './broker.ts'

const removal = { delayMs: 200, maxAttempts: 5 }

export interface SessionStreamOptions {
  readonly store: BrokerStore
  readonly name: string
  readonly subjects: readonly string[]
  /** Identifies the session's run. Used as the stream's label. */
  readonly run: () => string
  readonly maxAgeSeconds: () => number
  /** Whether the stream may be created now. Default: always. */
  readonly mayOpen?: () => Promise<boolean>
}

export class SessionStream {
  readonly #options: SessionStreamOptions
  #opening: Promise<OpenedStream | null> | null = null
  #isClosed = false
  #isOpened = false
  #isRecreated = false

  constructor(options: SessionStreamOptions) {
    this.#options = options
  }

  /**
   * Resolves with the stream, labeled with the run that created it; with `null` if it must not be
   * created. Concurrent calls share one request.
   */
  open(): Promise<OpenedStream | null> {
    this.#opening ??= this.#open().finally(() => (this.#opening = null))
    return this.#opening
  }

  /** Whether the stream disappeared after this process opened it, and this process recreated it. */
  get isRecreated(): boolean {
    return this.#isRecreated
  }

  /** Prevents further creation; resolves when no request is pending. */
  async close(): Promise<void> {
    this.#isClosed = true
    await this.#opening?.catch(() => {})
  }

  /** Closes and removes the stream. Retries, because a restarting server loses requests. */
  async remove(clock: Clock): Promise<void> {
    await this.close()
    const { store, name } = this.#options
    await retry(removal, () => store.remove(name), { clock })
  }

  async #open(): Promise<OpenedStream | null> {
    const { store, name, subjects, run, maxAgeSeconds, mayOpen } = this.#options
    const isWanted = !this.#isClosed && (mayOpen === undefined || (await mayOpen()))
    // `close` may have been called while `mayOpen` was pending.
    if (!isWanted || this.#isClosed) return null
    const settings = { subjects, label: run(), maxAgeSeconds: maxAgeSeconds() }
    const opened = await store.openStream(name, settings)
    if (this.#isOpened) this.#isRecreated ||= opened.isCreated
    this.#isOpened = true
    return opened
  }
}

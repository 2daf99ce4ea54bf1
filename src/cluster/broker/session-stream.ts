/**
 * The stream of one session, as a process that uses it keeps it: created when the server does not
 * have it, and never after the use has ended, so that it does not come back once it was removed.
 */

import { type Clock, sleep } from '../../foundation/clock.ts'
import type { BrokerStore, OpenedStream } from './broker.ts'

const mostTries = 5
const retryMs = 200

export interface SessionStreamOptions {
  readonly store: BrokerStore
  readonly name: string
  readonly subjects: readonly string[]
  /** Names the run of the session that it is created for. */
  readonly run: () => string
  /** How long its messages are kept. */
  readonly maxAgeSeconds: () => number
  /** Whether it may be created now. Default: always. */
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
   * Its label is the run that it was created for; `null` if it must not be created. Those who ask
   * at the same time share one request.
   */
  open(): Promise<OpenedStream | null> {
    this.#opening ??= this.#open().finally(() => (this.#opening = null))
    return this.#opening
  }

  /** Whether it was gone after this process had opened it, and this process created it again. */
  get isRecreated(): boolean {
    return this.#isRecreated
  }

  /** Creates nothing from now on; resolves when nothing is under way. */
  async close(): Promise<void> {
    this.#isClosed = true
    await this.#opening?.catch(() => {})
  }

  /** Creates nothing from now on. Tried again, because a server that restarts loses requests. */
  async remove(clock: Clock): Promise<void> {
    await this.close()
    const { store, name } = this.#options
    for (let failed = 0; ;) {
      try {
        return await store.remove(name)
      } catch (error) {
        if (++failed === mostTries) throw error
      }
      await sleep(clock, retryMs)
    }
  }

  async #open(): Promise<OpenedStream | null> {
    const { store, name, subjects, run, maxAgeSeconds, mayOpen } = this.#options
    const isWanted = !this.#isClosed && (mayOpen === undefined || (await mayOpen()))
    // It may have been closed meanwhile.
    if (!isWanted || this.#isClosed) return null
    const settings = { subjects, label: run(), maxAgeSeconds: maxAgeSeconds() }
    const opened = await store.openStream(name, settings)
    if (this.#isOpened) this.#isRecreated ||= opened.isCreated
    this.#isOpened = true
    return opened
  }
}

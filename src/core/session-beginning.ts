/**
 * Tells backends when it is known whether the session resumes a record, and when the events so far
 * are in the record.
 */

import type { ConnectedSession, EarlierRun } from '../backends/backend.ts'
import type { Clock } from '../foundation/clock.ts'
import type { RecordedNodes } from './resume/recorded-nodes.ts'

export interface SessionBeginningParts {
  readonly clock: Clock
  /** Writes the events so far to the record, if there is one. */
  readonly flush: () => Promise<void>
}

export class SessionBeginning {
  readonly #parts: SessionBeginningParts
  #begun = Promise.withResolvers<RecordedNodes | null>()
  /** Resolves when telemetry has started, or when the first task was submitted without it. */
  readonly #ended = Promise.withResolvers<void>()
  /** Resolves when no call of `startTelemetry` is running. */
  #started: Promise<unknown> = Promise.resolve()
  #flushing: Promise<void> | null = null

  constructor(parts: SessionBeginningParts) {
    this.#parts = parts
  }

  /** What the backend of this name is told. */
  describeTo(backend: string): Required<Pick<ConnectedSession, 'begun' | 'flushed'>> {
    const toRun = (nodes: RecordedNodes | null): EarlierRun | null =>
      nodes === null ? null : { nodes: nodes.of(backend) }
    return { begun: this.#begun.promise.then(toRun), flushed: () => this.#flush() }
  }

  /** The session resumes a record, which names these nodes. */
  resume(nodes: RecordedNodes | null): void {
    this.#begun.resolve(nodes)
  }

  /**
   * Call this before the backends are connected again, and the returned function when they are
   * being released: their earlier connections wait for nothing anymore.
   */
  reconnect(): () => void {
    const earlier = this.#begun
    this.#begun = Promise.withResolvers()
    return () => earlier.resolve(null)
  }

  startTelemetry(started: Promise<unknown>): void {
    this.#started = Promise.allSettled([this.#started, started])
    started.then(
      () => this.end(),
      () => {
        // A session whose telemetry could not start may still resume a record.
      },
    )
  }

  /** From now on, no record can be resumed. May be called repeatedly. */
  end(): void {
    this.#begun.resolve(null)
    this.#ended.resolve()
  }

  /** Waits until it is known whether there is a record, because no event is in it before. */
  async #flush(): Promise<void> {
    await this.#ended.promise
    await this.#started
    this.#flushing ??= this.#flushOnce()
    await this.#flushing
  }

  /** One flush serves all calls of a turn, because thousands of nodes may join together. */
  async #flushOnce(): Promise<void> {
    await new Promise<void>((resolve) => this.#parts.clock.nextTurn(resolve))
    this.#flushing = null
    await this.#parts.flush().catch(() => {
      // A record that cannot be written, for example on a full disk, must not stop the run.
    })
  }
}

/** A client of the batcher that sends one request and records what comes back. */

import { messageOf } from '../../../src/foundation/errors.ts'
import type { Batcher } from '../../../src/inference/generation/batcher.ts'
import type { EnqueueOptions } from '../../../src/inference/generation/request-queue.ts'
import type { GenerationEnd } from '../../../src/inference/generation/inference-engine.ts'
import { toInferenceCode } from '../../../src/inference/generation/inference-errors.ts'
import type { Clock } from '../../../src/foundation/clock.ts'
import { greedySampling } from '../../../src/testing/engine-contract.ts'

export class TestClient {
  readonly id: string
  readonly priority: number
  readonly isRetry: boolean
  readonly timeoutMs: number | null
  readonly client: string
  readonly ends: GenerationEnd[] = []
  readonly workers: string[] = []
  readonly #abort = new AbortController()
  readonly #clock: Clock
  text = ''
  /** Calls after the end. */
  late = 0
  sentMs = NaN
  endedMs = NaN
  /** Allows a restart: the text so far is discarded. */
  isUnread = false
  /** Returned by `delta`. */
  hold: Promise<void> | undefined

  constructor(
    clock: Clock,
    id: string,
    options: {
      readonly priority?: number
      readonly isRetry?: boolean
      readonly timeoutMs?: number | null
      readonly client?: string
    } = {},
  ) {
    this.#clock = clock
    this.id = id
    this.priority = options.priority ?? 0
    this.isRetry = options.isRetry ?? false
    this.timeoutMs = options.timeoutMs ?? null
    this.client = options.client ?? ''
  }

  send(batcher: Batcher): this {
    this.sentMs = this.#clock.monotonicMs()
    batcher.enqueue(this.toOptions())
    return this
  }

  cancel(): void {
    this.#abort.abort()
  }

  get hasCanceled(): boolean {
    return this.#abort.signal.aborted
  }

  /** `done`, `canceled`, the code of the failure, or `open`. */
  get outcome(): string {
    const [end] = this.ends
    if (end?.kind !== 'failed') return end?.kind ?? 'open'
    return toInferenceCode(end.error) ?? messageOf(end.error)
  }

  toOptions(): EnqueueOptions {
    const { id, priority, isRetry, timeoutMs, client } = this
    return {
      client,
      request: {
        id,
        input: { kind: 'text', text: id },
        sampling: greedySampling,
        signal: this.#abort.signal,
      },
      priority,
      isRetry,
      isBounded: true,
      timeoutMs,
      listener: {
        started: (workerId) => {
          this.#countLate()
          this.workers.push(workerId)
        },
        delta: ({ text }) => {
          this.#countLate()
          this.text += text
          return this.hold
        },
        restart: () => {
          this.#countLate()
          if (this.isUnread) this.text = ''
          return this.isUnread
        },
        end: (end) => {
          this.#countLate()
          this.endedMs = this.#clock.monotonicMs()
          this.ends.push(end)
        },
      },
    }
  }

  #countLate(): void {
    if (this.ends.length > 0) this.late++
  }
}

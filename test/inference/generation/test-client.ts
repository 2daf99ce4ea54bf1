/** Those who ask the batcher, and a record of what each of them heard. */

import { messageOf } from '../../../src/foundation/errors.ts'
import type { Batcher } from '../../../src/inference/generation/batcher.ts'
import type { EnqueueOptions } from '../../../src/inference/generation/request-queue.ts'
import type { GenerationEnd } from '../../../src/inference/generation/inference-engine.ts'
import { inferenceCodeOf } from '../../../src/inference/generation/inference-errors.ts'
import type { Clock } from '../../../src/foundation/clock.ts'
import { greedySampling } from '../../../src/testing/greedy-sampling.ts'

export class TestClient {
  readonly id: string
  readonly priority: number
  readonly timeoutMs: number | null
  readonly ends: GenerationEnd[] = []
  readonly workers: string[] = []
  readonly #leaving = new AbortController()
  readonly #clock: Clock
  text = ''
  /** Calls that came after the end. */
  late = 0
  askedMs = NaN
  endedMs = NaN
  /** Nobody has seen its text: it may begin anew. */
  isUnread = false
  /** What `delta` returns. */
  hold: Promise<void> | undefined

  constructor(
    clock: Clock,
    id: string,
    options: { readonly priority?: number; readonly timeoutMs?: number | null } = {},
  ) {
    this.#clock = clock
    this.id = id
    this.priority = options.priority ?? 0
    this.timeoutMs = options.timeoutMs ?? null
  }

  ask(batcher: Batcher): this {
    this.askedMs = this.#clock.monotonicMs()
    batcher.enqueue(this.toQueued())
    return this
  }

  leave(): void {
    this.#leaving.abort()
  }

  get hasLeft(): boolean {
    return this.#leaving.signal.aborted
  }

  /** `done`, `canceled`, the code of the failure, or `open`. */
  get outcome(): string {
    const [end] = this.ends
    if (end?.kind !== 'failed') return end?.kind ?? 'open'
    return inferenceCodeOf(end.error) ?? messageOf(end.error)
  }

  toQueued(): EnqueueOptions {
    const { id, priority, timeoutMs } = this
    return {
      request: {
        id,
        input: { kind: 'text', text: id },
        sampling: greedySampling,
        signal: this.#leaving.signal,
      },
      priority,
      isBounded: true,
      timeoutMs,
      listener: {
        started: (workerId) => {
          this.#hear()
          this.workers.push(workerId)
        },
        delta: ({ text }) => {
          this.#hear()
          this.text += text
          return this.hold
        },
        restart: () => {
          this.#hear()
          if (this.isUnread) this.text = ''
          return this.isUnread
        },
        end: (end) => {
          this.#hear()
          this.endedMs = this.#clock.monotonicMs()
          this.ends.push(end)
        },
      },
    }
  }

  #hear(): void {
    if (this.ends.length > 0) this.late++
  }
}

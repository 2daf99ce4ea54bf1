/** A worker that plays a script for each request, and records the batches that it is given. */

import type { BatchWorker } from '../../../src/inference/generation/batch-policy.ts'
import type {
  EngineCapacity,
  GenerationListener,
  GenerationRequest,
} from '../../../src/inference/generation/inference-engine.ts'
import { inferenceError } from '../../../src/inference/generation/inference-errors.ts'
import type { ManualClock } from '../../../src/testing/manual-clock.ts'

export interface Script {
  /** From the start of its batch to its end; with 0 it ends before `generate` returns. */
  readonly delayMs: number
  /** `forget`: no end; `poison`: the whole batch rejects; `hang`: ends only when aborted. */
  readonly outcome: 'done' | 'fail' | 'forget' | 'poison' | 'hang'
  /** Sends a first delta at the start of the batch. */
  readonly isEarly: boolean
  /** From the abort of the request to its end. */
  readonly abortLagMs: number
  /** Calls that break the contract: a second end, an unknown id, a delta after the end. */
  readonly noise: 'none' | 'second end' | 'unknown id' | 'late delta'
}

export const plainScript: Script = {
  delayMs: 0,
  outcome: 'done',
  isEarly: false,
  abortLagMs: 0,
  noise: 'none',
}

interface Batch {
  readonly open: Set<string>
  readonly reject: (error: unknown) => void
}

/** How long `generate` took for a batch. */
export interface PlayedBatch {
  readonly ids: ReadonlySet<string>
  readonly startedMs: number
  readonly settledMs: number
}

export class ScriptedWorker implements BatchWorker {
  readonly workerId: string
  readonly capacity: EngineCapacity
  /** The ids of each batch. */
  readonly calls: string[][] = []
  /** The batches whose `generate` has settled. */
  readonly played: PlayedBatch[] = []
  /** The requests that it has. */
  readonly held = new Set<string>()
  readonly #clock: ManualClock
  readonly #scriptOf: (id: string) => Script
  readonly #batches = new Set<Batch>()
  readonly #onCall: (worker: ScriptedWorker, requests: readonly GenerationRequest[]) => void

  constructor(
    clock: ManualClock,
    workerId: string,
    capacity: EngineCapacity,
    scriptOf: (id: string) => Script = () => plainScript,
    onCall: (worker: ScriptedWorker, requests: readonly GenerationRequest[]) => void = () => {},
  ) {
    this.#clock = clock
    this.workerId = workerId
    this.capacity = capacity
    this.#scriptOf = scriptOf
    this.#onCall = onCall
  }

  get hasRoom(): boolean {
    const { admits, slots } = this.capacity
    return admits === 'batch' ? this.held.size === 0 : this.held.size < slots
  }

  generate(requests: readonly GenerationRequest[], listener: GenerationListener): Promise<void> {
    this.#onCall(this, requests)
    this.calls.push(requests.map(({ id }) => id))
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    const open = new Set(requests.map(({ id }) => id))
    const batch = { open, reject }
    this.#batches.add(batch)
    const ids = new Set(open)
    const startedMs = this.#clock.monotonicMs()
    // Runs just before the batcher's own continuation.
    const drop = (): void => {
      this.played.push({ ids, startedMs, settledMs: this.#clock.monotonicMs() })
      this.#drop(batch)
    }
    promise.then(drop, drop)
    for (const { id } of requests) this.held.add(id)
    const forgotten = new Set<string>()
    const settle = (id: string, isUnknown = false): void => {
      if (isUnknown) forgotten.add(id)
      else if (open.delete(id)) this.held.delete(id)
      if ([...open].every((one) => forgotten.has(one))) resolve()
    }
    for (const request of requests) this.#play(request, batch, listener, settle)
    return promise
  }

  /** Rejects all of its batches, as a crashed engine does. */
  lose(): void {
    for (const { reject } of this.#batches)
      reject(inferenceError('engine_lost', 'the engine crashed'))
  }

  #drop(batch: Batch): void {
    for (const id of batch.open) this.held.delete(id)
    batch.open.clear()
    this.#batches.delete(batch)
  }

  #play(
    { id, signal }: GenerationRequest,
    { open, reject }: Batch,
    listener: GenerationListener,
    settle: (id: string, isUnknown?: boolean) => void,
  ): void {
    const { delayMs, outcome, isEarly, abortLagMs, noise } = this.#scriptOf(id)
    if (isEarly) void listener.delta(id, { text: '' })
    const cancel = (): void => {
      if (!open.has(id)) return
      listener.end(id, { kind: 'canceled' })
      settle(id)
    }
    signal.addEventListener('abort', () => this.#after(abortLagMs, cancel))
    if (outcome === 'hang') return
    this.#after(delayMs, () => {
      if (!open.has(id) || signal.aborted) return
      if (outcome === 'poison') return reject(new Error(`poisoned by ${id}`))
      if (noise === 'unknown id') listener.end('unknown', { kind: 'canceled' })
      if (outcome === 'done') {
        void listener.delta(id, { text: id })
        const usage = { promptTokens: 1, completionTokens: 1 }
        listener.end(id, { kind: 'done', finishReason: 'stop', usage })
      } else if (outcome === 'fail') {
        listener.end(id, { kind: 'failed', error: new Error(`bad ${id}`) })
      }
      if (noise === 'second end' && outcome !== 'forget') listener.end(id, { kind: 'canceled' })
      if (noise === 'late delta' && outcome !== 'forget') void listener.delta(id, { text: 'late' })
      settle(id, outcome === 'forget')
    })
  }

  #after(ms: number, callback: () => void): void {
    if (ms === 0) callback()
    else this.#clock.after(ms, callback)
  }
}

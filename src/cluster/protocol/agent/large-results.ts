/** Results that are too large for a message: their contents go to the broker's store first. */

import { toErrorRecord } from '../../../foundation/error-record.ts'
import type { ObjectToStore } from '../../broker/stored-objects.ts'
import { encode } from '../../wire/codec.ts'
import type { HeldJob, WireResult } from '../../wire/messages.ts'
import { toShortError } from '../../wire/results.ts'
import type { AgentInstruction } from './agent-stimuli.ts'
import { toHeldJob } from './held-attempts.ts'

/** A result with the start of the driver that sent its attempt. */
export type OwnedResult = WireResult & { readonly driverStart: number }

/** A result, and the stored object with its contents. */
interface LargeResult {
  readonly result: OwnedResult
  readonly object: ObjectToStore
}

export class LargeResults {
  readonly #out: AgentInstruction[]
  readonly #pending = new Map<number, LargeResult>()
  readonly #restoring = new Set<number>()
  #ids = 0

  constructor(out: AgentInstruction[]) {
    this.#out = out
  }

  get size(): number {
    return this.#pending.size
  }

  /** Attempts whose results are being stored. They have ended, but the driver does not know it. */
  get heldJobs(): readonly HeldJob[] {
    return [...this.#pending.values()].map(({ result }) => toHeldJob(result))
  }

  store(result: OwnedResult): void {
    const { uid, attempt, outcome, facts } = result
    const what = outcome.kind === 'complete' ? 'value' : 'output'
    const object = {
      prefix: `${uid}/${attempt}/result`,
      title: `the ${what} of task ${uid}`,
      data: encode({ outcome, facts }),
    }
    this.#pending.set(++this.#ids, { result, object })
    this.#out.push({ kind: 'put', id: this.#ids, object })
  }

  /** Returns the short form of a result that is stored under this name; `null` if not needed. */
  markStored(id: number, name: string): LargeResult | null {
    if (this.#restoring.delete(id)) return null
    const large = this.#take(id)
    if (large === null) {
      this.#out.push({ kind: 'delete', name })
      return null
    }
    const { result, object } = large
    const outcome = { kind: 'stored', object: name, of: result.outcome.kind } as const
    return { result: { ...result, facts: null, outcome }, object }
  }

  /** Returns the failure that replaces a result that will never fit into the store. */
  markUnputable(id: number, error: Error): WireResult | null {
    const result = this.#take(id)?.result
    if (result === undefined) return null
    const { outcome } = result
    const record = outcome.kind === 'fail' ? toShortError(outcome.error) : toErrorRecord(error)
    return withoutContents(result, { kind: 'fail', error: record, isThrown: false })
  }

  /** Returns the result of a canceled attempt whose result was being stored. */
  cancel(uid: string, attempt: number, driverStart: number, reason: string): WireResult | null {
    for (const [id, { result }] of this.#pending) {
      const isNamed = result.uid === uid && result.attempt === attempt
      if (!isNamed || result.driverStart !== driverStart) continue
      this.#pending.delete(id)
      this.#out.push({ kind: 'cancel-put', id })
      return withoutContents(result, { kind: 'cancel', reason })
    }
    return null
  }

  /** Stores the object of a message again. */
  restore(object: ObjectToStore): void {
    this.#restoring.add(++this.#ids)
    this.#out.push({ kind: 'put', id: this.#ids, object })
  }

  clear(): void {
    for (const id of [...this.#pending.keys(), ...this.#restoring]) {
      this.#out.push({ kind: 'cancel-put', id })
    }
    this.#pending.clear()
    this.#restoring.clear()
  }

  #take(id: number): LargeResult | null {
    const large = this.#pending.get(id) ?? null
    this.#pending.delete(id)
    return large
  }
}

function withoutContents(result: WireResult, outcome: WireResult['outcome']): WireResult {
  const { stdout: _, stderr: __, ...facts } = result.facts ?? {}
  return { ...result, facts, outcome }
}

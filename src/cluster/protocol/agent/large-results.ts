/** Results that are too large for a message: their large parts go to the broker's store first. */

import { toErrorRecord } from '../../../foundation/error-record.ts'
import type { ObjectToStore } from '../../broker/stored-objects.ts'
import { encode } from '../../wire/codec.ts'
import type { HeldJob, WireResult } from '../../wire/messages.ts'
import { toShortError } from '../../wire/results.ts'
import type { AgentInstruction } from './agent-stimuli.ts'
import { toHeldJob } from './held-attempts.ts'

type Part = 'value' | 'output' | 'error'

/** A result with the start of the driver that sent its attempt. */
export type OwnedResult = WireResult & { readonly driverStart: number }

interface LargeResult {
  readonly result: OwnedResult
  readonly parts: readonly Part[]
  readonly objects: readonly ObjectToStore[]
}

/** A result that fits into a message, and the stored objects that it refers to. */
export interface ShortResult {
  readonly result: WireResult
  readonly objects: readonly ObjectToStore[]
}

/** Longer than the name of a stored object. */
const anyName = 'n'.repeat(256)

export class LargeResults {
  readonly #out: AgentInstruction[]
  readonly #fitsMessage: (result: WireResult) => boolean
  readonly #pending = new Map<number, LargeResult>()
  readonly #restoring = new Set<number>()
  #ids = 0

  constructor(out: AgentInstruction[], fitsMessage: (result: WireResult) => boolean) {
    this.#out = out
    this.#fitsMessage = fitsMessage
  }

  get size(): number {
    return this.#pending.size
  }

  /** Attempts whose results are being stored. They have ended, but the driver does not know it. */
  get heldJobs(): readonly HeldJob[] {
    return [...this.#pending.values()].map(({ result }) => toHeldJob(result))
  }

  /** Stores the large parts of a result. */
  store(result: OwnedResult): void {
    const parts = this.#largeParts(result)
    const objects = parts.map((part) => ({
      prefix: `${result.uid}/${result.attempt}/${part}`,
      title: `the ${part} of task ${result.uid}`,
      data: encode(contentOf(result, part)),
    }))
    this.#pending.set(++this.#ids, { result, parts, objects })
    this.#out.push({ kind: 'put', id: this.#ids, objects })
  }

  /** Returns the result whose parts are stored under these names; `null` if nobody needs it. */
  markStored(id: number, names: readonly string[]): ShortResult | null {
    if (this.#restoring.delete(id)) return null
    const large = this.#pending.get(id)
    if (!this.#pending.delete(id) || large === undefined) {
      this.#out.push({ kind: 'delete', names })
      return null
    }
    let result: WireResult = large.result
    for (const [at, part] of large.parts.entries()) result = replacePart(result, part, names[at])
    return { result, objects: large.objects }
  }

  /** Returns the failure that replaces a result that will never fit into the store. */
  markUnputable(id: number, error: Error): WireResult | null {
    const large = this.#pending.get(id)
    if (!this.#pending.delete(id) || large === undefined) return null
    const { outcome } = large.result
    const record = outcome.kind === 'fail' ? toShortError(outcome.error) : toErrorRecord(error)
    return withoutParts(large.result, { kind: 'fail', error: record, isThrown: false })
  }

  /** Returns the result of a canceled attempt whose parts were being stored. */
  cancel(uid: string, attempt: number, driverStart: number, reason: string): WireResult | null {
    for (const [id, { result }] of this.#pending) {
      const isNamed = result.uid === uid && result.attempt === attempt
      if (!isNamed || result.driverStart !== driverStart) continue
      this.#pending.delete(id)
      this.#out.push({ kind: 'cancel-put', id })
      return withoutParts(result, { kind: 'cancel', reason })
    }
    return null
  }

  /** Stores the objects of a message again. */
  restore(objects: readonly ObjectToStore[]): void {
    this.#restoring.add(++this.#ids)
    this.#out.push({ kind: 'put', id: this.#ids, objects })
  }

  clear(): void {
    for (const id of [...this.#pending.keys(), ...this.#restoring]) {
      this.#out.push({ kind: 'cancel-put', id })
    }
    this.#pending.clear()
    this.#restoring.clear()
  }

  #largeParts(result: WireResult): readonly Part[] {
    if (result.outcome.kind === 'complete') return ['value']
    const parts: Part[] = result.facts?.stdout === undefined ? [] : ['output']
    if (result.outcome.kind !== 'fail') return parts
    const hasFit = parts.length > 0 && this.#fitsMessage(replacePart(result, 'output', anyName))
    return hasFit ? parts : [...parts, 'error']
  }
}

function contentOf({ outcome, facts }: WireResult, part: Part): unknown {
  if (part === 'output') return { stdout: facts?.stdout, stderr: facts?.stderr }
  if (part === 'value') return outcome.kind === 'complete' ? outcome.value : undefined
  return outcome.kind === 'fail' ? outcome.error : null
}

function replacePart(result: WireResult, part: Part, name = ''): WireResult {
  if (part === 'value') return { ...result, outcome: { kind: 'complete-large', object: name } }
  if (part === 'output') {
    return { ...result, facts: withoutOutput(result), outputObject: name }
  }
  const { outcome } = result
  if (outcome.kind !== 'fail') return result
  return {
    ...result,
    errorObject: name,
    outcome: { ...outcome, error: toShortError(outcome.error) },
  }
}

const withoutParts = (result: WireResult, outcome: WireResult['outcome']): WireResult => ({
  ...result,
  facts: withoutOutput(result),
  outcome,
})

function withoutOutput({ facts }: WireResult): WireResult['facts'] {
  const { stdout: _, stderr: __, ...others } = facts ?? {}
  return others
}

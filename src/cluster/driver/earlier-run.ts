/**
 * What an earlier start of the same session left in the cluster: ends that its stream has, and jobs
 * that agents hold. A task that is submitted again under its uid gets these instead of a new start.
 */

import { unpackCompletions } from '../wire/completions.ts'
import type { EndsMessage, HeldJob, WireEnd } from '../wire/messages.ts'
import type { AgentLink } from './agent-link.ts'

export interface Adoption {
  readonly agent: AgentLink
  readonly held: HeldJob
}

export class EarlierRun {
  readonly #ends = new Map<string, WireEnd>()
  readonly #held = new Map<string, Adoption>()

  get isEmpty(): boolean {
    return this.#ends.size === 0 && this.#held.size === 0
  }

  /** Of each task the end of its latest attempt counts. */
  addEnds({ completions, ends }: EndsMessage): void {
    for (const { value, ...completion } of unpackCompletions(completions)) {
      const outcome = { kind: 'complete', value } as const
      this.#addEnd({ ...completion, facts: null, outcome })
    }
    for (const end of ends) this.#addEnd(end)
  }

  addHeld(agent: AgentLink, held: readonly HeldJob[]): void {
    for (const one of held) {
      const known = this.#held.get(one.uid)
      if (known === undefined || known.held.attempt < one.attempt) {
        this.#held.set(one.uid, { agent, held: one })
      }
    }
  }

  /** An agent is gone, with what it held. */
  forget(agent: AgentLink): void {
    for (const [uid, held] of this.#held) if (held.agent === agent) this.#held.delete(uid)
  }

  has(uid: string): boolean {
    return this.#ends.has(uid) || this.#held.has(uid)
  }

  /**
   * What is left of a task, unless it is of an attempt before this one; the later attempt counts.
   * It is given once.
   */
  take(uid: string, attempt: number): { readonly end?: WireEnd; readonly adoption?: Adoption } {
    const [end, adoption] = [this.#ends.get(uid), this.#held.get(uid)]
    this.#ends.delete(uid)
    this.#held.delete(uid)
    const [endAttempt, heldAttempt] = [end?.attempt ?? 0, adoption?.held.attempt ?? 0]
    if (Math.max(endAttempt, heldAttempt) < attempt) return {}
    if (adoption !== undefined && heldAttempt > endAttempt) return { adoption }
    return end === undefined ? {} : { end }
  }

  #addEnd(end: WireEnd): void {
    const known = this.#ends.get(end.uid)
    if (known === undefined || known.attempt < end.attempt) this.#ends.set(end.uid, end)
  }
}

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
  /** Of each task in ascending order of its attempts. */
  readonly #ends = new Map<string, readonly WireEnd[]>()
  readonly #held = new Map<string, Adoption>()

  get isEmpty(): boolean {
    return this.#ends.size === 0 && this.#held.size === 0
  }

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
   * What is left of a task from this attempt on: its latest attempt if that runs or has completed,
   * else its failures one after the other, so that they count as attempts. Each is given once.
   */
  take(uid: string, attempt: number): { readonly end?: WireEnd; readonly adoption?: Adoption } {
    const adoption = this.#held.get(uid)
    const ends = (this.#ends.get(uid) ?? []).filter((end) => end.attempt >= attempt)
    this.#held.delete(uid)
    this.#ends.delete(uid)
    const heldAttempt = adoption?.held.attempt ?? 0
    const last = ends.at(-1)
    if (adoption !== undefined && heldAttempt >= attempt && heldAttempt > (last?.attempt ?? 0)) {
      return { adoption }
    }
    const completed = ends.findLast(({ outcome }) => isCompletion(outcome))
    const end = completed ?? ends[0]
    if (end === undefined) return {}
    if (completed === undefined && ends.length > 1) this.#ends.set(uid, ends.slice(1))
    return { end }
  }

  #addEnd(end: WireEnd): void {
    const known = this.#ends.get(end.uid) ?? []
    if (known.some(({ attempt }) => attempt === end.attempt)) return
    this.#ends.set(
      end.uid,
      [...known, end].toSorted((a, b) => a.attempt - b.attempt),
    )
  }
}

const isCompletion = ({ kind }: WireEnd['outcome']): boolean =>
  kind === 'complete' || kind === 'complete-large'

/**
 * Divides an agent's node among sessions: how much work each is offered, and whose jobs begin next.
 */

import type { NodeFacts, Offer } from '../../wire/messages.ts'
import type { HeldAttempts } from './held-attempts.ts'

/**
 * Seconds of work that may wait at this node. Of these, `backendSeconds` may wait in the backend.
 */
const aheadSeconds = 0.05
/**
 * With more agents than this, messages have up to `maxAgentFactor` times as many jobs, because a
 * message costs the driver as much as several tasks.
 */
const manyAgents = 16
const maxAgentFactor = 4
const backendSeconds = 0.02
const maxAhead = 4000

/** A session's part of the node. */
export interface SharingPart {
  readonly held: Pick<HeldAttempts, 'queued' | 'submittedCores' | 'size' | 'work'>
  /** Whether the session has jobs to begin. Only active sessions get a share of the node. */
  readonly isActive: boolean
  /** The number of agents that the session uses. */
  readonly agents: number
}

export class AgentShares<Part extends SharingPart> {
  readonly #facts: NodeFacts
  readonly #parts: () => Iterable<Part>
  readonly #turns = new WeakMap<Part, number>()
  readonly #turnOf = (part: Part): number => this.#turns.get(part) ?? 0
  #turn = 0

  constructor(facts: NodeFacts, parts: () => Iterable<Part>) {
    this.#facts = facts
    this.#parts = parts
  }

  offer(part: Part, nowMs: number): Offer {
    const { cores, gpus, memoryMb } = this.#facts
    let shares = part.isActive ? 0 : 1
    // Uses the rate of all sessions. With its own rate, a slow session would get ever smaller
    // offers.
    let rate: number | null = null
    for (const one of this.#parts()) {
      if (one.isActive) shares++
      const own = one.held.work.rate(nowMs)
      if (own !== null) rate = (rate ?? 0) + own
    }
    shares = Math.max(1, shares)
    const times = Math.max(1, Math.min(maxAgentFactor, part.agents / manyAgents))
    const seconds = aheadSeconds * times * part.held.work.aheadFactor
    const ahead =
      rate === null ? 2 * cores : Math.min(maxAhead, Math.max(1, Math.ceil(rate * seconds)))
    // Cores that other sessions use are not offered, so that drivers prefer nodes with free cores.
    const free = Math.max(0, cores - this.#runningCores())
    const offered = Math.min(Math.ceil(cores / shares), part.held.submittedCores + free)
    return { cores: offered, gpus, memoryMb, ahead: Math.ceil(ahead / shares) }
  }

  /** Whether nothing runs on the node. */
  get isIdle(): boolean {
    return this.#runningCores() === 0
  }

  /** Whether no session holds a job. */
  get isEmpty(): boolean {
    for (const { held } of this.#parts()) if (held.size > 0) return false
    return true
  }

  get hasWaiting(): boolean {
    for (const { held } of this.#parts()) if (held.queued > 0) return true
    return false
  }

  /** Begins jobs. `begin` begins jobs of a part on at most so many cores. */
  feed(begin: (part: Part, maxCores: number) => void, nowMs: number): void {
    const parts = [...this.#parts()]
    const queuedAhead = Math.min(maxAhead, Math.floor(this.#activeRate(nowMs) * backendSeconds))
    let room = this.#facts.cores + queuedAhead - this.#runningCores()
    while (room > 0) {
      const waiting = parts.filter(({ held }) => held.queued > 0)
      const [next] = waiting.toSorted(
        (a, b) =>
          a.held.submittedCores - b.held.submittedCores || this.#turnOf(a) - this.#turnOf(b),
      )
      if (next === undefined) break
      this.#turns.set(next, ++this.#turn)
      const { submittedCores: before, queued } = next.held
      begin(next, Math.max(1, Math.floor(room / waiting.length)))
      if (next.held.queued >= queued) parts.splice(parts.indexOf(next), 1)
      room -= next.held.submittedCores - before
    }
  }

  #activeRate(nowMs: number): number {
    let sum = 0
    for (const { held } of this.#parts()) {
      if (!held.work.isStalled(nowMs)) sum += held.work.rate(nowMs) ?? 0
    }
    return sum
  }

  #runningCores(): number {
    let sum = 0
    for (const { held } of this.#parts()) sum += held.submittedCores
    return sum
  }
}

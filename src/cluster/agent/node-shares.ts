/**
 * Divides an agent's node among sessions: how much work each is offered, and whose jobs begin next.
 */

import type { NodeFacts, Offer } from '../wire/messages.ts'
import type { AgentSession } from './agent-session.ts'

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

export class NodeShares {
  readonly #facts: NodeFacts
  readonly #sessions: ReadonlyMap<string, AgentSession>
  readonly #turns = new WeakMap<AgentSession, number>()
  readonly #turnOf = (session: AgentSession): number => this.#turns.get(session) ?? 0
  #turn = 0

  /** `sessions` is the map of the agent, which changes while this object is used. */
  constructor(facts: NodeFacts, sessions: ReadonlyMap<string, AgentSession>) {
    this.#facts = facts
    this.#sessions = sessions
  }

  offer(session: AgentSession): Offer {
    const { cores, gpus, memoryMb } = this.#facts
    const active = [...this.#sessions.values()].filter(({ isActive }) => isActive)
    const shares = active.length + (session.isActive ? 0 : 1)
    const share = Math.ceil(cores / shares)
    // Uses the rate of all sessions. With its own rate, a slow session would get ever smaller
    // offers.
    const rate = this.#totalRate()
    const times = Math.max(1, Math.min(maxAgentFactor, session.outbox.agents / manyAgents))
    const seconds = aheadSeconds * times * session.held.aheadFactor
    const ahead =
      rate === null ? 2 * cores : Math.min(maxAhead, Math.max(1, Math.ceil(rate * seconds)))
    // Cores that other sessions use are not offered, so that drivers prefer nodes with free cores.
    const free = Math.max(0, cores - this.#runningCores())
    const offered = Math.min(share, session.held.submittedCores + free)
    return { cores: offered, gpus, memoryMb, ahead: Math.ceil(ahead / shares) }
  }

  get isIdle(): boolean {
    return this.#runningCores() === 0
  }

  get hasWaiting(): boolean {
    for (const { held } of this.#sessions.values()) if (held.queued > 0) return true
    return false
  }

  feed(): void {
    const sessions = [...this.#sessions.values()]
    const queuedAhead = Math.min(maxAhead, Math.floor(this.#activeRate() * backendSeconds))
    let room = this.#facts.cores + queuedAhead - this.#runningCores()
    while (room > 0) {
      const waiting = sessions.filter(({ held }) => held.queued > 0)
      const [next] = waiting.toSorted(
        (a, b) =>
          a.held.submittedCores - b.held.submittedCores || this.#turnOf(a) - this.#turnOf(b),
      )
      if (next === undefined) break
      this.#turns.set(next, ++this.#turn)
      const begunCores = next.begin(Math.max(1, Math.floor(room / waiting.length)))
      if (begunCores === 0) sessions.splice(sessions.indexOf(next), 1)
      room -= begunCores
    }
  }

  #totalRate(): number | null {
    let sum: number | null = null
    for (const { held } of this.#sessions.values()) {
      if (held.rate !== null) sum = (sum ?? 0) + held.rate
    }
    return sum
  }

  #activeRate(): number {
    let sum = 0
    for (const { held } of this.#sessions.values()) if (!held.isStalled) sum += held.rate ?? 0
    return sum
  }

  #runningCores(): number {
    let sum = 0
    for (const { held } of this.#sessions.values()) sum += held.submittedCores
    return sum
  }
}

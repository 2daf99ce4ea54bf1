/** How sessions share the node of an agent: what each is offered, and whose jobs begin next. */

import type { NodeFacts, Offer } from '../wire/messages.ts'
import type { AgentSession } from './agent-session.ts'

/** How much work, by time, may wait at this node, and with its backend. */
const aheadSeconds = 0.05
/**
 * Each message costs the driver as much as several tasks: of many agents each gets more at a time.
 * From `manyAgents` on this grows with their number, to `mostTimes` of it.
 */
const manyAgents = 16
const mostTimes = 4
const fedSeconds = 0.02
const mostAhead = 4000

export class NodeShares {
  readonly #facts: NodeFacts
  readonly #sessions: ReadonlyMap<string, AgentSession>
  /** When each session was served last. */
  readonly #turns = new WeakMap<AgentSession, number>()
  readonly #turnOf = (session: AgentSession): number => this.#turns.get(session) ?? 0
  #turn = 0

  /** `sessions` are those of the agent at any time. */
  constructor(facts: NodeFacts, sessions: ReadonlyMap<string, AgentSession>) {
    this.#facts = facts
    this.#sessions = sessions
  }

  /** An equal share for every session that wants more than it has. */
  offer(session: AgentSession): Offer {
    const { cores, gpus, memoryMb } = this.#facts
    const shares = this.#activeSessions() + (session.isActive ? 0 : 1)
    const share = Math.ceil(cores / shares)
    // By the rate of the node: a session that has few ends would get ever fewer jobs.
    const rate = this.#rate()
    const times = Math.max(1, Math.min(mostTimes, session.outbox.agents / manyAgents))
    const seconds = aheadSeconds * times * session.held.aheadFactor
    const ahead =
      rate === null ? 2 * cores : Math.min(mostAhead, Math.max(1, Math.ceil(rate * seconds)))
    // What others use is not offered, so that a driver prefers a node where it can begin at once.
    const free = Math.max(0, cores - this.#runningCores())
    const offered = Math.min(share, session.held.givenCores + free)
    return { cores: offered, gpus, memoryMb, ahead: Math.ceil(ahead / shares) }
  }

  /** Whether nothing runs. */
  get isIdle(): boolean {
    return this.#runningCores() === 0
  }

  /** Whether a job waits that could begin. */
  get hasWaiting(): boolean {
    for (const { held } of this.#sessions.values()) if (held.queued > 0) return true
    return false
  }

  /** Gives the backend as much as it can run, a bit of each session in turn. */
  feed(): void {
    const sessions = [...this.#sessions.values()]
    const fed = Math.min(mostAhead, Math.floor(this.#liveRate() * fedSeconds))
    let room = this.#facts.cores + fed - this.#runningCores()
    while (room > 0) {
      const waiting = sessions.filter(({ held }) => held.queued > 0)
      // Who has less running is next; of equals, who was served longer ago.
      const [next] = waiting.toSorted(
        (a, b) => a.held.givenCores - b.held.givenCores || this.#turnOf(a) - this.#turnOf(b),
      )
      if (next === undefined) break
      this.#turns.set(next, ++this.#turn)
      const begun = next.begin(Math.max(1, Math.floor(room / waiting.length)))
      if (begun === 0) sessions.splice(sessions.indexOf(next), 1)
      room -= begun
    }
  }

  /** Ends per second that the node can have, of all sessions; `null` before the first end. */
  #rate(): number | null {
    let sum: number | null = null
    for (const { held } of this.#sessions.values()) {
      if (held.rate !== null) sum = (sum ?? 0) + held.rate
    }
    return sum
  }

  /** Of those sessions of which something has just ended. */
  #liveRate(): number {
    let sum = 0
    for (const { held } of this.#sessions.values()) if (!held.isStalled) sum += held.rate ?? 0
    return sum
  }

  #runningCores(): number {
    let sum = 0
    for (const { held } of this.#sessions.values()) sum += held.givenCores
    return sum
  }

  #activeSessions(): number {
    return [...this.#sessions.values()].filter(({ isActive }) => isActive).length
  }
}

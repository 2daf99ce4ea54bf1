/** Divides an agent's node among sessions: how much each is offered, and whose jobs begin next. */

import type { NodeFacts, Offer } from '../wire/messages.ts'
import type { AgentSession } from './agent-session.ts'

/** How many seconds of work may be queued at this node; `fedSeconds` applies to its backend. */
const aheadSeconds = 0.05
/**
 * A message costs the driver as much as several tasks, so with many agents each message has more
 * jobs: from `manyAgents` on in proportion to their number, up to a factor of `maxTimes`.
 */
const manyAgents = 16
const maxTimes = 4
const fedSeconds = 0.02
const maxAhead = 4000

export class NodeShares {
  readonly #facts: NodeFacts
  readonly #sessions: ReadonlyMap<string, AgentSession>
  /** The turn in which each session was last served. */
  readonly #turns = new WeakMap<AgentSession, number>()
  readonly #turnOf = (session: AgentSession): number => this.#turns.get(session) ?? 0
  #turn = 0

  /** `sessions` is the agent's live map. */
  constructor(facts: NodeFacts, sessions: ReadonlyMap<string, AgentSession>) {
    this.#facts = facts
    this.#sessions = sessions
  }

  /** Offers an equal share to every session that wants more than it has. */
  offer(session: AgentSession): Offer {
    const { cores, gpus, memoryMb } = this.#facts
    const active = [...this.#sessions.values()].filter(({ isActive }) => isActive)
    const shares = active.length + (session.isActive ? 0 : 1)
    const share = Math.ceil(cores / shares)
    // Uses the rate of the whole node: a session with few completions would get ever smaller
    // offers.
    const rate = this.#rate()
    const times = Math.max(1, Math.min(maxTimes, session.outbox.agents / manyAgents))
    const seconds = aheadSeconds * times * session.held.aheadFactor
    const ahead =
      rate === null ? 2 * cores : Math.min(maxAhead, Math.max(1, Math.ceil(rate * seconds)))
    // Does not offer cores that other sessions use, so that drivers prefer nodes with free cores.
    const free = Math.max(0, cores - this.#runningCores())
    const offered = Math.min(share, session.held.givenCores + free)
    return { cores: offered, gpus, memoryMb, ahead: Math.ceil(ahead / shares) }
  }

  /** Whether no core is in use. */
  get isIdle(): boolean {
    return this.#runningCores() === 0
  }

  get hasWaiting(): boolean {
    for (const { held } of this.#sessions.values()) if (held.queued > 0) return true
    return false
  }

  /** Gives the backend as many jobs as it can run, from all sessions in turn. */
  feed(): void {
    const sessions = [...this.#sessions.values()]
    const fed = Math.min(maxAhead, Math.floor(this.#liveRate() * fedSeconds))
    let room = this.#facts.cores + fed - this.#runningCores()
    while (room > 0) {
      const waiting = sessions.filter(({ held }) => held.queued > 0)
      // Picks the session with the fewest running cores. Among equals, the one served longest ago.
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

  /** Completions per second that the node can reach, over all sessions; `null` before the first. */
  #rate(): number | null {
    let sum: number | null = null
    for (const { held } of this.#sessions.values()) {
      if (held.rate !== null) sum = (sum ?? 0) + held.rate
    }
    return sum
  }

  /** The total rate of the sessions in which an attempt has ended recently. */
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
}

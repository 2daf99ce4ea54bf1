/** The agents that an earlier start of the session used: found again, or missing. */

import { type BackendListener, toEventNotice } from '../../../backends/backend.ts'
import { NodeLost } from '../../../events/library-events.ts'
import { type Clock, sleep } from '../../../foundation/clock.ts'
import type { AgentStart } from '../../wire/messages.ts'
import type { AgentDirectory } from '../directory/agent-directory.ts'
import type { NotedAgents, UsedAgents } from '../used-agents.ts'
import type { EarlierRun } from './earlier-run.ts'

export interface EarlierAgentsOptions {
  readonly clock: Clock
  readonly directory: AgentDirectory
  readonly listener: BackendListener
  readonly earlier: EarlierRun
  readonly used: UsedAgents
  /** Whether this start uses the agent, and has received all its data for an earlier start. */
  readonly hasAttached: (agent: AgentStart) => boolean
  readonly isClosed: () => boolean
  /** Called for an agent that was restarted since. */
  readonly reportLeft: (name: string, reason: string) => void
  /** How long to wait for an agent that is present, but not attached yet. */
  readonly patienceMs: number
}

const lookAgainMs = 200

export class EarlierAgents {
  readonly #options: EarlierAgentsOptions
  #used: readonly AgentStart[] = []
  #hasFound = false

  constructor(options: EarlierAgentsOptions) {
    this.#options = options
  }

  expect(used: readonly AgentStart[]): void {
    this.#used = used
  }

  /** Whether an earlier start used the agent. Such an agent is used even if it is draining. */
  has({ name, epoch }: AgentStart): boolean {
    return this.#used.some((one) => one.name === name && one.epoch === epoch)
  }

  /** Agents for which it is not known yet whether they are present. */
  get unfound(): readonly AgentStart[] {
    return this.#hasFound ? [] : this.#used
  }

  /**
   * Called when all agents that were found are attached. The others may have begun unknown attempts
   * for earlier starts, so no task counts as new.
   */
  async noteOthersMissing({ used, missing }: NotedAgents): Promise<void> {
    const { earlier, clock, patienceMs, hasAttached, isClosed } = this.#options
    for (const one of missing) if (!hasAttached(one)) earlier.addMissing(one)
    const untilMs = clock.monotonicMs() + patienceMs
    for (const one of used) {
      while (this.#isComing(one) && clock.monotonicMs() < untilMs) await sleep(clock, lookAgainMs)
      if (!hasAttached(one) && !isClosed()) await this.#reportMissing(one)
    }
    this.#hasFound = true
  }

  async #reportMissing(agent: AgentStart): Promise<void> {
    const { earlier, directory, listener, reportLeft, used } = this.#options
    const { name, epoch } = agent
    earlier.addMissing(agent)
    const isAgain = (directory.find(name)?.announcement.epoch ?? epoch) !== epoch
    const reason = isAgain ? 'it was started again' : 'it was gone when the driver returned'
    if (isAgain) reportLeft(name, reason)
    else listener.notice(toEventNotice(NodeLost, { reason, tasks: [] }, { nodeId: name }))
    await used.addMissing(agent)
  }

  /** Whether the agent is present, but attaching has failed, which is retried every half second. */
  #isComing(agent: AgentStart): boolean {
    const { directory, hasAttached, isClosed } = this.#options
    if (isClosed() || hasAttached(agent)) return false
    const found = directory.find(agent.name)?.announcement
    return found?.epoch === agent.epoch && found.state !== 'gone'
  }
}

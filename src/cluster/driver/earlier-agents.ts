/** The agents that an earlier start of the session used. Determines which of them are missing. */

import { type BackendListener, toEventNotice } from '../../backends/backend.ts'
import { NodeLost } from '../../events/library-events.ts'
import { type Clock, sleep } from '../../foundation/clock.ts'
import type { AgentStart } from '../wire/messages.ts'
import type { AgentDirectory } from './agent-directory.ts'
import type { NotedAgents, UsedAgents } from './used-agents.ts'
import type { EarlierRun } from '../protocol/earlier-run.ts'

export interface EarlierAgentsOptions {
  readonly clock: Clock
  readonly directory: AgentDirectory
  readonly listener: BackendListener
  readonly earlier: EarlierRun
  readonly used: UsedAgents
  /** Whether all data of the agent for an earlier start has arrived. */
  readonly hasAttached: (agent: AgentStart) => boolean
  readonly isClosed: () => boolean
  readonly reportRestart: (name: string, reason: string) => void
  readonly attachTimeoutMs: number
}

const pollIntervalMs = 200

export class EarlierAgents {
  readonly #options: EarlierAgentsOptions
  #used: readonly AgentStart[] = []
  #isDecided = false

  constructor(options: EarlierAgentsOptions) {
    this.#options = options
  }

  setUsed(used: readonly AgentStart[]): void {
    this.#used = used
  }

  /** Whether an earlier start used the agent. If so, this start uses it even if it is draining. */
  has({ name, epoch }: AgentStart): boolean {
    return this.#used.some((one) => one.name === name && one.epoch === epoch)
  }

  /** The agents that are not yet known to be present or missing. */
  get undecided(): readonly AgentStart[] {
    return this.#isDecided ? [] : this.#used
  }

  /**
   * Reports missing agents. They may have begun unknown attempts, so no task counts as new. Called
   * when the agents that were found are attached.
   */
  async reportMissingAgents({ used, missing }: NotedAgents): Promise<void> {
    const { earlier, clock, attachTimeoutMs, hasAttached, isClosed } = this.#options
    for (const one of missing) if (!hasAttached(one)) earlier.addMissing(one)
    const untilMs = clock.monotonicMs() + attachTimeoutMs
    for (const one of used) {
      while (this.#isAttaching(one) && clock.monotonicMs() < untilMs)
        await sleep(clock, pollIntervalMs)
      if (!hasAttached(one) && !isClosed()) await this.#reportMissing(one)
    }
    this.#isDecided = true
  }

  async #reportMissing(agent: AgentStart): Promise<void> {
    const { earlier, directory, listener, reportRestart, used } = this.#options
    const { name, epoch } = agent
    earlier.addMissing(agent)
    const wasRestarted = (directory.find(name)?.announcement.epoch ?? epoch) !== epoch
    const reason = wasRestarted ? 'it was started again' : 'it was gone when the driver returned'
    if (wasRestarted) reportRestart(name, reason)
    else listener.notice(toEventNotice(NodeLost, { reason, tasks: [] }, { nodeId: name }))
    await used.addMissing(agent)
  }

  /** Whether the agent is present, but not attached yet. */
  #isAttaching(agent: AgentStart): boolean {
    const { directory, hasAttached, isClosed } = this.#options
    if (isClosed() || hasAttached(agent)) return false
    const found = directory.find(agent.name)?.announcement
    return found?.epoch === agent.epoch && found.state !== 'gone'
  }
}

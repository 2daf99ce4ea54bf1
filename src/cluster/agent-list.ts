/** Lists the agents of a cluster: those that are connected, and those that cannot be used. */

import type { BackendError } from '../foundation/errors.ts'
import { sleep, systemClock } from '../foundation/clock.ts'
import { type Log, processLog } from '../foundation/log.ts'
import { connectToNats } from './broker/nats.ts'
import { type BrokerOptions, resolveBrokerOptions } from './cluster-options.ts'
import { AgentDirectory } from './io/driver/agent-directory.ts'
import { deriveKeys, VersionMismatchError } from './wire/envelope.ts'
import type { Announcement, WatcherReport } from './wire/messages.ts'

export interface AgentList {
  readonly agents: readonly Announcement[]
  /** The last reports of watchers about agents that do not answer, such as suspended agents. */
  readonly silent: readonly WatcherReport[]
  readonly unusable: readonly UnusableAgent[]
  /** `false` if new agents still appeared in the last round, or the connection was interrupted. */
  readonly isComplete: boolean
}

export interface UnusableAgent {
  /** `null` if the agent has another token: its announcement cannot be read. */
  readonly name: string | null
  readonly code: string
  readonly reason: string
  /** The protocol versions of this process (`ours`) and of the agent (`theirs`), if they differ. */
  readonly ours?: number
  readonly theirs?: number
}

function toUnusable(error: BackendError): UnusableAgent {
  const { code, message: reason } = error
  if (!(error instanceof VersionMismatchError)) return { name: null, code, reason }
  const { agent: name, ours, theirs } = error
  return { name, code, ours, theirs, reason }
}

const roundMs = 500
const maxQuietRounds = 2
const maxRounds = 20

/** Asks agents to announce themselves. Returns `false` if new agents still appeared at the end. */
async function discoverAgents(directory: AgentDirectory): Promise<boolean> {
  let known = 0
  for (let round = 1, quiet = 0; round <= maxRounds; round++) {
    directory.discover()
    await sleep(systemClock, roundMs)
    const { agents, silent, unusable, pending } = directory
    const answered = agents.length + silent.length + unusable.length
    quiet = answered === known && pending === 0 ? quiet + 1 : 0
    known = answered
    if (quiet === maxQuietRounds) return true
  }
  return false
}

export async function findAgents(
  options: BrokerOptions,
  log: Log = processLog,
): Promise<AgentList> {
  const { broker: connection, token } = resolveBrokerOptions(options, 'tutti agents', log)
  const broker = await connectToNats(connection)
  try {
    const keys = deriveKeys(token, null)
    const clock = systemClock
    const directory = new AgentDirectory({ broker, keys, clock, log, lossSeconds: 10 })
    let wasCut = false
    broker.onConnection(() => (wasCut = true))
    const isComplete = (await discoverAgents(directory)) && !wasCut
    directory.close()
    const agents = directory.agents.map(({ announcement }) => announcement)
    return {
      agents: agents.toSorted((a, b) => (a.name < b.name ? -1 : 1)),
      silent: directory.silent.toSorted((a, b) => (a.agent.name < b.agent.name ? -1 : 1)),
      unusable: directory.unusable.map(toUnusable),
      isComplete,
    }
  } finally {
    await broker.close()
  }
}

/** Lists the agents of a cluster for users: the present ones, and those that cannot be used. */

import type { BackendError } from '../foundation/errors.ts'
import { sleep, systemClock } from '../foundation/clock.ts'
import { type Log, processLog } from '../foundation/log.ts'
import { connectToNats } from './broker/nats.ts'
import { type BrokerOptions, resolveBrokerOptions } from './cluster-options.ts'
import { AgentDirectory } from './driver/directory/agent-directory.ts'
import { deriveKeys, VersionMismatchError } from './wire/envelope.ts'
import type { Announcement, WatcherReport } from './wire/messages.ts'

export interface AgentList {
  readonly agents: readonly Announcement[]
  /** Agents that do not answer, such as suspended ones, as their watchers report them. */
  readonly silent: readonly WatcherReport[]
  /** Agents that announced themselves, but cannot be used, each with the reason. */
  readonly unusable: readonly UnusableAgent[]
  /** Whether the list is complete: no more answers came, and the connection was never down. */
  readonly isComplete: boolean
}

export interface UnusableAgent {
  /** `null` if the agent has another token, because its announcement cannot be read. */
  readonly name: string | null
  readonly code: string
  readonly reason: string
  /** The protocol versions, if they differ. */
  readonly ours?: number
  readonly theirs?: number
}

function toUnusable(error: BackendError): UnusableAgent {
  const { code, message: reason } = error
  if (!(error instanceof VersionMismatchError)) return { name: null, code, reason }
  const { agent: name, ours, theirs } = error
  return { name, code, ours, theirs, reason }
}

/** How long one round waits for answers. Slow agents may answer in a later round. */
const roundMs = 500
/** Listing stops after `quietRounds` rounds without a new answer, or after `maxRounds` in total. */
const quietRounds = 2
const maxRounds = 20

/** Requests announcements until two rounds bring no new agent. `false` if the rounds run out. */
async function listen(directory: AgentDirectory): Promise<boolean> {
  let known = 0
  for (let round = 1, quiet = 0; round <= maxRounds; round++) {
    directory.discover()
    await sleep(systemClock, roundMs)
    const { agents, silent, unusable, pending } = directory
    const answered = agents.length + silent.length + unusable.length
    quiet = answered === known && pending === 0 ? quiet + 1 : 0
    known = answered
    if (quiet === quietRounds) return true
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
    const isComplete = (await listen(directory)) && !wasCut
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

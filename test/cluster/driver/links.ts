/** Agents of a driver, as a test of one of its parts needs them. */

import type { Broker } from '../../../src/cluster/broker/broker.ts'
import type { KnownAgent } from '../../../src/cluster/driver/agent-directory.ts'
import { AgentLink } from '../../../src/cluster/driver/agent-link.ts'
import { RemoteAgent } from '../../../src/cluster/protocol/remote-agent.ts'
import { ClockOffset } from '../../../src/cluster/protocol/clock-offset.ts'
import { deriveKeys } from '../../../src/cluster/wire/envelope.ts'
import { noRules } from '../../../src/cluster/wire/agent-rules.ts'
import { sessionSubjects } from '../../../src/cluster/wire/subjects.ts'
import type { ManualClock } from '../../../src/testing/manual-clock.ts'
import { runOf, useOf } from '../test-token.ts'

/** One of a single core. */
export const agentOf = (name: string, offset = new ClockOffset()): KnownAgent => ({
  announcement: {
    kind: 'announcement',
    name,
    epoch: 1,
    host: name,
    pid: 1,
    version: '0.0.0',
    state: 'ready',
    facts: { cores: 1, gpus: 0, memoryMb: 1000, labels: {} },
    ...noRules,
    sessions: 1,
    refusedMessages: 0,
  },
  offset,
  lastHeardMs: 0,
})

/** An agent whose cancels are passed to `onCancel`, one by one. */
export function remoteAgentOf(
  name: string,
  offset?: ClockOffset,
  onCancel: (uid: string, attempt: number) => void = () => {},
): RemoteAgent {
  const agent: RemoteAgent = new RemoteAgent(agentOf(name, offset), () => {
    for (const jobs of agent.takeCancels().values()) {
      for (const [uid, attempt] of jobs) onCancel(uid, attempt)
    }
  })
  return agent
}

/** The link of the session "session" to an agent "first", whose messages go to the broker. */
export const linkOf = (clock: ManualClock, broker: Broker, offset?: ClockOffset): AgentLink =>
  new AgentLink({
    known: agentOf('first', offset),
    link: 1,
    keys: deriveKeys('a token of the test', runOf('session')),
    subjects: sessionSubjects(useOf('session')),
    broker,
    clock,
    onReport() {},
    onRefused() {},
  })

import { expect, it } from 'vitest'
import type { AgentSession } from '../../../src/cluster/agent/agent-session.ts'
import { NodeShares } from '../../../src/cluster/agent/node-shares.ts'

/**
 * The queue of a node that finishes 1,000 tasks per second, for a session with this many agents.
 */
function aheadOf(agents: number): number {
  const held = { rate: 1000, aheadFactor: 1, submittedCores: 1 }
  const session = { id: 'one', isActive: true, held, outbox: { agents } } as AgentSession
  const facts = { cores: 1, gpus: 0, memoryMb: 0, labels: {} }
  return new NodeShares(facts, new Map([['one', session]])).offer(session).ahead
}

it('each of many agents is sent more at a time, to a limit', () => {
  expect([1, 2, 16, 32, 64, 1000].map(aheadOf)).toEqual([50, 50, 50, 100, 200, 200])
})

import { expect, it } from 'vitest'
import { ClockOffset } from '../../../src/cluster/protocol/driver/clock-offset.ts'
import { Driver } from '../../../src/cluster/protocol/driver/driver.ts'
import type { DriverStimulus } from '../../../src/cluster/protocol/driver/driver-interface.ts'
import { noHeldNodes } from '../../../src/cluster/protocol/placement/held-nodes.ts'
import { noRules } from '../../../src/cluster/wire/agent-rules.ts'

const announcement = {
  kind: 'announcement',
  name: 'first',
  start: 1,
  host: 'first',
  pid: 1,
  version: '0.0.0',
  state: 'ready',
  facts: { cores: 1, gpus: 0, memoryMb: 1000, labels: {} },
  ...noRules,
  sessions: 1,
  refusedMessages: 0,
} as const

it('a driver attaches again to an agent that answers pings, but is silent on its link', () => {
  const agent = { announcement, offset: new ClockOffset(), lastHeardMs: 0 }
  const known = { agents: [agent], gone: [], unusable: [], allHeardMs: 0, find: () => agent }
  const driver = new Driver({
    secondsLeft: () => Infinity,
    held: noHeldNodes,
    known,
    explainNoAgent: null,
    url: 'nats://127.0.0.1',
    agentTimeoutSeconds: 60,
    lossSeconds: 10,
  })
  const attachesAt = (stimulus: DriverStimulus, monotonicMs: number): number => {
    agent.lastHeardMs = monotonicMs
    const instructions = driver.advance(stimulus, { monotonicMs, wallSeconds: monotonicMs / 1000 })
    return instructions.filter(({ kind }) => kind === 'attach').length
  }
  attachesAt({ kind: 'agent joined', agent }, 0)
  expect(attachesAt({ kind: 'claimed', driverStart: 1, links: 100, earlier: null }, 0)).toBe(1)
  const offer = { cores: 1, gpus: 0, memoryMb: 1000, ahead: 0 }
  const answer = { kind: 'attached', start: 1, offer, held: [], use: 7, resent: 0 } as const
  attachesAt({ kind: 'attached', link: 101, answer }, 0)
  const attaches = Array.from({ length: 20 }, (_, at) => attachesAt({ kind: 'tick' }, at * 500))
  expect(attaches.every((count) => count === 0)).toBe(true)
  expect(attachesAt({ kind: 'tick' }, 10_000)).toBe(1)
})

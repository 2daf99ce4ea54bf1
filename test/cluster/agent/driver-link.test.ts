import { expect, it } from 'vitest'
import type { Broker } from '../../../src/cluster/broker/broker.ts'
import { DriverLink } from '../../../src/cluster/agent/driver-link.ts'
import { deriveKeys, seal } from '../../../src/cluster/wire/envelope.ts'
import type { Attach, Heartbeat } from '../../../src/cluster/wire/messages.ts'
import { newRunId, sessionSubjects } from '../../../src/cluster/wire/subjects.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { MemoryBroker } from '../memory-broker.ts'
import { runOf } from '../test-token.ts'

const run = runOf('session')
const keys = deriveKeys('a token of the test', run)
const subjects = sessionSubjects(run)

const attachOf = (epoch: number, given = run): Attach => ({
  kind: 'attach',
  ...given,
  nonce: 1,
  epoch,
  link: 1,
  ownerTtlSeconds: 60,
  resultTtlSeconds: 60,
  agentTimeoutSeconds: 60,
  folder: '/',
})

/** A link at a server that can be another one from now on, and beats of its driver. */
class Linked {
  serverId = 'first'
  readonly link: DriverLink
  readonly #broker: Broker
  #beats = 0

  constructor() {
    const memory = new MemoryBroker()
    const serverId = (): string => this.serverId
    this.#broker = Object.defineProperty(memory, 'serverId', { get: serverId })
    const options = {
      agent: 'agent',
      keys: () => keys,
      subjects,
      broker: this.#broker,
      clock: new ManualClock(),
      onMessage() {},
      onHeartbeat() {},
      onRefused: (reason: string) => expect.unreachable(reason),
    }
    this.link = new DriverLink(options, attachOf(1))
  }

  beat(hasStream: boolean): void {
    this.tell({ hasStream })
  }

  tell(known: Partial<Heartbeat>): void {
    const work = { hasWaiting: false, hasIdle: false, agents: 1, needsRoom: false }
    const beat: Heartbeat = { kind: 'beat', ...work, hasStream: true, lostStreams: 0, ...known }
    const header = { epoch: 1, number: ++this.#beats, acknowledged: 0 }
    this.#broker.publish(subjects.heartbeat, seal(keys.toAgent, subjects.heartbeat, header, beat))
  }
}

it('another run means a closed session, unless its server may have lost the stream', () => {
  const linked = new Linked()
  const next = attachOf(2, { ...run, run: newRunId() })
  expect(linked.link.wasClosedBefore(next)).toBe(true)
  expect(linked.link.wasClosedBefore(attachOf(2))).toBe(false)
  // The server was started again, and the driver has not created its stream yet.
  linked.serverId = 'second'
  linked.beat(false)
  expect(linked.link.wasClosedBefore(next)).toBe(false)
  linked.beat(true)
  expect(linked.link.wasClosedBefore(next)).toBe(true)
  // The same server has lost the stream.
  linked.beat(false)
  expect(linked.link.wasClosedBefore(next)).toBe(false)
})

it('a driver has no use for jobs that are handed back while all its agents are busy', () => {
  const linked = new Linked()
  const canPlace = [
    { hasWaiting: true, hasIdle: false },
    { hasWaiting: true, hasIdle: true },
    { hasWaiting: false, hasIdle: false },
  ].map((work) => {
    linked.tell(work)
    return linked.link.canPlaceReturned
  })
  expect(canPlace).toEqual([false, true, true])
})

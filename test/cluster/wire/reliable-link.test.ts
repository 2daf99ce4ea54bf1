import { deserialize, serialize } from 'node:v8'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { deriveKeys } from '../../../src/cluster/wire/envelope.ts'
import { ReliableLink } from '../../../src/cluster/wire/reliable-link.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { assertProperty } from '../../property.ts'
import { runOf } from '../test-token.ts'

interface Sent {
  readonly to: 'agent' | 'driver'
  readonly subject: string
  readonly data: Buffer
}

/** Two ends and a wire between them that does with messages what the test says. */
function createPair(epochs: { driver: number; agent: number } = { driver: 1, agent: 1 }) {
  const clock = new ManualClock()
  const { toAgent, toDriver } = deriveKeys('token', runOf('session'))
  const wire: Sent[] = []
  const arrived = { agent: [] as unknown[], driver: [] as unknown[] }
  const refused: string[] = []
  const common = {
    clock,
    onRefused: (reason: string): void => {
      refused.push(reason)
    },
  }
  const driver = new ReliableLink({
    ...common,
    sendKey: toAgent,
    receiveKey: toDriver,
    epoch: epochs.driver,
    idleSubject: 'down',
    publish: (subject, data) => void wire.push({ to: 'agent', subject, data }),
    onMessage: (payload) => void arrived.driver.push(payload),
  })
  const agent = new ReliableLink({
    ...common,
    sendKey: toDriver,
    receiveKey: toAgent,
    epoch: epochs.agent,
    idleSubject: 'up',
    publish: (subject, data) => void wire.push({ to: 'driver', subject, data }),
    onMessage: (payload) => void arrived.agent.push(payload),
  })
  const ends = { driver, agent }
  const deliver = ({ to, subject, data }: Sent): void => ends[to].receive(subject, data)
  return { clock, wire, arrived, refused, ends, deliver }
}

const step = fc.oneof(
  { weight: 4, arbitrary: fc.constantFrom('driver sends' as const, 'agent sends' as const) },
  { weight: 4, arbitrary: fc.constant('deliver' as const) },
  {
    weight: 3,
    arbitrary: fc.constantFrom(
      'lose' as const,
      'repeat' as const,
      'reorder' as const,
      'tick' as const,
      'reconnect' as const,
    ),
  },
)

describe('a reliable link', () => {
  it('a reliable link delivers once and in order, after losses, repeats and cuts', async () => {
    await assertProperty(
      fc.asyncProperty(fc.array(step, { maxLength: 120 }), async (steps) => {
        const { clock, wire, arrived, ends, deliver, refused } = createPair()
        const sent = { driver: 0, agent: 0 }
        const send = (from: 'driver' | 'agent'): void => {
          const subject = from === 'driver' ? 'down' : 'up'
          ends[from].send(subject, serialize(++sent[from]))
        }
        const tick = async (): Promise<void> => {
          await clock.advance(500)
          ends.driver.tick()
          ends.agent.tick()
        }
        for (const one of steps) {
          if (one === 'driver sends') send('driver')
          else if (one === 'agent sends') send('agent')
          else if (one === 'lose') wire.shift()
          else if (one === 'reorder') wire.reverse()
          else if (one === 'tick') await tick()
          else if (one === 'reconnect') {
            wire.length = 0
            ends.driver.resend()
            ends.agent.resend()
          } else {
            const first = one === 'deliver' ? wire.shift() : wire[0]
            if (first !== undefined) deliver(first)
          }
        }
        for (let round = 0; round < 4; round++) {
          await tick()
          for (const message of wire.splice(0)) deliver(message)
        }
        const numbers = (count: number) => Array.from({ length: count }, (_, at) => at + 1)
        expect(arrived.agent).toEqual(numbers(sent.driver))
        expect(arrived.driver).toEqual(numbers(sent.agent))
        expect(refused).toEqual([])
        // Acknowledged messages are dropped: nothing is left to send.
        await tick()
        wire.length = 0
        ends.driver.resend()
        ends.agent.resend()
        expect(wire).toEqual([])
      }),
      { numRuns: 200, longRuns: 5000 },
    )
  })

  it('a reliable link resends missing messages once a gap is seen, not for every message', () => {
    const { wire, ends, arrived, deliver } = createPair()
    for (const number of [1, 2, 3, 4]) ends.agent.send('up', serialize(number))
    wire.shift()
    for (let message = wire.shift(); message !== undefined; message = wire.shift()) deliver(message)
    expect(arrived.driver).toEqual([1, 2, 3, 4])
    expect(ends.driver.received).toBe(4)
  })

  it('a reliable link resends in parts to a silent side, and everything arrives', async () => {
    const { clock, wire, ends, arrived, deliver } = createPair()
    const payload = 'x'.repeat(100_000)
    const count = 100
    for (let number = 0; number < count; number++) ends.agent.send('up', serialize(payload))
    wire.length = 0
    let sent = 0
    for (let tick = 0; tick < 20; tick++) {
      await clock.advance(500)
      ends.agent.tick()
      sent += wire.splice(0).length
    }
    // Ten seconds of silence: about as many windows, and not ten times everything.
    expect(sent).toBeLessThan(2 * count)
    ends.agent.send('up', serialize('later'))
    ends.agent.resend()
    let delivered = 0
    for (let one = wire.shift(); one !== undefined; one = wire.shift(), delivered++) deliver(one)
    expect(arrived.driver).toHaveLength(count + 1)
    expect(arrived.driver.at(-1)).toBe('later')
    expect(delivered).toBeLessThan(2 * count)
  })

  it('an acknowledgement that is lost is made again for what is sent again', async () => {
    const { clock, wire, ends, arrived, deliver } = createPair()
    const tick = async (): Promise<void> => {
      await clock.advance(1000)
      ends.driver.tick()
      ends.agent.tick()
    }
    ends.agent.send('up', serialize('one'))
    for (const message of wire.splice(0)) deliver(message)
    await tick()
    wire.length = 0
    for (let round = 0; round < 3; round++) {
      await tick()
      for (const message of wire.splice(0)) deliver(message)
    }
    expect(ends.agent.isAcknowledged(1)).toBe(true)
    expect(arrived.driver).toEqual(['one'])
  })

  it('a reliable link ignores other links, refuses another direction or subject', () => {
    const { wire, ends, refused, arrived } = createPair({ driver: 1, agent: 2 })
    ends.driver.send('down', serialize('job'))
    const [message] = wire
    if (message === undefined) throw new Error('nothing was sent')
    ends.agent.receive('down', message.data)
    ends.agent.receive('other', message.data)
    ends.driver.receive('down', message.data)
    expect(refused).toEqual(['its signature is wrong', 'its signature is wrong'])
    expect(arrived).toEqual({ agent: [], driver: [] })
  })

  it('a reliable link acknowledges with a message of its own that carries nothing', () => {
    const { wire, ends, deliver } = createPair()
    ends.driver.send('down', serialize('job'))
    for (const message of wire.splice(0)) deliver(message)
    ends.agent.tick()
    expect(wire.map(({ to, subject }) => [to, subject])).toEqual([['driver', 'up']])
    expect(deserialize(Buffer.from(wire[0]?.data.subarray(57) ?? []))).toBeUndefined()
  })
})

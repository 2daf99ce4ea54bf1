import { expect, it, onTestFinished } from 'vitest'
import type { Broker } from '../../../src/cluster/broker/broker.ts'
import { connectToNats } from '../../../src/cluster/broker/nats.ts'
import { startNatsServer } from '../../../src/cluster/broker/nats-server.ts'
import { SessionStream } from '../../../src/cluster/broker/session-stream.ts'
import { becomeOwner, type Ownership } from '../../../src/cluster/driver/session-owner.ts'
import { deriveKeys } from '../../../src/cluster/wire/envelope.ts'
import { newRunId, sessionSubjects } from '../../../src/cluster/wire/subjects.ts'
import { systemClock } from '../../../src/foundation/clock.ts'
import { processLog } from '../../../src/foundation/log.ts'
import { token, useOf } from '../test-token.ts'

const use = useOf('same')
const subjects = sessionSubjects(use)

async function connect(url: string): Promise<Broker> {
  const broker = await connectToNats({ servers: [url], token, name: 'owner', log: processLog })
  onTestFinished(() => broker.close())
  return broker
}

/** As a driver on another machine would. */
function own(broker: Broker): Promise<Ownership> {
  const { stream: name, stored } = subjects
  const stream = new SessionStream({
    store: broker.store,
    name,
    subjects: stored,
    run: newRunId,
    maxAgeSeconds: () => 60,
  })
  return becomeOwner({
    broker,
    stream,
    subjects,
    cluster: deriveKeys(token, null),
    use,
    clock: systemClock,
    isOpen: () => true,
    onFull: () => expect.unreachable('the store has room'),
  })
}

const changed = (broker: Broker, changes: Partial<Broker>): Broker => ({
  url: broker.url,
  isConnected: true,
  serverId: broker.serverId,
  maxPayload: broker.maxPayload,
  store: broker.store,
  publish: (subject, data) => broker.publish(subject, data),
  subscribe: (subject, onMessage) => broker.subscribe(subject, onMessage),
  request: (subject, data, timeoutMs) => broker.request(subject, data, timeoutMs),
  requestAccepted: (...question) => broker.requestAccepted(...question),
  onConnection: (listener) => broker.onConnection(listener),
  close: () => broker.close(),
  ...changes,
})

/** Brokers whose first requests are all answered before any of them continues. */
function atOnce(brokers: readonly Broker[]): Broker[] {
  const all = Promise.withResolvers<void>()
  let left = brokers.length * 2
  return brokers.map((broker) => {
    const requestAccepted: Broker['requestAccepted'] = async (...question) => {
      const answer = broker.requestAccepted(...question)
      await answer.catch(() => {})
      if (--left === 0) all.resolve()
      await all.promise
      return await answer
    }
    return changed(broker, { requestAccepted })
  })
}

it('one of several drivers that find no other at the same moment gets the session', async () => {
  const server = await startNatsServer({ token, clock: systemClock })
  onTestFinished(() => server.close())
  const brokers = await Promise.all([1, 2, 3].map(() => connect(server.url)))
  const results = await Promise.allSettled(atOnce(brokers).map((broker) => own(broker)))
  const owners = results.filter(({ status }) => status === 'fulfilled')
  const refused = results.filter((result) => result.status === 'rejected')
  expect(owners).toHaveLength(1)
  expect(refused.map(({ reason }) => (reason as { code: string }).code)).toEqual([
    'SessionInUseError',
    'SessionInUseError',
  ])
})

it('a driver that is too busy for the first question keeps its session', async () => {
  const server = await startNatsServer({ token, clock: systemClock })
  onTestFinished(() => server.close())
  const [busy, other] = [await connect(server.url), await connect(server.url)]
  const subscribe: Broker['subscribe'] = (subject, onMessage) => {
    let questions = 0
    return busy.subscribe(subject, (message) => {
      if (++questions > 1) onMessage(message)
    })
  }
  await own(changed(busy, { subscribe }))
  await expect(own(other)).rejects.toMatchObject({ code: 'SessionInUseError' })
})

it('a driver that is gone is followed by another one, also when its stream is', async () => {
  const server = await startNatsServer({ token, clock: systemClock })
  onTestFinished(() => server.close())
  const broker = await connect(server.url)
  const first = await own(broker)
  await expect(own(broker)).rejects.toMatchObject({ code: 'SessionInUseError' })
  first.stop()
  const second = await own(broker)
  second.stop()
  await broker.store.remove(subjects.stream)
  const third = await own(broker)
  expect([first.isNew, second.isNew, third.isNew]).toEqual([true, false, true])
  expect(second.run).toBe(first.run)
  expect(third.run).not.toBe(first.run)
})

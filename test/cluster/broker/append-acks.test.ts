import { expect, it, onTestFinished } from 'vitest'
import type { Broker } from '../../../src/cluster/broker/broker.ts'
import { connectToNats } from '../../../src/cluster/broker/nats.ts'
import { startNatsServer } from '../../../src/cluster/broker/nats-server.ts'
import { systemClock } from '../../../src/foundation/clock.ts'
import { TimeoutError } from '../../../src/foundation/errors.ts'
import { processLog } from '../../../src/foundation/log.ts'
import { token } from '../test-token.ts'

const data = Buffer.from('a message')

async function connect(): Promise<Broker> {
  const server = await startNatsServer({ token, clock: systemClock })
  onTestFinished(() => server.close())
  const servers = [server.url]
  const broker = await connectToNats({ servers, token, name: 'appending', log: processLog })
  onTestFinished(() => broker.close())
  return broker
}

it('a message that no stream acknowledges is late, each by its own time', async () => {
  const broker = await connect()
  const { store } = broker
  broker.subscribe('silent.*', () => {})
  await store.openStream('kept', { subjects: ['kept.*'], label: 'run', maxAgeSeconds: 60 })
  const ended: string[] = []
  const appended = async (subject: string, timeoutMs: number): Promise<void> => {
    const late = store.append(subject, data, timeoutMs)
    await expect(late).rejects.toThrow(TimeoutError)
    await expect(late).rejects.toThrow(subject)
    ended.push(subject)
  }
  // The first one looks later than the second is late.
  const both = [appended('silent.long', 800), appended('silent.short', 100)]
  await store.append('kept.one', data, 60_000)
  await Promise.all(both)
  expect(ended).toEqual(['silent.short', 'silent.long'])
  // Nothing was pending meanwhile.
  await appended('silent.again', 50)
  await expect(store.append('nobody.there', data, 60_000)).rejects.toThrow(
    'no stream takes the message',
  )
})

it('appends that are not acknowledged when the connection closes are rejected', async () => {
  const broker = await connect()
  const { store } = broker
  broker.subscribe('silent.*', () => {})
  const pending = expect(store.append('silent.one', data, 60_000)).rejects.toThrow('closed')
  await broker.close()
  await pending
  await expect(store.append('silent.two', data, 60_000)).rejects.toThrow(/closed/i)
})

import { jetstreamManager } from '@nats-io/jetstream'
import { connect } from '@nats-io/transport-node'
import { expect, it, onTestFinished } from 'vitest'
import type { BrokerStore } from '../../../src/cluster/broker/broker.ts'
import { startNatsServer } from '../../../src/cluster/broker/nats-server.ts'
import { connectToNats } from '../../../src/cluster/broker/nats.ts'
import { systemClock } from '../../../src/foundation/clock.ts'
import { processLog } from '../../../src/foundation/log.ts'
import { token } from '../test-token.ts'

const stream = 'objects'
/** Three pieces. */
const data = Buffer.alloc(300_000, 7)

interface OpenedServer {
  readonly url: string
  readonly store: BrokerStore
}

/** A server whose stream has two objects: `objects.first` and `objects.second`. */
async function startWithObjects(): Promise<OpenedServer> {
  const server = await startNatsServer({ token, clock: systemClock })
  onTestFinished(() => server.close())
  const { url } = server
  const broker = await connectToNats({ servers: [url], name: 'test', token, log: processLog })
  onTestFinished(() => broker.close())
  const { store } = broker
  const settings = { subjects: [`${stream}.>`], maxAgeSeconds: 600, label: 'test' }
  await store.openStream(stream, settings)
  const { signal } = new AbortController()
  await store.putObject(`${stream}.first`, data, signal)
  await store.putObject(`${stream}.second`, data, signal)
  return { url, store }
}

const piecesOf = async (store: BrokerStore, subject: string): Promise<readonly number[]> =>
  (await store.getObject(stream, subject))?.chunks ?? []

it('deleteObject: an object whose pieces are deleted already is deleted', async () => {
  const { store } = await startWithObjects()
  const first = await piecesOf(store, `${stream}.first`)
  const second = await piecesOf(store, `${stream}.second`)
  expect([first, second]).toEqual([
    [1, 2, 3],
    [4, 5, 6],
  ])
  // The server has one error for messages inside of a stream, and others before and after it.
  await store.deleteObject(stream, `${stream}.second`, second.slice(1, 2))
  for (const pieces of [second, first, first, [99]]) {
    await store.deleteObject(stream, `${stream}.first`, pieces)
  }
  expect(await piecesOf(store, `${stream}.first`)).toEqual([])
})

it('deleteObject: rejects if the server refuses to delete a piece', async () => {
  const { url, store } = await startWithObjects()
  const pieces = await piecesOf(store, `${stream}.first`)
  const connection = await connect({ servers: url, token })
  onTestFinished(() => connection.close())
  const manager = await jetstreamManager(connection)
  await manager.streams.update(stream, { deny_delete: true })
  await expect(store.deleteObject(stream, `${stream}.first`, pieces)).rejects.toThrow(
    /^message delete not permitted$/,
  )
  expect(await piecesOf(store, `${stream}.first`)).toEqual(pieces)
})

it('deleteObject: a stream that does not exist has no objects', async () => {
  const { store } = await startWithObjects()
  await store.remove(stream)
  await store.deleteObject(stream, `${stream}.first`, [1, 2, 3])
  expect(await store.findStream(stream)).toBe(null)
})

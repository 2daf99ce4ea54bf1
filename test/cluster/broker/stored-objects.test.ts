import { expect, it } from 'vitest'
import type { Broker, BrokerStore } from '../../../src/cluster/broker/broker.ts'
import { StoredObjects } from '../../../src/cluster/broker/stored-objects.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'

/** A broker that answers every request with an error, and a list of what was told of that. */
function failingObjects(clock: ManualClock): { objects: StoredObjects; problems: unknown[] } {
  const problems: unknown[] = []
  const fail = (): Promise<never> => Promise.reject(new Error('not now'))
  const store: Partial<BrokerStore> = { putObject: fail, getObject: fail, deleteObject: fail }
  const broker: Partial<Broker> = {
    store: store as BrokerStore,
    url: 'memory',
    isConnected: true,
    onConnection: () => () => {},
  }
  const objects = new StoredObjects({
    owner: 'the test',
    broker: broker as Broker,
    clock,
    stream: 'stream',
    objects: 'objects',
    openStream: () => Promise.resolve(true),
    onProblem: (error) => problems.push(error),
  })
  return { objects, problems }
}

// An agent begins nothing from such a problem on, until the broker has stored something.
it('an object that is not read or deleted is not told as one that is not stored', async () => {
  const clock = new ManualClock()
  const { objects, problems } = failingObjects(clock)
  objects.delete('uid/1/value/digest')
  const reading = objects.get('uid/1/spec/digest').catch(() => 'closed')
  for (let step = 0; step < 10; step++) await clock.advance(3000)
  expect(problems).toEqual([])
  const toStore = { prefix: 'uid/1/value', title: 'the value', data: Buffer.from('value') }
  const storing = objects.put(toStore).catch(() => 'closed')
  for (let step = 0; step < 10; step++) await clock.advance(3000)
  const text = 'the test cannot store the value (5 bytes) at memory now: not now'
  expect(problems).toMatchObject([{ message: text }])
  objects.close()
  expect([await reading, await storing]).toEqual(['closed', 'closed'])
})

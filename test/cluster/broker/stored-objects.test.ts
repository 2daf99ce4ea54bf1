import { expect, it } from 'vitest'
import {
  type Broker,
  type BrokerStore,
  TooLargeForStoreError,
} from '../../../src/cluster/broker/broker.ts'
import { StoredObjects } from '../../../src/cluster/broker/stored-objects.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'

const fail = (): Promise<never> => Promise.reject(new Error('not now'))

/** A broker that answers requests with an error, and a list of what was told of that. */
function failingObjects(
  clock: ManualClock,
  putObject: () => Promise<void> = fail,
  deleteObject: () => Promise<void> = fail,
): { objects: StoredObjects; problems: unknown[] } {
  const problems: unknown[] = []
  const store: Partial<BrokerStore> = { putObject, getObject: fail, deleteObject }
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

// Others that give back what they had stored make a store look smaller than it is.
it('an object is too large once the store has looked smaller several times in a row', async () => {
  const clock = new ManualClock()
  const answers = [4, 4, null, 4, 4, 4, 4, 0]
  let puts = 0
  const { objects } = failingObjects(
    clock,
    () => {
      const limit = answers[puts++ % answers.length] ?? null
      if (limit === 0) return Promise.resolve()
      const refusal = new Error('not now')
      return Promise.reject(limit === null ? refusal : new TooLargeForStoreError(limit, refusal))
    },
    async () => {},
  )
  const toStore = { prefix: 'uid/1/value', title: 'the value', data: Buffer.from('value') }
  const storing = objects.put(toStore)
  for (let step = 0; step < 10; step++) await clock.advance(3000)
  expect(await storing).toMatch(/^uid/)
  expect(puts).toBe(answers.length)
  answers.splice(0, answers.length, 4)
  const refused = objects.put(toStore).catch((error: unknown) => error)
  for (let step = 0; step < 10; step++) await clock.advance(3000)
  const text = 'the test cannot store the value (5 bytes): the store of the broker at memory takes'
  expect(await refused).toMatchObject({
    code: 'StoreTooSmallError',
    message: `${text} 4 bytes in all`,
  })
})

import { describe, expect, it } from 'vitest'
import {
  type Broker,
  type BrokerStore,
  StoreFullError,
} from '../../../src/cluster/broker/broker.ts'
import { StoredObjects } from '../../../src/cluster/broker/stored-objects.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'

/** A broker that answers every request with an error, and a list of the reports about that. */
function failingObjects(clock: ManualClock): { objects: StoredObjects; problems: unknown[] } {
  const fail = (): Promise<never> => Promise.reject(new Error('not now'))
  return objectsIn({ putObject: fail, getObject: fail, deleteObject: fail }, clock)
}

function objectsIn(
  store: Partial<BrokerStore>,
  clock: ManualClock,
): { objects: StoredObjects; problems: unknown[] } {
  const problems: unknown[] = []
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
    refusalTimeoutMs: () => 60_000,
    openStream: () => Promise.resolve(true),
    makeRoom() {},
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

describe('an object that a full store refuses', () => {
  interface Refusal {
    /** The usage of the account before the try. */
    readonly before: number
    /** Its usage after the refusal, including the stored part of the object. */
    readonly held: number
    readonly stored: number
  }
  const seen = (before: number, held: number, stored: number): Refusal => ({ before, held, stored })

  const times = (count: number, refusal: Refusal): Refusal[] =>
    Array.from({ length: count }, () => refusal)

  /** Resolves with what became of 500 bytes, once the store has refused them as the list says. */
  async function store(refusals: readonly Refusal[]): Promise<unknown> {
    const clock = new ManualClock()
    const left = [...refusals]
    const { objects } = objectsIn(
      {
        usage: () => Promise.resolve({ heldBytes: left[0]?.before ?? 0, limitBytes: null }),
        deleteObject: () => Promise.resolve(),
        putObject() {
          const one = left.shift()
          if (one === undefined) return Promise.resolve()
          const usage = { heldBytes: one.held, limitBytes: null }
          const object = { storedBytes: one.stored, neededBytes: 500 }
          return Promise.reject(new StoreFullError(usage, object, new Error('it is full')))
        },
      },
      clock,
    )
    const data = Buffer.alloc(500)
    const found: { outcome?: unknown } = {}
    const storing = objects.put({ prefix: 'uid/1/value', title: 'the value', data }).then(
      () => (found.outcome = 'stored'),
      (error: unknown) => (found.outcome = error),
    )
    while (found.outcome === undefined) await clock.advance(3000)
    return await storing
  }

  // Tries are 0.05 to 3 s apart, and at last 1 s at least: 10 are over before the 60 s, not 100.
  it.each([
    ['for a while', seen(0, 300, 300), 10],
    ['for ever while others had the room before', seen(400, 300, 300), 100],
    ['for ever while others had the room when it was refused', seen(0, 800, 300), 100],
  ])('a refused object waits for room %s', async (_, refusal, count) => {
    expect(await store(times(count, refusal))).toBe('stored')
  })

  it('a refused object waits again for as long after others had the room once', async () => {
    const alone = times(15, seen(0, 300, 300))
    expect(await store([...alone, seen(400, 300, 300), ...alone])).toBe('stored')
  })

  it('a refused object fails if it exceeded all that the account had for long enough', async () => {
    const failed = await store(times(100, seen(10, 310, 300)))
    expect(failed).toMatchObject({ code: 'StoreTooSmallError' })
    expect((failed as Error).message).toMatch(
      new RegExp(
        '^the test cannot store the value \\(500 bytes\\): the store of the broker at memory ' +
          'has had room for at most 310 bytes for the last 6[0-9] s$',
      ),
    )
  })
})

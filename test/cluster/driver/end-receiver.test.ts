import { expect, it } from 'vitest'
import type { Broker, BrokerStore, StoredMessage } from '../../../src/cluster/broker/broker.ts'
import type { StoredObjects } from '../../../src/cluster/broker/stored-objects.ts'
import { DriverJobs } from '../../../src/cluster/driver/driver-jobs.ts'
import { EarlierRun } from '../../../src/cluster/driver/earlier-run.ts'
import { EndReceiver } from '../../../src/cluster/driver/end-receiver.ts'
import { packCompletions } from '../../../src/cluster/wire/completions.ts'
import { deriveKeys, open, seal } from '../../../src/cluster/wire/envelope.ts'
import type { EndsMessage } from '../../../src/cluster/wire/messages.ts'
import { sessionSubjects } from '../../../src/cluster/wire/subjects.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { linkOf } from './links.ts'
import { useOf } from '../test-token.ts'

const keys = deriveKeys('a token of the test', useOf('session'))
const subjects = sessionSubjects(useOf('session'))
const endsEpoch = 7

function endsOf(uid: string, number: number): StoredMessage {
  const subject = subjects.endsOf('first')
  const times = { beganMs: 0, atMs: 1, workerId: 'first/w1' }
  const completions = packCompletions([{ index: 0, uid, attempt: 1, ...times, value: 1 }])
  const message: EndsMessage = { kind: 'ends', agent: 'first', ahead: 1, completions, ends: [] }
  const header = { epoch: endsEpoch, number, acknowledged: 0 }
  return { subject, data: seal(keys.toDriver, subject, header, message) }
}

it('ends that come while a lost agent attaches again are recorded after its answer', async () => {
  const clock = new ManualClock()
  const stale: string[] = []
  const jobs = new DriverJobs({ report() {}, notice: ({ kind }) => void stale.push(kind) }, clock)
  const published: unknown[] = []
  const publish = (subject: string, data: Uint8Array): void => {
    published.push(open(keys.toAgent, subject, data).payload)
  }
  const link = linkOf(clock, { publish } as Partial<Broker> as Broker)
  const stored = [endsOf('moved', 1)]
  const store: Partial<BrokerStore> = {
    read: () => Promise.resolve({ messages: stored, position: { created: '', sequence: 1 } }),
  }
  const receiver = new EndReceiver({
    key: keys.toDriver,
    subjects,
    store: store as BrokerStore,
    objects: {} as Partial<StoredObjects> as StoredObjects,
    jobs,
    earlier: new EarlierRun(),
    agents: new Map([['first', link]]),
    onEarlier: () => expect.unreachable(),
    onRefused: (reason) => expect.unreachable(reason),
    onValueLost: () => expect.unreachable(),
  })
  const received = receiver.use(endsEpoch)
  // It was sent after the agent's answer, which is read later.
  for (const { subject, data } of stored) receiver.take(subject, data)
  const offer = { cores: 1, gpus: 0, memoryMb: 1, ahead: 1 }
  const told = { epoch: 1, offer, held: [], endsEpoch, endMessages: 0, unrecorded: [] }
  link.attached(received, { kind: 'attached', ...told }, false)
  link.endMessages = 1
  link.isMissingEnds()
  expect(link.isMissingEnds()).toBe(true)
  await receiver.readStream(subjects.endsOf('first'))
  link.tick()
  expect([published, stale]).toEqual([[{ kind: 'recorded', through: 1 }], ['event']])
  expect(link.isMissingEnds()).toBe(false)
})

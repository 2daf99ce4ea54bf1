import { expect, it, onTestFinished } from 'vitest'
import type { Broker } from '../../../src/cluster/broker/broker.ts'
import { connectToNats } from '../../../src/cluster/broker/nats.ts'
import { SessionStream } from '../../../src/cluster/broker/session-stream.ts'
import { readNotedAgents, UsedAgents } from '../../../src/cluster/driver/used-agents.ts'
import { deriveKeys, emptyHeader, seal } from '../../../src/cluster/wire/envelope.ts'
import type { AgentNote, JobReference, LostAttempt } from '../../../src/cluster/wire/messages.ts'
import { createOwnerResponder } from '../../../src/cluster/wire/owner-request.ts'
import { sessionSubjects } from '../../../src/cluster/wire/subjects.ts'
import { systemClock } from '../../../src/foundation/clock.ts'
import { processLog } from '../../../src/foundation/log.ts'
import { freePort } from '../../free-port.ts'
import { RestartableServer } from '../restartable-server.ts'
import { runOf, token, useOf } from '../test-token.ts'

const use = useOf('noted')
const subjects = sessionSubjects(use)
const keys = deriveKeys(token, runOf('noted'))

const { run: named } = runOf('noted')

/** Opens the list of used agents, for a driver that has claimed its session. */
async function openUsed(settings = '') {
  const server = new RestartableServer(await freePort(), { settings })
  await server.start()
  const access = { servers: [server.url], token, name: 'driver', log: processLog }
  const broker = await connectToNats(access)
  onTestFinished(() => broker.close())
  const { stream: name, stored } = subjects
  const run = (): string => named
  const maxAgeSeconds = (): number => 60
  const warnings: string[] = []
  const used = new UsedAgents({
    use,
    token,
    run,
    epoch: () => 1,
    keys: () => keys,
    subjects,
    broker,
    directory: { request: () => Promise.reject(new Error('no agent answers')) },
    stream: new SessionStream({ store: broker.store, name, subjects: stored, run, maxAgeSeconds }),
    clock: systemClock,
    log: { warn: (code) => void warnings.push(code) },
    resultTtlSeconds: 60,
    onChange() {},
    onFailed: ({ code }) => void warnings.push(code),
  })
  return { broker, used, warnings }
}

/** As after a restart with the store of a run that was closed since. */
async function restoreOther({
  broker,
}: {
  readonly broker: Broker
}): Promise<() => Promise<string>> {
  const settings = { subjects: subjects.stored, label: 'another run', maxAgeSeconds: 60 }
  await broker.store.openStream(subjects.stream, settings)
  return async () => (await broker.store.openStream(subjects.stream, settings)).label
}

it('the stream of another run, brought back by an older store, is replaced', async () => {
  const opened = await openUsed()
  const labelNow = await restoreOther(opened)
  const { broker, used, warnings } = opened
  await used.restoreNotes(() => [{ name: 'first', epoch: 1 }])
  expect(await labelNow()).toBe(named)
  const noted = await readNotedAgents(broker, subjects, keys)
  expect(noted.used).toEqual([expect.objectContaining({ name: 'first' })])
  expect(warnings).toEqual(['StoreLost'])
})

it('the stream of another run with a living process is kept and reported', async () => {
  const opened = await openUsed()
  const labelNow = await restoreOther(opened)
  const { broker, used, warnings } = opened
  const other = { process: 'another', backend: 'cluster' }
  broker.subscribe(subjects.owner, createOwnerResponder(deriveKeys(token, null), other))
  await used.restoreNotes(() => [{ name: 'first', epoch: 1 }])
  expect(await labelNow()).toBe('another run')
  expect(warnings).toEqual(['SessionInUseError'])
})

it.each(['the driver', 'the agent'])(
  'row 97: a note that an agent has left counts once, also if it is sent again: by %s',
  async (author) => {
    const { broker, used } = await openUsed()
    const agent = { name: 'first', epoch: 7 }
    const { used: subject, stream } = subjects
    await used.add(agent)
    if (author === 'the driver') await used.noteLost(agent, [])
    else {
      const note: AgentNote = { ...agent, state: 'left', endsEpoch: 5 }
      const data = seal(keys.toDriver, subject, { ...emptyHeader, epoch: 1 }, note)
      await broker.store.append(subject, data, 5000)
    }
    expect((await readNotedAgents(broker, subjects, keys)).left).toMatchObject([agent])
    await used.add(agent)
    const { messages } = await broker.store.read(stream, subject, null)
    const noted = messages[1]?.data ?? expect.unreachable('it is noted')
    await broker.store.append(subject, noted, 5000)
    const { left, used: inUse } = await readNotedAgents(broker, subjects, keys)
    expect(left).toEqual([])
    expect(inUse).toMatchObject([agent])
  },
)

it('notes of many attempts stay below the limit of the broker', async () => {
  const { broker, used, warnings } = await openUsed('max_payload: 4096')
  const [gone, missing] = [
    { name: 'gone', epoch: 1 },
    { name: 'missing', epoch: 2 },
  ]
  const references = (prefix: string): JobReference[] =>
    Array.from({ length: 300 }, (_, at) => [`${prefix}-${at}`.padEnd(100, 'x'), at])
  const moved = references('moved')
  const lost = references('lost').map(([uid, attempt]): LostAttempt => {
    return { uid, attempt, message: 'node gone was lost' }
  })
  const skipped = references('skipped')
  await used.add(gone)
  await used.noteLost(gone, lost, moved)
  await used.noteSkipped(missing, skipped)
  // The connection was down when an agent has left by itself: the store has lost nothing.
  await used.restoreNotes(() => [gone])
  const noted = await readNotedAgents(broker, subjects, keys)
  expect(noted).toEqual({
    latestEpoch: 1,
    used: [],
    missing: [expect.objectContaining(missing)],
    left: [expect.objectContaining(gone)],
    lost,
    moved: [...moved, ...skipped],
  })
  expect(warnings).toEqual([])
})

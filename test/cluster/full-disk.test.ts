import { connect } from '@nats-io/transport-node'
import { expect, onTestFinished } from 'vitest'
import { open } from '../../src/cluster/wire/envelope.ts'
import type { DriverMessage } from '../../src/cluster/wire/messages.ts'
import { sessionSubjects } from '../../src/cluster/wire/subjects.ts'
import { defineEvent } from '../../src/events/define-event.ts'
import { makeEvent } from '../../src/events/make-event.ts'
import { Session } from '../../src/session/session.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { eventually } from '../eventually.ts'
import { fillDisk, mountDisk, mounts } from '../mounts.ts'
import { needs } from '../require.ts'
import { startAgentHere, startTestCluster } from './agents.ts'
import { echo } from './fixtures/value-tasks.ts'
import { keysOfSession, storedEnds } from './stored-names.ts'
import { token, useOf } from './test-token.ts'

const Filling = defineEvent('clustertest.Filling', { text: 'str' })

type Recorded = Extract<DriverMessage, { kind: 'recorded' }>

/** The driver's reports to the agent "only" about recorded messages, from now on. */
async function watchRecorded(servers: string, sessionId: string): Promise<readonly Recorded[]> {
  const { toAgent } = await keysOfSession(servers, sessionId)
  const connection = await connect({ servers, token })
  onTestFinished(() => connection.close())
  const found: Recorded[] = []
  connection.subscribe(sessionSubjects(useOf(sessionId)).toAgent('only'), {
    callback: (_, { subject, data }) => {
      const payload = open(toAgent, subject, data).payload as DriverMessage | null
      if (payload?.kind === 'recorded') found.push(payload)
    },
  })
  await connection.flush()
  return found
}

async function runTasks(session: Session, count: number): Promise<void> {
  const toTask = (_: unknown, at: number): ComputeTask<unknown> =>
    new ComputeTask({ function: echo, args: [at] })
  const tasks = Array.from({ length: count }, toTask)
  await session.submitTasks(tasks)
  await session.waitTasks(tasks)
  expect(tasks.filter(({ state }) => state !== 'DONE')).toEqual([])
}

/** A session whose record is on a full disk. The result of one task was recorded before. */
async function openOnFullDisk() {
  const cluster = await startTestCluster()
  const { url } = cluster
  await startAgentHere(cluster, { name: 'only', cores: 2 })
  const warnings: string[] = []
  const warn = (code: string, text: string): void => void warnings.push(`${code}: ${text}`)
  const checkpointPath = mountDisk('24m')
  const session = new Session([await cluster.connect()], { log: { warn } })
  onTestFinished(() => session.close())
  const telemetry = await session.startTelemetry({ checkpointPath })
  const write = (length: number): void => {
    const text = 'x'.repeat(length)
    telemetry.emit(makeEvent(Filling, { session_id: session.id, backend: '', text }))
  }
  await runTasks(session, 1)
  const recorded = await watchRecorded(url, session.id)
  const makeRoom = fillDisk(checkpointPath)
  // More than what is left of the file's last block.
  write(10_000)
  await expect(telemetry.flush()).rejects.toThrow('not on file yet')
  /** How many messages with results there are, when the driver has reported all as received. */
  const untilTaken = async (): Promise<number> => {
    const stored = await storedEnds(url)
    await eventually(() => expect(recorded.at(-1)?.taken).toBe(stored))
    return stored
  }
  return { session, telemetry, warnings, recorded, write, makeRoom, untilTaken, url }
}

const onDisk = needs(mounts)

onDisk('row 124: no result is reported as recorded while the disk is full', async () => {
  const { session, warnings, recorded, untilTaken } = await openOnFullDisk()
  await runTasks(session, 400)
  expect(await untilTaken()).toBeGreaterThan(1)
  expect(recorded.filter(({ through }) => through > 1)).toEqual([])
  await session.close()
  expect(recorded.filter(({ through }) => through > 1)).toEqual([])
  const text = 'EndsNotRecorded: backends were not notified of 400 recorded results'
  expect(warnings.filter((warning) => warning.startsWith(text))).toHaveLength(1)
  expect(warnings).toContainEqual(expect.stringMatching(/^CheckpointLinesLost: \d+ lines/))
})

onDisk('row 124: after a full disk, results whose lines were lost are not recorded', async () => {
  const full = await openOnFullDisk()
  const { session, telemetry, warnings, recorded, untilTaken } = full
  await runTasks(session, 20)
  const before = await untilTaken()
  // More than is kept in memory: the oldest lines, which are those of the results, are dropped.
  for (let at = 0; at < 500; at++) full.write(60_000)
  await eventually(() => expect(telemetry.lostLines).toBeGreaterThan(20))
  full.makeRoom()
  await eventually(() => telemetry.flush())
  expect(recorded.filter(({ through }) => through > 1)).toEqual([])
  // The first may belong to the results among which the session notices a loss.
  await runTasks(session, 1)
  await runTasks(session, 1)
  const after = await untilTaken()
  await eventually(() => expect(recorded.at(-1)?.through).toBe(after))
  const lost = recorded.flatMap((one) => one.lost ?? [])
  const expected = Array.from({ length: before - 1 }, (_, at) => at + 2)
  expect(lost).toEqual(expect.arrayContaining(expected))
  expect(lost).not.toContain(after)
  await session.close()
  const text = /^EndsNotRecorded: .* of 2[01] recorded results: \d+ lines of the record/
  expect(warnings.filter((warning) => text.test(warning))).toHaveLength(1)
})

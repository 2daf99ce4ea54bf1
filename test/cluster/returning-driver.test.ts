import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { setTimeout as wait } from 'node:timers/promises'
import { describe, expect, it, onTestFinished } from 'vitest'
import { Session } from '../../src/session/session.ts'
import { type RunningCommand, startProgram } from '../cli/run-command.ts'
import { eventually } from '../eventually.ts'
import { sharedTestCluster, startAgentHere, startTestCluster, type TestCluster } from './agents.ts'
import { type KeptTask, toTask } from './fixtures/kept-tasks.ts'
import { type DriverSettings, runReturning } from './fixtures/returning-session.ts'
import { continueRecord, readLatestRecord } from './fixtures/records.ts'
import { byRun, chooseSeed, createRandom, hangMs } from '../long-run.ts'
import { storedEnds, storedNames, storedObjects, watchReads } from './stored-names.ts'

const driver = fileURLToPath(new URL('fixtures/returning-driver.ts', import.meta.url))
const defaultCount = 40

/** For tests in which the driver alone is killed. */
const livingCluster = sharedTestCluster('first', 'second')
const oneAgent = sharedTestCluster('only')
const sharedServer = sharedTestCluster()

/** A process that is killed, at the latest with the test. */
function startDriver({ url, folder }: TestCluster, settings: DriverSettings): RunningCommand {
  const program = startProgram(driver, [url, folder, JSON.stringify(settings)])
  onTestFinished(() => void program.child.kill('SIGKILL'))
  return program
}

/** The last start, which ends by itself, in this process: returns the states of the tasks. */
const endReturning = ({ url, folder }: TestCluster, settings: DriverSettings): Promise<unknown> =>
  runReturning(url, folder, settings)

function lines(file: string): string[] {
  try {
    return readFileSync(file, 'utf8').trim().split('\n')
  } catch {
    return []
  }
}

it('a driver that is killed and resumes its record begins nothing twice', async () => {
  const cluster = await livingCluster()
  const settings = { isUnnamed: true }
  const begun = join(cluster.folder, 'begun')
  for (const enough of [5, 15]) {
    const killed = startDriver(cluster, settings)
    await eventually(() => expect(lines(begun).length).toBeGreaterThanOrEqual(enough))
    // No agent gets a job before the record names it.
    expect(new Set(readLatestRecord(cluster.folder).match(/"agent_start":\d+/g)).size).toBe(2)
    killed.child.kill('SIGKILL')
    await killed.ended
  }
  const last = await startDriver(cluster, settings).ended
  expect(last.stderr).toBe('')
  expect(JSON.parse(last.stdout)).toEqual(Array.from({ length: defaultCount }, () => 'DONE'))
  expect(lines(begun).toSorted()).toEqual([...new Set(lines(begun))].toSorted())
  expect(lines(begun)).toHaveLength(defaultCount)
})

it('a returning driver does not wait for agents that an earlier start has lost', async () => {
  const cluster = await livingCluster()
  const lost = await cluster.agent('lost', '--cores', '1')
  // Longer than the test, so that silence ends nothing.
  const settings = { backend: { lossSeconds: 3600 }, retries: 3, valueLength: 1 }
  const recorded = (type: string, node: string): RegExp =>
    new RegExp(`"event_type":"tutti.${type}".*"node_id":"${node}"`)
  const killed = startDriver(cluster, settings)
  await eventually(() => {
    expect(readLatestRecord(cluster.folder)).toMatch(recorded('NodeJoined', 'lost'))
  })
  lost.child.kill('SIGKILL')
  await lost.ended
  await eventually(() => {
    expect(readLatestRecord(cluster.folder)).toMatch(recorded('NodeLost', 'lost'))
  })
  killed.child.kill('SIGKILL')
  await killed.ended
  // The tasks wait for it.
  writeFileSync(join(cluster.folder, 'go'), '')
  const done = Array.from({ length: defaultCount }, () => 'DONE')
  expect(await endReturning(cluster, settings)).toEqual(done)
})

it('a returning driver counts attempts that were lost with their node', async () => {
  const cluster = await startTestCluster()
  await startAgentHere(cluster, { name: 'kept' })
  const lost = await cluster.agent('lost', '--cores', '1')
  const settings = { count: 2, taskMs: 3_600_000, retries: 1, tellsEvents: true }
  const [begun, failed, events] = ['begun', 'failed', 'events'].map((name) => {
    return join(cluster.folder, name)
  }) as [string, string, string]
  const startedOn = async (node: string): Promise<string> => {
    const isStart = (line: string): boolean =>
      /Started/.test(line) && line.endsWith(` ${node}`) && line.includes(' task-')
    return eventually(() => {
      const [, uid = ''] = lines(events).find(isStart)?.split(' ') ?? []
      expect(uid).not.toBe('')
      return uid
    })
  }
  const killed = startDriver(cluster, settings)
  await startedOn('kept')
  const uid = await startedOn('lost')
  lost.child.kill('SIGKILL')
  await eventually(() => {
    expect(readLatestRecord(cluster.folder)).toContain('"event_type":"tutti.TaskAttempt"')
  })
  killed.child.kill('SIGKILL')
  await killed.ended
  startDriver(cluster, settings)
  const third = await cluster.agent('third', '--cores', '1')
  expect(await startedOn('third')).toBe(uid)
  third.child.kill('SIGKILL')
  await eventually(() => expect(lines(failed)).toEqual([uid]))
  expect(lines(begun).filter((one) => one === uid)).toHaveLength(2)
})

describe('a driver that is killed at seeded moments and started again each time', () => {
  const seed = chooseSeed()
  const rounds = Array.from({ length: byRun(1, 5) }, (_, at) => seed + at)
  it.each(rounds)(
    'a driver killed at seeded moments runs everything once, without leftovers: seed %i',
    async (own) => {
      const random = createRandom(own)
      const cluster = await livingCluster()
      const kills = byRun(3, 10)
      // More than are done before the last kill: a driver that has finished would start from the
      // beginning.
      const count = kills * 30
      const settings = { count, taskMs: 120, hasPrograms: true }
      const begun = join(cluster.folder, 'begun')
      for (let kill = 0; kill < kills; kill++) {
        const killed = startDriver(cluster, settings)
        // Moments of its work, and among them some of its start.
        const enough = lines(begun).length + Math.floor(random() * 8)
        await eventually(() => expect(lines(begun).length).toBeGreaterThanOrEqual(enough))
        await wait(random() * 400)
        expect(killed.child.exitCode).toBe(null)
        killed.child.kill('SIGKILL')
        await killed.ended
      }
      const last = await startDriver(cluster, settings).ended
      expect(last.stderr).toBe('')
      expect(JSON.parse(last.stdout)).toEqual(Array.from({ length: count }, () => 'DONE'))
      const uids = Array.from({ length: count }, (_, index) => `task-${index}`)
      expect(lines(begun).toSorted()).toEqual(uids.toSorted())
      expect(await storedNames(cluster.server.url)).toEqual([])
    },
    byRun(1, 5) * hangMs,
  )
})

it('a returning driver reads each earlier result once', async () => {
  const cluster = await livingCluster()
  const settings = { count: 80, taskMs: 50 }
  const killed = startDriver(cluster, settings)
  await eventually(() => expect(lines(join(cluster.folder, 'ended')).length).toBeGreaterThan(16))
  killed.child.kill('SIGKILL')
  await killed.ended
  const reads = await watchReads(cluster.server.url)
  const done = Array.from({ length: settings.count }, () => 'DONE')
  expect(await endReturning(cluster, settings)).toEqual(done)
  expect(reads.size).toBeGreaterThan(0)
  expect([...reads.values()].filter((count) => count > 1)).toEqual([])
})

it('a returning driver has the large value that an earlier start has recorded', async () => {
  const cluster = await startTestCluster()
  const program = fileURLToPath(new URL('fixtures/large-driver.ts', import.meta.url))
  const values = join(cluster.folder, 'values')
  for (const expected of [1, 2]) {
    // A restarted agent has none of the results that it had reported.
    const agent = await cluster.agent('first', '--cores', '1')
    const driverProcess = startProgram(program, [cluster.server.url, cluster.folder])
    onTestFinished(() => void driverProcess.child.kill('SIGKILL'))
    await eventually(() => expect(lines(values)).toHaveLength(expected))
    await eventually(async () => expect(await storedObjects(cluster.server.url)).toEqual([]))
    driverProcess.child.kill('SIGKILL')
    agent.child.kill('SIGKILL')
    await Promise.all([driverProcess.ended, agent.ended])
  }
  expect(lines(values)).toEqual(['2000000', '2000000'])
  expect(lines(join(cluster.folder, 'begun'))).toEqual(['begun'])
})

it('a killed driver without a record begins a new run, and agents end the old one', async () => {
  const cluster = await oneAgent()
  const { folder, server } = cluster
  const settings = { resumes: false, count: 1, hasPrograms: true, taskMs: 3_600_000 }
  const killed = startDriver(cluster, { ...settings, backend: { ownerTtlSeconds: 3600 } })
  const begun = join(folder, 'begun')
  await eventually(() => expect(lines(begun)).toEqual(['task-0']))
  killed.child.kill('SIGKILL')
  await killed.ended
  // The only core is free again, although the first program would run for an hour.
  expect(await endReturning(cluster, { ...settings, taskMs: 0 })).toEqual(['DONE'])
  expect(lines(begun)).toEqual(['task-0', 'task-0'])
  expect(await storedNames(server.url)).toEqual([])
})

describe('what a killed driver left, taken by a session of the same id', () => {
  const killedDriver = async (
    cluster: TestCluster,
    tasks: readonly KeptTask[],
    isEnough: () => void,
  ): Promise<void> => {
    const program = fileURLToPath(new URL('fixtures/kept-driver.ts', import.meta.url))
    const given = [cluster.server.url, cluster.folder, JSON.stringify(tasks)]
    const killed = startProgram(program, given)
    onTestFinished(() => void killed.child.kill('SIGKILL'))
    await eventually(isEnough)
    killed.child.kill('SIGKILL')
    await killed.ended
  }

  it('an attempt that runs meanwhile keeps its number, and counts when it fails', async () => {
    const cluster = await oneAgent()
    const { folder } = cluster
    const one: KeptTask = { uid: 'retried', kind: 'held failure', retries: 1 }
    const begun = join(folder, 'begun')
    const both = ['retried 1', 'retried 2']
    await killedDriver(cluster, [one], () => expect(lines(begun)).toEqual(both))
    const session = new Session([await cluster.connect()], { id: 'kept' })
    onTestFinished(() => session.close())
    const telemetry = await continueRecord(session, folder)
    const attempts: unknown[] = []
    telemetry.subscribe(({ event_type: type, attributes }) => {
      if (/^Task(Started|Failed)$/.test(type)) attempts.push([type, attributes['attempt']])
    })
    const task = toTask(folder, one)
    await session.submitTasks([task])
    await eventually(() => expect(task.state).toBe('RUNNING'))
    writeFileSync(join(folder, 'go'), '')
    await session.waitTasks([task])
    expect(task.error?.cause).toMatchObject({ message: 'attempt 2' })
    expect(lines(begun)).toEqual(both)
    await telemetry.flush()
    expect(attempts).toEqual([
      ['TaskStarted', 2],
      ['TaskFailed', 2],
    ])
  })

  it('a task that is canceled while the session is told of another end, ends once', async () => {
    const cluster = await sharedServer()
    const { folder, server } = cluster
    await startAgentHere(cluster, { name: 'wide', cores: 2 })
    const kept: readonly KeptTask[] = [
      { uid: 'failing', kind: 'failing' },
      { uid: 'done', kind: 'held' },
    ]
    const begun = join(folder, 'begun')
    await killedDriver(cluster, kept, () => expect(lines(begun)).toHaveLength(2))
    writeFileSync(join(folder, 'go'), '')
    await eventually(async () => expect(await storedEnds(server.url)).toBeGreaterThan(0))
    const session = new Session([await cluster.connect()], { id: 'kept' })
    onTestFinished(() => session.close())
    await continueRecord(session, folder)
    const controller = new AbortController()
    // The session asks this while it takes the failure.
    const abort = (): boolean => {
      controller.abort()
      return false
    }
    const [failing, done] = kept as [KeptTask, KeptTask]
    const tasks = [
      toTask(folder, failing, { retries: { times: 1, if: abort } }),
      toTask(folder, done, { signal: controller.signal }),
      toTask(folder, { uid: 'later', kind: 'held' }),
    ]
    await session.submitTasks(tasks)
    await session.waitTasks(tasks)
    expect(tasks.map(({ state }) => state)).toEqual(['FAILED', 'CANCELED', 'DONE'])
    expect(lines(begun).toSorted()).toEqual(['done 1', 'failing 1', 'later 1'])
  })
})

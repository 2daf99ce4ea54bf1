import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, it, onTestFinished } from 'vitest'
import type { ClusterBackend } from '../../src/cluster/cluster-backend.ts'
import { Session } from '../../src/session/session.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { type RunningCommand, startProgram } from '../cli/run-command.ts'
import { eventually } from '../eventually.ts'
import { sharedTestCluster, startAgentHere, startTestCluster, type TestCluster } from './agents.ts'
import { continueRecord, copyRecords } from './fixtures/records.ts'
import { type DriverSettings, runReturning } from './fixtures/returning-session.ts'
import { heldWork, work } from './fixtures/cluster-tasks.ts'
import { LinkProxy } from './link-proxy.ts'
import { namesOfSession, storedNames } from './stored-names.ts'

/** For tests whose sessions end. */
const oneAgent = sharedTestCluster('only')
const twoAgents = sharedTestCluster('first', 'second')

const program = fileURLToPath(new URL('fixtures/returning-driver.ts', import.meta.url))

function startDriver(cluster: TestCluster, given: DriverSettings): RunningCommand {
  const driver = startProgram(program, [cluster.server.url, cluster.folder, JSON.stringify(given)])
  onTestFinished(() => void driver.child.kill('SIGKILL'))
  return driver
}

/** A later driver of the session, with a copy of the stopped one's record. */
const runElsewhere = (
  { url, folder }: TestCluster,
  given: DriverSettings,
): Promise<readonly unknown[]> =>
  runReturning(url, folder, { ...given, recordFolder: copyRecords(folder) })

/**
 * Agents of this process are silent while it waits for a core, for up to four seconds beside eight
 * busy processes: a driver in another process loses them, and what they run begins twice.
 */
const lossSeconds = 6

const lines = (file: string): string[] => readFileSync(file, 'utf8').trim().split('\n')

const statesOf = async ({ ended }: RunningCommand): Promise<string[]> =>
  JSON.parse((await ended).stdout) as string[]

const since = 'while this one was suspended or disconnected'

describe('one session id', () => {
  it('a session has one living driver: a second one is refused', async () => {
    const cluster = await oneAgent()
    const [first, second] = await Promise.all([cluster.connect(), cluster.connect()])
    const session = new Session([first], { id: 'same' })
    onTestFinished(() => session.close())
    const begun = join(cluster.folder, 'begun')
    const one = new ComputeTask({ function: work, args: [begun, 'one', 50] })
    await session.submitTasks([one])
    await one
    const intruder = new Session([second], { id: 'same' })
    const refused = new ComputeTask({ function: work, args: [begun, 'refused', 0] })
    await intruder.submitTasks([refused])
    await intruder.waitTasks([refused])
    expect(refused.error?.cause).toMatchObject({ code: 'SessionInUseError' })
    await intruder.close()
    expect(await namesOfSession(cluster.server.url, 'same')).not.toEqual([])
    const other = new ComputeTask({ function: work, args: [begun, 'other', 0] })
    await session.submitTasks([other])
    expect(await other).toBe('other')
    expect(lines(begun)).toEqual(['one', 'other'])
    await session.close()
    expect(await namesOfSession(cluster.server.url, 'same')).toEqual([])
  })

  it('a session is not begun again by a stopped driver once a later one ended it', async () => {
    const cluster = await oneAgent()
    const given = { count: 12, taskMs: 100, backend: { lossSeconds } }
    const first = startDriver(cluster, given)
    const begun = join(cluster.folder, 'begun')
    await eventually(() => expect(lines(begun)).toContain('task-2'))
    first.child.kill('SIGSTOP')
    const states = await runElsewhere(cluster, given)
    expect(new Set(states)).toEqual(new Set(['DONE']))
    first.child.kill('SIGCONT')
    // The tasks that it had before it was stopped are done.
    expect(new Set(await statesOf(first))).toContain('SessionInUseError')
    expect(lines(begun).toSorted()).toEqual([...new Set(lines(begun))].toSorted())
    expect(lines(begun)).toHaveLength(given.count)
  })

  it('a session has one process: another one is refused, also with another backend', async () => {
    const cluster = await startTestCluster()
    await startAgentHere(cluster, { name: 'only' })
    const first = startDriver(cluster, { count: 1, taskMs: 3_600_000 })
    const begun = join(cluster.folder, 'begun')
    await eventually(() => expect(lines(begun)).toEqual(['task-0']))
    const second = new Session([await cluster.connect({ name: 'other' })], { id: 'returning' })
    onTestFinished(() => second.close())
    const refused = new ComputeTask({ function: work, args: [begun, 'refused', 0] })
    await second.submitTasks([refused])
    await second.waitTasks([refused])
    expect(refused.error?.cause).toMatchObject({
      code: 'SessionInUseError',
      message: 'session "returning" is in use by another process, on backend "cluster"',
    })
    expect(lines(begun)).toEqual(['task-0'])
    expect(first.child.exitCode).toBe(null)
  })

  it('a session may have several backends on one server, each with its own stream', async () => {
    const cluster = await oneAgent()
    const connect = (name: string): Promise<ClusterBackend> => cluster.connect({ name })
    const session = new Session([await connect('one'), await connect('two')], { id: 'same' })
    onTestFinished(() => session.close())
    const begun = join(cluster.folder, 'begun')
    const tasks = ['one', 'two', 'one', 'two'].map(
      (backend, at) =>
        new ComputeTask({ backend, function: work, args: [begun, `${at}-${backend}`, 10] }),
    )
    await session.submitTasks(tasks)
    expect(await Promise.all(tasks)).toEqual(['0-one', '1-two', '2-one', '3-two'])
    expect(lines(begun).toSorted()).toEqual(['0-one', '1-two', '2-one', '3-two'])
    expect(await storedNames(cluster.server.url)).toHaveLength(2)
    await session.close()
    expect(await storedNames(cluster.server.url)).toEqual([])
  })

  it('a session is superseded while its driver is stopped, which then reports it', async () => {
    const cluster = await twoAgents()
    const given = { count: 24, taskMs: 300, backend: { lossSeconds } }
    const begun = join(cluster.folder, 'begun')
    const stopped = startDriver(cluster, given)
    await eventually(() => expect(lines(begun).length).toBeGreaterThanOrEqual(4))
    stopped.child.kill('SIGSTOP')
    const later = runElsewhere(cluster, given)
    await eventually(() => expect(lines(begun).length).toBeGreaterThanOrEqual(12))
    stopped.child.kill('SIGCONT')
    expect(await later).toEqual(Array.from({ length: 24 }, () => 'DONE'))
    expect(lines(begun)).toHaveLength(24)
    const states = await statesOf(stopped)
    expect(states).toContain('SessionInUseError')
    expect(['DONE', 'NodeLostError', 'SessionInUseError']).toEqual(expect.arrayContaining(states))
    expect(await storedNames(cluster.server.url)).toEqual([])
  })

  it.each(['holds', 'has closed'])(
    'a driver whose link was cut learns that another %s its session; no store counts as lost',
    async (how) => {
      const cluster = await oneAgent()
      const { url, folder } = cluster
      const link = await LinkProxy.start(url)
      const warnings: string[] = []
      const log = { warn: (code: string): void => void warnings.push(code) }
      // The agent's silence never shows it that it was replaced.
      const options = { lossSeconds: 3600, ownerTtlSeconds: 3600, log }
      const first = new Session([await cluster.connect({ servers: link.url, ...options })], {
        id: 'same',
      })
      onTestFinished(() => first.close())
      const telemetry = await continueRecord(first, folder)
      const task = (): ComputeTask<string> =>
        new ComputeTask({ uid: 'held', function: heldWork, args: [folder, 'held', 1] })
      const replaced = task()
      await first.submitTasks([replaced])
      await eventually(() => expect(replaced.state).toBe('RUNNING'))
      link.cut()
      await telemetry.flush()
      const second = new Session([await cluster.connect(options)], { id: 'same' })
      onTestFinished(() => second.close())
      await continueRecord(second, copyRecords(folder))
      const continued = task()
      await second.submitTasks([continued])
      await eventually(() => expect(continued.state).toBe('RUNNING'))
      if (how === 'has closed') await second.close()
      link.mend()
      await first.waitTasks([replaced])
      expect(replaced.error?.cause).toMatchObject({
        code: 'SessionInUseError',
        message: `another process has continued session "same" ${since}`,
      })
      await first.close()
      if (how === 'holds') {
        writeFileSync(join(folder, 'go'), '')
        expect(await continued).toBe('x')
        await second.close()
      }
      expect(warnings).not.toContain('StoreLost')
      expect(lines(join(folder, 'begun'))).toEqual(['held'])
      expect(await storedNames(url)).toEqual([])
    },
  )

  it('an agent does not refuse what a replaced driver sends when its link is back', async () => {
    const cluster = await startTestCluster()
    const { url, folder } = cluster
    const warnings: string[] = []
    const log = { warn: (code: string): void => void warnings.push(code) }
    await startAgentHere(cluster, { name: 'only', log })
    const link = await LinkProxy.start(url)
    const options = { lossSeconds: 3600, ownerTtlSeconds: 3600, log }
    const servers = { servers: link.url }
    const first = new Session([await cluster.connect({ ...servers, ...options })], { id: 'same' })
    onTestFinished(() => first.close())
    const telemetry = await continueRecord(first, folder)
    const task = (): ComputeTask<string> =>
      new ComputeTask({ uid: 'held', function: heldWork, args: [folder, 'held', 1] })
    const replaced = task()
    await first.submitTasks([replaced])
    await eventually(() => expect(replaced.state).toBe('RUNNING'))
    link.cut()
    // Sent to the agent when the link is back.
    expect(first.cancel(replaced)).toBe(true)
    await telemetry.flush()
    const second = new Session([await cluster.connect(options)], { id: 'same' })
    onTestFinished(() => second.close())
    await continueRecord(second, copyRecords(folder))
    const continued = task()
    await second.submitTasks([continued])
    await eventually(() => expect(continued.state).toBe('RUNNING'))
    link.mend()
    await first.waitTasks([replaced])
    writeFileSync(join(folder, 'go'), '')
    expect(await continued).toBe('x')
    expect(await cluster.agents()).toMatchObject([{ refusedMessages: 0 }])
    expect(warnings).not.toContain('MessageRefused')
  })

  it('a session loses no node because its own driver was stopped', async () => {
    const cluster = await twoAgents()
    const given = { count: 16, taskMs: 300, backend: { lossSeconds } }
    const begun = join(cluster.folder, 'begun')
    const driver = startDriver(cluster, given)
    await eventually(() => expect(lines(begun).length).toBeGreaterThanOrEqual(4))
    driver.child.kill('SIGSTOP')
    await stoppedFor(lossSeconds * 1250)
    driver.child.kill('SIGCONT')
    expect(await statesOf(driver)).toEqual(Array.from({ length: 16 }, () => 'DONE'))
    expect(lines(begun)).toHaveLength(16)
  })

  it('a session is used again after its agents gave it up: ended tasks run again', async () => {
    const cluster = await oneAgent()
    const backend = { lossSeconds: 2, ownerTtlSeconds: 1 }
    // On a busy machine agents give it up more than once.
    const driver = startDriver(cluster, { count: 6, taskMs: 1500, retries: 20, backend })
    const begun = join(cluster.folder, 'begun')
    await eventually(() => expect(lines(begun).length).toBeGreaterThanOrEqual(2))
    driver.child.kill('SIGSTOP')
    await stoppedFor(3000)
    driver.child.kill('SIGCONT')
    expect(await statesOf(driver)).toEqual(Array.from({ length: 6 }, () => 'DONE'))
  })
})

/** How long a process stays stopped is what these tests are about. */
const stoppedFor = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms))

import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { connect } from '@nats-io/transport-node'
import { describe, expect, it, onTestFinished } from 'vitest'
import { connectToNats } from '../../src/cluster/broker/nats.ts'
import { unpackCompletions, type WireCompletion } from '../../src/cluster/wire/completions.ts'
import { deriveKeys, emptyHeader, open, seal } from '../../src/cluster/wire/envelope.ts'
import type { ResultsMessage } from '../../src/cluster/wire/messages.ts'
import { announcementSubject, sessionSubjects } from '../../src/cluster/wire/subjects.ts'
import { processLog } from '../../src/foundation/log.ts'
import { type Clock, sleep, systemClock } from '../../src/foundation/clock.ts'
import { messageOf } from '../../src/foundation/errors.ts'
import { Session } from '../../src/session/session.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import type { TelemetryManager } from '../../src/telemetry/manager.ts'
import { startProgram } from '../cli/run-command.ts'
import { eventually } from '../eventually.ts'
import { byRun } from '../long-run.ts'
import { sharedTestCluster, startAgentHere } from './agents.ts'
import { work } from './fixtures/cluster-tasks.ts'
import { continueRecord } from './fixtures/records.ts'
import { keysOfSession } from './stored-names.ts'
import { token, useOf } from './test-token.ts'

const sharedServer = sharedTestCluster()

const program = fileURLToPath(new URL('fixtures/returning-driver.ts', import.meta.url))

/** The system's clock, `seconds` off in both of its times; `step` sets its wall time. */
function createShiftedClock(seconds: number): Clock & { step(by: number): void } {
  let stepped = 0
  return {
    now: () => systemClock.now() + seconds + stepped,
    monotonicMs: () => systemClock.monotonicMs() + seconds * 1000,
    after: (ms, callback, options) => systemClock.after(ms, callback, options),
    nextTurn: (callback) => systemClock.nextTurn(callback),
    step: (by) => void (stepped += by),
  }
}

describe('times of an agent', () => {
  it.each([90, -90])(
    'times of an agent whose clock is %i s off are true, also after a step',
    async (seconds) => {
      const cluster = await sharedServer()
      const clock = createShiftedClock(seconds)
      await startAgentHere(cluster, { name: 'shifted', clock })
      const session = new Session([await cluster.connect()])
      onTestFinished(() => session.close())
      const telemetry = await session.startTelemetry()
      const times = new Map<string, number>()
      telemetry.subscribe(({ event_type: type, event_time: at, task_id: uid }) => {
        if (uid !== null) times.set(`${uid} ${type}`, at)
      })
      const begun = join(cluster.folder, 'begun')
      for (const uid of ['before', 'after']) {
        const from = systemClock.now()
        const task = new ComputeTask({ uid, function: work, args: [begun, uid, 400] })
        await session.submitTasks([task])
        if (uid === 'after') clock.step(3600)
        await task
        const until = systemClock.now()
        await telemetry.flush()
        const [submitted = 0, started = 0, completed = 0] = [
          'Submitted',
          'Started',
          'Completed',
        ].map((name) => times.get(`${uid} Task${name}`))
        expect(from).toBeLessThanOrEqual(submitted)
        expect(submitted).toBeLessThanOrEqual(started)
        // A timer may fire up to a millisecond early.
        expect(completed - started).toBeGreaterThanOrEqual(0.398)
        expect(completed).toBeLessThanOrEqual(until)
      }
    },
  )
})

/** A clock that shows full tenths of a second alone: every estimate of its offset is another. */
const coarseClock: Clock = {
  now: () => systemClock.now(),
  monotonicMs: () => Math.floor(systemClock.monotonicMs() / 100) * 100,
  after: (ms, callback, options) => systemClock.after(ms, callback, options),
  nextTurn: (callback) => systemClock.nextTurn(callback),
}

/**
 * The results of functions that agents have reported, as the broker keeps them. A message whose
 * acknowledgement is late is stored a second time: an end counts once.
 */
async function readCompletions(url: string, sessionId: string): Promise<readonly WireCompletion[]> {
  const broker = await connectToNats({ servers: [url], name: 'test', token, log: processLog })
  onTestFinished(() => broker.close())
  const { stream, allResults } = sessionSubjects(useOf(sessionId))
  const { toDriver: key } = await keysOfSession(url, sessionId)
  const { messages } = await broker.store.read(stream, allResults, null)
  const ends = messages.flatMap(({ subject, data }) => {
    return unpackCompletions((open(key, subject, data).payload as ResultsMessage).completions)
  })
  return [...new Map(ends.map((end) => [end.uid, end])).values()]
}

/** In seconds, by task. */
function followDurations(telemetry: TelemetryManager): ReadonlyMap<string, number> {
  const durations = new Map<string, number>()
  telemetry.subscribe((event) => {
    if (event.event_type !== 'TaskCompleted') return
    durations.set(event.task_id ?? '', event.duration_seconds)
  })
  return durations
}

describe('the duration of an attempt', () => {
  it('the duration of an attempt is measured by the clock of its agent alone', async () => {
    const cluster = await sharedServer()
    await startAgentHere(cluster, { name: 'coarse', clock: coarseClock })
    const session = new Session([await cluster.connect()])
    onTestFinished(() => session.close())
    const durations = followDurations(await session.startTelemetry())
    const begun = join(cluster.folder, 'begun')
    const tasks = [30, 250, 700].map((ms) => {
      return new ComputeTask({ uid: `of-${ms}`, function: work, args: [begun, 'timed', ms] })
    })
    await session.submitTasks(tasks)
    await session.waitTasks(tasks)
    await eventually(() => expect(durations.size).toBe(3))
    // The driver may have an end before the stream has it.
    const told = await eventually(async () => {
      const all = await readCompletions(cluster.server.url, session.id)
      expect(all.map(({ uid }) => uid).toSorted()).toEqual([...durations.keys()].toSorted())
      return all
    })
    for (const { uid, beganMs, atMs } of told) {
      // Two readings of such a clock may be in the wrong order: nothing ends before it began.
      expect(durations.get(uid)).toBeCloseTo(Math.max(0, atMs - beganMs) / 1000, 6)
    }
  })

  it('the duration of an attempt is the same for a later start of the driver', async () => {
    const cluster = await sharedServer()
    await startAgentHere(cluster, { name: 'only' })
    const driver = startProgram(program, [
      cluster.server.url,
      cluster.folder,
      JSON.stringify({ count: 1, taskMs: 1500 }),
    ])
    onTestFinished(() => void driver.child.kill('SIGKILL'))
    const begun = join(cluster.folder, 'begun')
    await eventually(() => expect(readFileSync(begun, 'utf8')).toBe('task-0\n'))
    driver.child.kill('SIGKILL')
    await driver.ended
    const session = new Session([await cluster.connect()], { id: 'returning' })
    onTestFinished(() => session.close())
    const durations = followDurations(await continueRecord(session, cluster.folder))
    const uid = 'task-0'
    const task = new ComputeTask({ uid, function: work, args: [begun, uid, 1500] })
    await session.submitTasks([task])
    expect(await task).toBe(uid)
    await eventually(() => expect(durations.get(uid)).toBeGreaterThan(1.498))
    expect(readFileSync(begun, 'utf8')).toBe('task-0\n')
  })
})

describe('agents that are shared', () => {
  it('agents that are shared leave all idle room to the only busy session', async () => {
    const cluster = await sharedServer()
    await startAgentHere(cluster, { name: 'n1', cores: 4 })
    const sessions = [
      new Session([await cluster.connect()]),
      new Session([await cluster.connect()]),
    ] as const
    onTestFinished(async () => {
      for (const session of sessions) await session.close()
    })
    const start = async (session: Session, count: number): Promise<void> => {
      // With memory: it is sent only to a node where it can start immediately.
      const resources = { memoryMb: 1 }
      const options = { executable: 'sleep', arguments: ['100000'], resources }
      const tasks = Array.from({ length: count }, () => new ComputeTask(options))
      await session.submitTasks(tasks)
      await eventually(() => expect(tasks.every(({ state }) => state === 'RUNNING')).toBe(true))
    }
    await start(sessions[0], 1)
    await start(sessions[1], 3)
  })

  it('agents that are shared give two sessions equal parts', async () => {
    const cluster = await sharedServer()
    await startAgentHere(cluster, { name: 'one' })
    await startAgentHere(cluster, { name: 'two' })
    const begun = join(cluster.folder, 'begun')
    const sessions = await Promise.all(
      ['first', 'second'].map(async (id) => new Session([await cluster.connect()], { id })),
    )
    const create = () => new ComputeTask({ function: work, args: [begun, 'shared', 2] })
    for (const session of sessions) {
      onTestFinished(() => session.close())
      // It uses the agents before the other one has much work for them.
      const first = create()
      await session.submitTasks([first])
      await first
    }
    const count = byRun(300, 1000)
    const all = sessions.map(() => Array.from({ length: count }, create))
    await Promise.all(sessions.map((session, at) => session.submitTasks(all[at] ?? [])))
    await Promise.race(sessions.map((session, at) => session.waitTasks(all[at] ?? [])))
    const done = all.map((tasks) => tasks.filter(({ state }) => state === 'DONE').length)
    expect(Math.min(...done)).toBeGreaterThanOrEqual(count * 0.8)
  })
})

describe('a task that no agent can run', () => {
  it('a task that no agent can run is refused with the way to announce a larger node', async () => {
    const cluster = await sharedServer()
    await startAgentHere(cluster, { name: 'small', memoryMb: 500 })
    await startAgentHere(cluster, { name: 'larger', cores: 2, memoryMb: 700 })
    const backend = await cluster.connect()
    const session = new Session([backend])
    onTestFinished(() => session.close())
    await eventually(() => expect(backend.nodes).toHaveLength(2))
    const resources = { cores: 4, gpus: 1, memoryMb: 600, labels: { disk: 'fast', zone: 'a' } }
    const task = new ComputeTask({ executable: '/bin/true', resources })
    await expect(session.submitTasks([task])).rejects.toMatchObject({
      name: 'ValueError',
      message:
        'tasks[0].resources: no agent has 4 cores, 1 GPU, 600 MB of memory and the labels ' +
        'disk=fast, zone=a; the largest of them, "larger", has 2 cores, 0 GPUs and 700 MB of ' +
        'memory; if a larger one may come later, describe it in `largestNode` of the backend ' +
        '(backend "cluster")',
    })
  })

  it('a task that no agent can run fails once, with the reason of each agent', async () => {
    const cluster = await sharedServer()
    await startAgentHere(cluster, { name: 'plain' })
    await startAgentHere(cluster, { name: 'slow', labels: { disk: 'slow' } })
    const client = await connect({ servers: cluster.server.url, token })
    onTestFinished(() => client.close())
    const key = deriveKeys('another token', null).toDriver
    const header = { ...emptyHeader, scope: 1, number: 1 }
    const other = seal(key, announcementSubject, header, null)
    const announce = setInterval(() => client.publish(announcementSubject, other), 100)
    onTestFinished(() => clearInterval(announce))
    const largestNode = { cores: 64, labels: { disk: 'fast' } }
    const warnings: string[] = []
    const log = { warn: (code: string): void => void warnings.push(code) }
    const backend = await cluster.connect({ agentTimeoutSeconds: 1, largestNode, log })
    await eventually(() => {
      expect(backend.nodes).toHaveLength(2)
      expect(warnings).toContain('MessageRefused')
    })
    const session = new Session([backend])
    onTestFinished(() => session.close())
    const telemetry = await session.startTelemetry()
    const attempts: unknown[] = []
    telemetry.subscribe((event) => {
      if (event.event_type === 'tutti.TaskAttempt') attempts.push(event)
    })
    const begun = join(cluster.folder, 'begun')
    const task = (resources: object): ComputeTask<unknown> =>
      new ComputeTask({ function: work, args: [begun, 'x', 0], resources, retries: 3 })
    const [labelled, large] = [task({ labels: { disk: 'fast' } }), task({ cores: 64 })]
    await session.submitTasks([labelled, large])
    await session.waitTasks([labelled, large])
    await telemetry.flush()
    expect(attempts).toEqual([])
    expect(labelled.error?.cause).toMatchObject({ code: 'NoAgentError' })
    const message = messageOf(labelled.error?.cause)
    expect(message).toContain('agent "plain" does not have the label disk=fast')
    expect(message).toContain('agent "slow" does not have the label disk=fast')
    expect(message).toContain('an agent announces itself with another token')
    expect(messageOf(large.error?.cause)).toMatch(/agent "plain" has 1 core\b/)
  })

  it('a task waits for an agent with its labels, then fails and names them', async () => {
    const cluster = await sharedServer()
    await startAgentHere(cluster, { name: 'plain' })
    const largestNode = { cores: 2, labels: { disk: 'fast' } }
    const backend = await cluster.connect({ agentTimeoutSeconds: 2, largestNode })
    const session = new Session([backend])
    onTestFinished(() => session.close())
    const begun = join(cluster.folder, 'begun')
    const create = (labels: Record<string, string>) =>
      new ComputeTask({ function: work, args: [begun, 'labelled', 0], resources: { labels } })
    await expect(session.submitTasks([create({ disk: 'slow' })])).rejects.toThrow(
      /no agent has 1 core and the label disk=slow; .* `largestNode` .* has 2 cores, .* disk=fast /,
    )
    const failed = create({ disk: 'fast' })
    await session.submitTasks([failed])
    await session.waitTasks([failed])
    expect(failed.error?.cause).toMatchObject({
      code: 'NoAgentError',
      message: expect.stringMatching(
        /^no agent with 1 core and the label disk=fast came to nats:.* within 2 s; agent "plain" /,
      ) as string,
      hint: `Start one: npx tutti agent --connect ${cluster.server.url} --token-file FILE`,
    })
    const [early, late] = [create({ disk: 'fast' }), create({ disk: 'fast' })]
    await session.submitTasks([early])
    const from = systemClock.monotonicMs()
    // Each one waits for its own two seconds.
    await sleep(systemClock, 1500)
    await session.submitTasks([late])
    await session.waitTasks([early, late])
    expect(systemClock.monotonicMs() - from).toBeGreaterThanOrEqual(3500)
    await startAgentHere(cluster, { name: 'fast', labels: { disk: 'fast' } })
    const found = create({ disk: 'fast' })
    await session.submitTasks([found])
    expect(await found).toBe('labelled')
  })
})

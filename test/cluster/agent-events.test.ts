import { existsSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { Session } from '../../src/session/session.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { eventually } from '../eventually.ts'
import { sharedTestCluster, startAgentHere } from './agents.ts'
import { heldWork } from './fixtures/cluster-tasks.ts'
import { crash, tell } from './fixtures/telling-tasks.ts'
import { LinkProxy } from './link-proxy.ts'

const sharedServer = sharedTestCluster()

interface SeenEvent {
  readonly event_type: string
  readonly event_time: number
  readonly task_id: string | null
  readonly node_id: string | null
}

async function openSession(): Promise<{ session: Session; seen: () => Promise<SeenEvent[]> }> {
  const cluster = await sharedServer()
  await startAgentHere(cluster, { name: 'first' })
  const session = new Session([await cluster.connect()])
  onTestFinished(() => session.close())
  const telemetry = await session.startTelemetry()
  const events: SeenEvent[] = []
  telemetry.subscribe((event) => void events.push(event))
  const seen = async (): Promise<SeenEvent[]> => {
    await telemetry.flush()
    return events
  }
  return { session, seen }
}

describe('what agents tell besides the ends of tasks', () => {
  it('progress and own events of a task come before its end, with node and time', async () => {
    const { session, seen } = await openSession()
    const count = 1000
    const task = new ComputeTask({ uid: 'teller', function: tell, args: [count] })
    await session.submitTasks([task])
    expect(await task).toBe('told')
    const events = await seen()
    const ofTask = events.filter(({ task_id }) => task_id === 'teller')
    expect(ofTask.at(-1)?.event_type).toBe('TaskCompleted')
    const progress = ofTask.find(({ event_type }) => event_type === 'tutti.TaskProgress')
    expect(progress).toMatchObject({ fraction: 0.5, text: 'half', node_id: 'first' })
    const steps = ofTask.filter(({ event_type }) => event_type === 'clustertest.Step')
    expect(steps.map((event) => (event as unknown as { number: number }).number)).toEqual(
      Array.from({ length: count }, (_, index) => index + 1),
    )
    expect(new Set(steps.map(({ node_id }) => node_id))).toEqual(new Set(['first']))
    const submitted = ofTask.find(({ event_type }) => event_type === 'TaskSubmitted')
    const end = ofTask.at(-1)
    for (const { event_time } of steps) {
      expect(event_time).toBeGreaterThanOrEqual(submitted?.event_time ?? Infinity)
      expect(event_time).toBeLessThanOrEqual(end?.event_time ?? 0)
    }
  })

  it.each(['ends', 'ends, and its agent leaves'])(
    'reports of a task without a connected driver come before its end: the task %s',
    async (how) => {
      const cluster = await sharedServer()
      const agent = await startAgentHere(cluster, { name: 'first' })
      const proxy = await LinkProxy.start(cluster.server.url)
      const session = new Session([await cluster.connect({ servers: proxy.url })])
      onTestFinished(() => session.close())
      const telemetry = await session.startTelemetry()
      const told: unknown[] = []
      telemetry.subscribe((event) => {
        if (event.task_id !== 'teller') return
        told.push((event as { readonly number?: unknown }).number ?? event.event_type)
      })
      const { folder } = cluster
      const task = new ComputeTask({ uid: 'teller', function: heldWork, args: [folder, 'x', 10] })
      await session.submitTasks([task])
      await eventually(() => expect(existsSync(join(folder, 'begun'))).toBe(true))
      proxy.cut()
      writeFileSync(join(folder, 'tell'), '')
      await eventually(() => expect(existsSync(join(folder, 'told'))).toBe(true))
      if (how === 'ends') proxy.mend()
      writeFileSync(join(folder, 'go'), '')
      if (how !== 'ends') {
        agent.drain()
        expect(await agent.left).toBe(0)
        proxy.mend()
      }
      expect(await task).toHaveLength(10)
      // Nothing is waited for.
      await session.close()
      expect(told.slice(-3)).toEqual([1, 2, 'TaskCompleted'])
    },
  )

  it('a worker that dies on an agent is told as tutti.WorkerLost of its node', async () => {
    const { session, seen } = await openSession()
    const task = new ComputeTask({ uid: 'crasher', function: crash })
    await session.submitTasks([task])
    await session.waitTasks([task])
    const lost = (await seen()).filter(({ event_type }) => event_type === 'tutti.WorkerLost')
    expect(lost).toMatchObject([{ node_id: 'first', tasks: ['crasher'] }])
  })
})

import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import type { ClusterBackend } from '../../src/cluster/cluster-backend.ts'
import type { Log } from '../../src/foundation/log.ts'
import { Session } from '../../src/session/session.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { eventually } from '../eventually.ts'
import { sharedTestCluster, startAgentHere } from './agents.ts'
import { heldWork, work } from './fixtures/cluster-tasks.ts'

const sharedServer = sharedTestCluster()

const lines = (file: string): string[] => readFileSync(file, 'utf8').trim().split('\n')

const nodesOf = (backend: ClusterBackend): string[] =>
  backend.nodes.map(({ nodeId }) => nodeId).toSorted()

describe('an agent that is lost', () => {
  it('an agent lost by SIGKILL: its running task is retried, the rest moves', async () => {
    const cluster = await sharedServer()
    const first = await cluster.agent('first', '--cores', '1')
    await startAgentHere(cluster, { name: 'second' })
    const backend = await cluster.connect()
    await eventually(() => expect(nodesOf(backend)).toEqual(['first', 'second']))
    const session = new Session([backend])
    onTestFinished(() => session.close())
    const telemetry = await session.startTelemetry()
    const events: { event_type: string; node_id: string | null }[] = []
    telemetry.subscribe((event) => void events.push(event))
    const begun = join(cluster.folder, 'begun')
    const tasks = Array.from({ length: 12 }, (_, index) => {
      const uid = `task-${index}`
      return new ComputeTask({ uid, function: work, args: [begun, uid, 300], retries: 2 })
    })
    await session.submitTasks(tasks)
    await eventually(() => expect(lines(begun).length).toBeGreaterThan(3))
    first.child.kill('SIGKILL')
    await session.waitTasks(tasks)
    expect(tasks.map(({ state }) => state)).toEqual(tasks.map(() => 'DONE'))
    expect(tasks.map(({ returnValue }) => returnValue)).toEqual(tasks.map(({ uid }) => uid))
    const countOf = (type: string): number =>
      events.filter(({ event_type }) => event_type === type).length
    await eventually(() => expect(countOf('tutti.NodeLost')).toBe(1))
    await telemetry.flush()
    expect([countOf('tutti.NodeLost'), countOf('TaskCompleted')]).toEqual([1, 12])
  })

  it('row 99: an agent lost by SIGSTOP: its tasks move, its late results are dropped', async () => {
    const cluster = await sharedServer()
    const first = await cluster.agent('first', '--cores', '1')
    await startAgentHere(cluster, { name: 'second' })
    const backend = await cluster.connect({ lossSeconds: 2 })
    const session = new Session([backend])
    onTestFinished(() => session.close())
    const telemetry = await session.startTelemetry()
    const events: { event_type: string; node_id: string | null }[] = []
    telemetry.subscribe((event) => void events.push(event))
    // They last until the agent is lost. On a busy machine one may be lost before it is stopped.
    const tasks = ['one', 'other'].map(
      (uid) =>
        new ComputeTask({ uid, function: heldWork, args: [cluster.folder, uid, 1], retries: 20 }),
    )
    await session.submitTasks(tasks)
    await eventually(() => expect(tasks.map(({ state }) => state)).toEqual(['RUNNING', 'RUNNING']))
    first.child.kill('SIGSTOP')
    await eventually(() => expect(nodesOf(backend)).not.toContain('first'))
    await eventually(() => {
      expect(events).toContainEqual(
        expect.objectContaining({ event_type: 'tutti.NodeLost', node_id: 'first' }),
      )
    })
    writeFileSync(join(cluster.folder, 'go'), '')
    expect(await Promise.all(tasks)).toEqual(['x', 'x'])
    first.child.kill('SIGCONT')
    await eventually(() => {
      expect(events.map(({ event_type }) => event_type)).toContain('tutti.StaleResult')
    })
    const ends = events.filter(({ event_type }) => event_type === 'TaskCompleted')
    expect(ends.map(({ node_id }) => node_id)).toEqual(['second', 'second'])
  })

  it('a lost agent that returns runs the next attempts of its tasks on all its cores', async () => {
    const cluster = await sharedServer()
    const only = await cluster.agent('only', '--cores', '1')
    const backend = await cluster.connect({ lossSeconds: 1 })
    const session = new Session([backend])
    onTestFinished(() => session.close())
    const begun = join(cluster.folder, 'begun')
    const free = join(cluster.folder, 'free')
    // Tasks that start before the agent is lost run long, and later ones end immediately. On a busy
    // machine the agent may be lost before it is stopped: hence the retries.
    const script = `echo >> ${begun}; [ -e ${free} ] || sleep 600`
    const slow = new ComputeTask({
      executable: '/bin/sh',
      arguments: ['-c', script],
      retries: 20,
    })
    const telemetry = await session.startTelemetry()
    let losses = 0
    telemetry.subscribe(({ event_type: type }) => {
      if (type === 'tutti.NodeLost') losses++
    })
    await session.submitTasks([slow])
    await eventually(() => expect([slow.state, lines(begun)[0]]).toEqual(['RUNNING', '']))
    only.child.kill('SIGSTOP')
    await eventually(() => expect(nodesOf(backend)).toEqual([]))
    await eventually(() => expect(losses).toBeGreaterThan(0))
    writeFileSync(free, '')
    only.child.kill('SIGCONT')
    await session.waitTasks([slow])
    expect(slow.state).toBe('DONE')
    const next = Array.from({ length: 3 }, () => {
      return new ComputeTask({ function: work, args: [begun, 'next', 1], retries: 20 })
    })
    await session.submitTasks(next)
    expect(await Promise.all(next)).toEqual(['next', 'next', 'next'])
  })

  it('a lost agent is reported by tutti.NodeLost alone: its sampler does not warn', async () => {
    const cluster = await sharedServer()
    const [killed, stopped] = [await cluster.agent('killed'), await cluster.agent('stopped')]
    const warnings: string[] = []
    const log: Log = { warn: (code, text) => void warnings.push(`${code} ${text}`) }
    const backend = await cluster.connect({ lossSeconds: 3 })
    const both = new Set(['killed', 'stopped'])
    const session = new Session([backend], { log })
    onTestFinished(() => session.close())
    const telemetry = await session.startTelemetry({ resourcePollSeconds: 0.1 })
    const [sampled, lost] = [new Set<string | null>(), new Set<string | null>()]
    telemetry.subscribe(({ event_type: type, node_id: node }) => {
      if (type === 'ResourceUpdate') sampled.add(node)
      else if (type === 'tutti.NodeLost') lost.add(node)
    })
    // The host is sampled as well while no node is known.
    await eventually(() => expect([...sampled]).toEqual(expect.arrayContaining([...both])))
    killed.child.kill('SIGKILL')
    stopped.child.kill('SIGSTOP')
    await eventually(() => expect(lost).toEqual(both))
    await session.close()
    expect(warnings.filter((text) => text.startsWith('SamplerFailed'))).toEqual([])
  })

  it('an agent that leaves before the session is claimed is reported', async () => {
    const cluster = await sharedServer()
    const stopped = await cluster.agent('stopped')
    const leaver = await startAgentHere(cluster, { name: 'leaver' })
    const backend = await cluster.connect()
    await eventually(() => expect(nodesOf(backend)).toEqual(['leaver', 'stopped']))
    // A session is claimed only after every agent was asked. This one does not answer.
    stopped.child.kill('SIGSTOP')
    const session = new Session([backend])
    onTestFinished(() => session.close())
    const telemetry = await session.startTelemetry()
    const left = new Set<string | null>()
    telemetry.subscribe(({ event_type: type, node_id: node }) => {
      if (type === 'tutti.NodeDrained' || type === 'tutti.NodeLost') left.add(node)
    })
    await leaver.close({ waitForResults: false })
    await eventually(() => expect(left).toContain('leaver'))
  })

  it('drained by SIGTERM: finishes what runs, hands back the rest, and leaves', async () => {
    const cluster = await sharedServer()
    const first = await cluster.agent('first', '--cores', '1')
    const backend = await cluster.connect()
    const session = new Session([backend])
    onTestFinished(() => session.close())
    const begun = join(cluster.folder, 'begun')
    const tasks = Array.from({ length: 4 }, (_, index) => {
      const uid = `drained-${index}`
      return new ComputeTask({ uid, function: heldWork, args: [cluster.folder, uid, 1] })
    })
    await session.submitTasks(tasks)
    await eventually(() => expect(lines(begun)).toHaveLength(1))
    first.child.kill('SIGTERM')
    await startAgentHere(cluster, { name: 'second' })
    // The first one runs its task until all may end: the second one was handed back.
    await eventually(() => expect(lines(begun)).toHaveLength(2))
    writeFileSync(join(cluster.folder, 'go'), '')
    await session.waitTasks(tasks)
    expect(tasks.map(({ state }) => state)).toEqual(tasks.map(() => 'DONE'))
    expect(lines(begun)).toHaveLength(4)
    expect((await first.ended).code).toBe(0)
  })
})

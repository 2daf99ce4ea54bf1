import fc from 'fast-check'
import { connect } from '@nats-io/transport-node'
import { expect, it, onTestFinished } from 'vitest'
import { deriveKeys, newScope, open, seal } from '../../src/cluster/wire/envelope.ts'
import {
  agentSubject,
  announcementSubject,
  sessionSubjects,
  watcherSubject,
} from '../../src/cluster/wire/subjects.ts'
import { Session } from '../../src/session/session.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { eventually } from '../eventually.ts'
import { assertProperty } from '../property.ts'
import { sharedTestCluster, startAgentHere } from './agents.ts'
import { echo } from './fixtures/value-tasks.ts'
import { announcements, driverMessages, requests, spoiled } from './sample-messages.ts'
import { runOf, token } from './test-token.ts'

const sharedServer = sharedTestCluster()
const keys = deriveKeys(token, null)
const header = { scope: 7, number: 1, acknowledged: 0 }

it('row 98: signed requests with fields missing or wrong have no effect on an agent', async () => {
  const cluster = await sharedServer()
  const agent = await startAgentHere(cluster, { name: 'first', log: { warn() {} } })
  const client = await connect({ servers: cluster.url, token })
  onTestFinished(() => client.close())
  const subject = agentSubject('first')
  let count = 0
  await assertProperty(
    fc.asyncProperty(spoiled(requests), async (request) => {
      client.publish(subject, seal(keys.toAgent, subject, header, request))
      count++
      await client.flush()
    }),
    { numRuns: 300 },
  )
  await eventually(async () => {
    const [found] = await cluster.agents()
    expect(found).toMatchObject({ state: 'ready', sessions: 0, refusedMessages: count })
  })
  const session = new Session([await cluster.connect()])
  onTestFinished(() => session.close())
  const task = new ComputeTask({ function: echo, args: [1] })
  await session.submitTasks([task])
  expect(await task).toBe(1)
  await agent.close()
})

it('row 98: signed jobs with nested fields wrong have no effect on other sessions', async () => {
  const cluster = await sharedServer()
  const agent = await startAgentHere(cluster, { name: 'first', cores: 2, log: { warn() {} } })
  const session = new Session([await cluster.connect()])
  onTestFinished(() => session.close())
  const running = new ComputeTask({ executable: 'sleep', arguments: ['1000'] })
  await session.submitTasks([running])
  await eventually(() => expect(running.state).toBe('RUNNING'))
  const client = await connect({ servers: cluster.url, token })
  onTestFinished(() => client.close())
  const request = async (payload: object): Promise<object> => {
    const subject = agentSubject('first')
    const { data } = await client.request(subject, seal(keys.toAgent, subject, header, payload))
    return open(keys.toDriver, subject, data).payload as object
  }
  const run = runOf('malformed')
  const link = newScope()
  const [, , attach] = requests
  const { nonce } = (await request({ kind: 'challenge' })) as { readonly nonce: number }
  await request({ ...attach, ...run, nonce, link })
  const down = sessionSubjects(run).toAgent('first')
  const { toAgent } = deriveKeys(token, run)
  let number = 0
  await assertProperty(
    fc.asyncProperty(spoiled([driverMessages[1]]), async (jobs) => {
      const at = { scope: link, number: ++number, acknowledged: 0 }
      client.publish(down, seal(toAgent, down, at, jobs))
      await client.flush()
    }),
    { numRuns: 500 },
  )
  await eventually(async () => {
    const [found] = await cluster.agents()
    expect(found).toMatchObject({ state: 'ready', sessions: 2, refusedMessages: number })
  })
  const task = new ComputeTask({ function: echo, args: [1] })
  await session.submitTasks([task])
  expect(await task).toBe(1)
  expect(running.state).toBe('RUNNING')
  await agent.close({ waitForResults: false })
})

it('row 98: signed announcements with fields missing or wrong are refused', async () => {
  const cluster = await sharedServer()
  await startAgentHere(cluster, { name: 'first' })
  const client = await connect({ servers: cluster.url, token })
  onTestFinished(() => client.close())
  const warnings: string[] = []
  const log = { warn: (code: string): void => void warnings.push(code) }
  const backend = await cluster.connect({ log })
  const session = new Session([backend])
  onTestFinished(() => session.close())
  await assertProperty(
    fc.asyncProperty(spoiled(announcements), async (announcement) => {
      for (const subject of [announcementSubject, watcherSubject]) {
        client.publish(subject, seal(keys.toDriver, subject, header, announcement))
      }
      await client.flush()
    }),
    { numRuns: 300 },
  )
  const task = new ComputeTask({ function: echo, args: [1] })
  await session.submitTasks([task])
  expect(await task).toBe(1)
  expect(backend.nodes.map(({ nodeId }) => nodeId)).toEqual(['first'])
  expect(warnings).toEqual(['MessageRefused'])
})

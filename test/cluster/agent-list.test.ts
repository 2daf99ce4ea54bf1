import { connect } from '@nats-io/transport-node'
import { expect, it, onTestFinished } from 'vitest'
import { findAgents } from '../../src/cluster/agent-list.ts'
import { deriveKeys, open, seal } from '../../src/cluster/wire/envelope.ts'
import {
  agentSubject,
  announcementSubject,
  discoverySubject,
} from '../../src/cluster/wire/subjects.ts'
import { runHere } from '../cli/run-command.ts'
import { sharedTestCluster, type TestCluster } from './agents.ts'
import { announcements } from './sample-messages.ts'
import { token } from './test-token.ts'

const sharedServer = sharedTestCluster()
const { toAgent, toDriver } = deriveKeys(token, null)

/**
 * Agents that answer late: with each request for agents, one more of them answers, as on a slow
 * link.
 */
async function answerOneByOne({ url }: TestCluster, max: number): Promise<void> {
  const client = await connect({ servers: url, token })
  onTestFinished(() => client.close())
  let count = 0
  client.subscribe(discoverySubject, {
    callback: () => {
      if (count === max) return
      const [name, start] = [`agent-${++count}`, count]
      const subject = agentSubject(name)
      client.subscribe(subject, {
        callback: (_, message) => {
          const header = { ...open(toAgent, subject, message.data), number: 0, acknowledged: 0 }
          const pong = { kind: 'pong', start, receivedMs: 1, sentMs: 1 }
          message.respond(seal(toDriver, subject, header, pong))
        },
      })
      const header = { scope: start, number: 1, acknowledged: 0 }
      const announcement = { ...announcements[0], name, start }
      client.publish(announcementSubject, seal(toDriver, announcementSubject, header, announcement))
    },
  })
  await client.flush()
}

it('`tutti agents` listens until nobody new has answered', async () => {
  const cluster = await sharedServer()
  await answerOneByOne(cluster, 4)
  const { agents, isComplete } = await findAgents({ servers: cluster.url, token })
  const names = agents.map(({ name }) => name)
  expect([names, isComplete]).toEqual([['agent-1', 'agent-2', 'agent-3', 'agent-4'], true])
})

it('`tutti agents` says that its list may be incomplete', async () => {
  const cluster = await sharedServer()
  await answerOneByOne(cluster, Infinity)
  const connection = ['--connect', cluster.url, '--token-file', cluster.tokenFile]
  const { code, stdout } = await runHere(process.cwd(), ['agents', ...connection])
  expect(code).toBe(0)
  expect(stdout).toContain('agent-9 ')
  expect(stdout).toMatch(/the list may be incomplete: agents still answered at the end\n$/)
})

import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { ClusterBackend } from '../../src/cluster/cluster-backend.ts'
import type { Log } from '../../src/foundation/log.ts'
import { Session } from '../../src/session/session.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { eventually } from '../eventually.ts'
import { startAgentHere, startAgentOf } from './agents.ts'
import { heldWork } from './fixtures/cluster-tasks.ts'
import { freePort } from '../free-port.ts'
import { RestartableServer } from './restartable-server.ts'
import { token } from './test-token.ts'

const lines = (file: string): string[] => readFileSync(file, 'utf8').trim().split('\n')

it.each([
  ['small', 10],
  ['large', 500_000],
])(
  'an agent that is drained without its broker leaves and tells what it could not deliver: %s',
  async (_, length) => {
    const server = new RestartableServer(await freePort())
    await server.start()
    const agent = await startAgentOf(server.url, server.folder, 'only', '--cores', '1')
    const options = { servers: server.url, token, ownerTtlSeconds: 2 }
    const session = new Session([await ClusterBackend.create(options)])
    onTestFinished(() => session.close())
    const task = new ComputeTask({ function: heldWork, args: [server.folder, 'held', length] })
    await session.submitTasks([task])
    await eventually(() => expect(lines(join(server.folder, 'begun'))).toHaveLength(1))
    await server.kill()
    writeFileSync(join(server.folder, 'go'), '')
    // It finishes the task, but nobody receives the result.
    agent.child.kill('SIGTERM')
    const { code, stdout, stderr } = await agent.ended
    expect(stdout).toContain('agent only has left')
    expect(stderr).toContain('the result of 1 task was not delivered')
    expect(code).toBe(3)
  },
)

it('a session is closed without its broker, and says what is left until when', async () => {
  const server = new RestartableServer(await freePort())
  await server.start()
  await startAgentHere(server, { name: 'only' })
  const warnings: string[] = []
  const backend = await ClusterBackend.create({
    servers: server.url,
    token,
    ownerTtlSeconds: 30,
    resultTtlSeconds: 100,
    log: { warn: (code, text) => void warnings.push(`${code}: ${text}`) },
  })
  const session = new Session([backend], { id: 'left' })
  onTestFinished(() => session.close())
  const task = new ComputeTask({ function: heldWork, args: [server.folder, 'held', 10] })
  await session.submitTasks([task])
  await eventually(() => expect(task.state).toBe('RUNNING'))
  await server.kill()
  await session.close()
  expect(task.state).toBe('CANCELED')
  expect(warnings).toContain(
    `SessionNotRemoved: the broker at ${server.url} does not answer, so session ` +
      '"left" is not removed: agents end its tasks after 30 s, and a later driver ' +
      'removes its results after 100 s',
  )
})

it('a broker that stays away is told once by driver and agent, and so is its return', async () => {
  const server = new RestartableServer(await freePort())
  await server.start()
  const agent = await startAgentOf(server.url, server.folder, 'only', '--cores', '1')
  const warnings: string[] = []
  const log: Log = {
    warn: (code, text) => {
      if (code.startsWith('Broker')) warnings.push(`${code}: ${text}`)
    },
  }
  const backend = await ClusterBackend.create({ servers: server.url, token, log })
  const session = new Session([backend])
  onTestFinished(() => session.close())
  const telemetry = await session.startTelemetry()
  const throttled: string[] = []
  telemetry.subscribe((event) => {
    if (event.event_type === 'tutti.BackendThrottled') throttled.push(event.reason)
  })
  await server.kill()
  await agent.seen('BrokerAway')
  await eventually(() => expect(throttled).toHaveLength(1))
  await server.start()
  await agent.seen('BrokerBack')
  await eventually(() => expect(warnings).toHaveLength(2))
  const time = String.raw`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z`
  const away = new RegExp(`the broker at ${server.url} cannot be reached since ${time}`)
  expect(throttled[0]).toMatch(away)
  expect(warnings[0]).toMatch(away)
  expect(warnings[1]).toMatch(new RegExp(`^BrokerBack: .* is back since ${time}, after \\d+ s$`))
  agent.child.kill('SIGTERM')
  const { stderr } = await agent.ended
  expect(stderr).toMatch(away)
  const count = (text: string): number => stderr.split(text).length - 1
  expect([count('BrokerAway'), count('BrokerBack')]).toEqual([1, 1])
})

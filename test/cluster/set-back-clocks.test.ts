import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, it, onTestFinished } from 'vitest'
import { findAgents } from '../../src/cluster/agent-list.ts'
import { Session } from '../../src/session/session.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { type RunningCommand, startCommand, startProgram } from '../cli/run-command.ts'
import { eventually } from '../eventually.ts'
import { sharedTestCluster, startAgentHere, type TestCluster } from './agents.ts'
import { work } from './fixtures/cluster-tasks.ts'
import { freePort } from '../free-port.ts'
import { RestartableServer } from './restartable-server.ts'
import { storedNames } from './stored-names.ts'
import { token } from './test-token.ts'

const sharedServer = sharedTestCluster()

const ahead = {
  NODE_OPTIONS: `--import ${new URL('fixtures/clock-ahead.ts', import.meta.url).href}`,
}
const driver = fileURLToPath(new URL('fixtures/returning-driver.ts', import.meta.url))

async function startAgentAhead({ url, tokenFile }: TestCluster): Promise<RunningCommand> {
  const connection = ['--connect', url, '--token-file', tokenFile]
  const agent = startCommand(['agent', ...connection, '--name', 'only', '--cores', '1'], ahead)
  onTestFinished(() => void agent.child.kill('SIGKILL'))
  await agent.seen('is connected')
  return agent
}

function lines(file: string): string[] {
  try {
    return readFileSync(file, 'utf8').trim().split('\n')
  } catch {
    return []
  }
}

describe('a process that is started again after its clock was set back by an hour', () => {
  it.each(['SIGTERM', 'SIGKILL'] as const)(
    'an agent restarted after a clock set-back is used by running sessions: ended by %s',
    async (signal) => {
      const cluster = await sharedServer()
      const first = await startAgentAhead(cluster)
      const session = new Session([await cluster.connect({ agentTimeoutSeconds: 3600 })])
      onTestFinished(() => session.close())
      const telemetry = await session.startTelemetry()
      const nodes: string[] = []
      telemetry.subscribe(({ event_type: type }) => {
        if (type.startsWith('tutti.Node')) nodes.push(type)
      })
      const begun = join(cluster.folder, 'begun')
      const run = async (value: string): Promise<string> => {
        const task = new ComputeTask({ function: work, args: [begun, value, 0] })
        await session.submitTasks([task])
        return await task
      }
      expect(await run('first')).toBe('first')
      // The first agent may have joined before anybody listened.
      await telemetry.flush()
      nodes.length = 0
      first.child.kill(signal)
      await first.ended
      await startAgentHere(cluster, { name: 'only' })
      expect(await run('second')).toBe('second')
      await telemetry.flush()
      const left = signal === 'SIGTERM' ? 'tutti.NodeDrained' : 'tutti.NodeLost'
      expect(nodes).toEqual([left, 'tutti.NodeJoined'])
    },
  )

  it('a driver restarted after a clock set-back continues its session', async () => {
    const cluster = await sharedServer()
    await startAgentHere(cluster, { name: 'only' })
    const start = (env: Readonly<Record<string, string>>): RunningCommand => {
      const given = JSON.stringify({ count: 12 })
      const program = startProgram(driver, [cluster.server.url, cluster.folder, given], env)
      onTestFinished(() => void program.child.kill('SIGKILL'))
      return program
    }
    const begun = join(cluster.folder, 'begun')
    const killed = start(ahead)
    await eventually(() => expect(lines(begun).length).toBeGreaterThanOrEqual(2))
    killed.child.kill('SIGKILL')
    await killed.ended
    const { stdout, stderr } = await start({}).ended
    expect(stderr).toBe('')
    expect(JSON.parse(stdout)).toEqual(Array.from({ length: 12 }, () => 'DONE'))
    const uids = Array.from({ length: 12 }, (_, index) => `task-${index}`)
    expect(lines(begun).toSorted()).toEqual(uids.toSorted())
  })

  it('a driver with a set-back clock continues although the broker has lost all', async () => {
    const server = new RestartableServer(await freePort())
    const { folder, url } = server
    await server.start()
    await startAgentHere({ url, folder }, { name: 'only' })
    const start = (env: Readonly<Record<string, string>>): RunningCommand => {
      const given = JSON.stringify({ count: 3, valueLength: 10 })
      const program = startProgram(driver, [url, folder, given], env)
      onTestFinished(() => void program.child.kill('SIGKILL'))
      return program
    }
    const begun = join(folder, 'begun')
    const killed = start(ahead)
    await eventually(() => expect(lines(begun)).toHaveLength(1))
    killed.child.kill('SIGKILL')
    await killed.ended
    await server.kill()
    rmSync(join(folder, 'store'), { recursive: true, force: true })
    await server.start()
    await eventually(async () => {
      expect((await findAgents({ servers: url, token })).agents).toHaveLength(1)
    })
    const returned = start({})
    writeFileSync(join(folder, 'go'), '')
    const { stdout, stderr } = await returned.ended
    expect(stderr).toBe('')
    expect(JSON.parse(stdout)).toEqual(['DONE', 'DONE', 'DONE'])
    expect(lines(begun)).toHaveLength(3)
    expect(await storedNames(url)).toEqual([])
  })
})

import { spawn } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { expect, onTestFinished } from 'vitest'
import { systemClock } from '../../../src/foundation/clock.ts'
import { startNatsServer } from '../../../src/cluster/broker/nats-server.ts'
import { createRunCertificate } from '../../../src/hpc/certificate.ts'
import { agentStartedLine } from '../../../src/hpc/agents/agent-lines.ts'
import type { AgentInput } from '../../../src/hpc/agents/node-agent.ts'
import { needs, requireCommand } from '../../require.ts'

const program = fileURLToPath(new URL('../../../src/hpc/agents/node-agent.ts', import.meta.url))

needs(requireCommand('nats-server'))(
  'the agent of a node whose server stays away ends, although its input is open',
  async () => {
    const token = randomUUID()
    const tls = createRunCertificate(['127.0.0.1'], systemClock.now())
    const server = await startNatsServer({ token, clock: systemClock, tls })
    onTestFinished(() => server.close())
    const agent = spawn(process.execPath, [program, `here-${process.pid}`])
    onTestFinished(() => void agent.kill('SIGKILL'))
    const ended = once(agent, 'close')
    const start: AgentInput = {
      servers: server.url,
      token,
      certificate: tls.certificate,
      sharedFile: { path: '/missing', content: '' },
      memoryMb: {},
      serverTimeoutSeconds: 0.5,
      labels: {},
      moduleCache: null,
    }
    agent.stdin.write(`${JSON.stringify(start)}\n`)
    let told = ''
    for await (const text of agent.stdout.setEncoding('utf8')) {
      told += String(text)
      if (told.includes(agentStartedLine)) await server.close()
    }
    expect(await ended).toEqual([0, null])
    expect(told).toContain(agentStartedLine)
  },
)

/** A server of its own, and agents as a person starts them: processes of `tutti agent`. */

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { onTestFinished } from 'vitest'
import { startAgent, type StartAgentOptions } from '../../src/cluster/agent/agent-options.ts'
import { findAgents } from '../../src/cluster/agent-list.ts'
import { type NatsServer, startNatsServer } from '../../src/cluster/broker/nats-server.ts'
import { ClusterBackend } from '../../src/cluster/cluster-backend.ts'
import type { ClusterBackendOptions } from '../../src/cluster/cluster-options.ts'
import type { Announcement } from '../../src/cluster/wire/messages.ts'
import { systemClock } from '../../src/foundation/clock.ts'
import { type RunningCommand, startCommand } from '../cli/run-command.ts'
import { childrenOf, commandOf } from './processes.ts'
import { token } from './test-token.ts'

export interface TestCluster {
  readonly server: NatsServer
  readonly folder: string
  readonly tokenFile: string
  agent(name: string, ...args: readonly string[]): Promise<RunningCommand>
  /** Those that announce themselves. */
  agents(): Promise<readonly Announcement[]>
  connect(options?: Partial<ClusterBackendOptions>): Promise<ClusterBackend>
}

const isWatcher = (pid: number): boolean => commandOf(pid).includes('watcher-program')

/** A process of `tutti agent`, which ends with the test. */
export async function startAgentOf(
  url: string,
  folder: string,
  name: string,
  ...args: readonly string[]
): Promise<RunningCommand> {
  const tokenFile = join(folder, 'token')
  writeFileSync(tokenFile, `${token}\n`, { mode: 0o600 })
  const connection = ['--connect', url, '--token-file', tokenFile]
  const command = startCommand(['agent', ...connection, '--name', name, ...args])
  const { child } = command
  onTestFinished(() => void child.kill('SIGKILL'))
  await command.seen('is connected')
  // Its watcher tells for seconds that it was killed, also when the server is gone.
  const watchers = childrenOf(child.pid ?? 0).filter(isWatcher)
  onTestFinished(() => watchers.filter(isWatcher).forEach((pid) => process.kill(pid, 'SIGKILL')))
  return command
}

/** Everything ends with the test. */
export async function startTestCluster(): Promise<TestCluster> {
  const folder = mkdtempSync(join(tmpdir(), 'tutti-cluster-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  const server = await startNatsServer({ token, clock: systemClock })
  onTestFinished(() => server.close())
  const tokenFile = join(folder, 'token')
  writeFileSync(tokenFile, `${token}\n`, { mode: 0o600 })
  return {
    server,
    folder,
    tokenFile,
    agent: (name, ...args) => startAgentOf(server.url, folder, name, ...args),
    async agents() {
      return (await findAgents({ servers: server.url, token })).agents
    },
    connect: (options = {}) => ClusterBackend.create({ servers: server.url, token, ...options }),
  }
}

/** An agent in this process, which ends with the test. */
export async function startAgentHere(
  { server, folder }: TestCluster,
  options: Partial<StartAgentOptions>,
): Promise<void> {
  const own = { servers: server.url, token, cores: 1, workDir: join(folder, 'work') }
  const agent = await startAgent({ ...own, ...options })
  onTestFinished(() => agent.close())
}

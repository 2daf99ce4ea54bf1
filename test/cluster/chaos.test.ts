import { spawn } from 'node:child_process'
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { setTimeout as wait } from 'node:timers/promises'
import { describe, expect, onTestFinished } from 'vitest'
import { ClusterBackend } from '../../src/cluster/cluster-backend.ts'
import { Session } from '../../src/session/session.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { type RunningCommand, watch } from '../cli/run-command.ts'
import { eventually } from '../eventually.ts'
import { byRun, chooseSeed, createRandom, hangMs } from '../long-run.ts'
import { needs } from '../require.ts'
import { work } from './fixtures/cluster-tasks.ts'
import { networkNeeds, TestNetwork } from './hosts.ts'
import { freePort } from '../free-port.ts'
import { RestartableServer } from './restartable-server.ts'
import { processesWith } from './processes.ts'
import { storedNames } from './stored-names.ts'
import { token } from './test-token.ts'

const main = fileURLToPath(new URL('../../src/cli/main.ts', import.meta.url))
const marker = 'TUTTI_TEST_CHAOS'
const lossSeconds = byRun(2, 10)
/** Longer tasks, so that fewer of them make up the same work. */
const taskMs = byRun(150, 60)
/** Starts of all agents of one host together. */
const maxStarts = 200
/** The faults of the long run take minutes by themselves. */
const timeoutMs = byRun(1, 20) * hangMs

interface Host {
  readonly index: number
  readonly enter: readonly string[]
  agent: RunningCommand | null
  starts: number
}

/** A server and hosts with one agent each, all of which can fail. */
class ChaosCluster {
  readonly network = new TestNetwork()
  readonly server: RestartableServer
  readonly hosts: Host[]
  readonly id = `${process.pid}-${Date.now()}`

  static async start(hosts: number): Promise<ChaosCluster> {
    const cluster = new ChaosCluster(await freePort(), hosts)
    await cluster.server.start()
    await Promise.all(cluster.hosts.map((host) => cluster.startAgent(host)))
    return cluster
  }

  private constructor(port: number, count: number) {
    onTestFinished(() => this.network.close())
    this.server = new RestartableServer(port, { host: this.network.address })
    this.hosts = Array.from({ length: count }, () => {
      return { ...this.network.addHost(), agent: null, starts: 0 }
    })
  }

  /** Under a new name: the server may not know yet that the last one is gone. */
  async startAgent(host: Host): Promise<void> {
    const tokenFile = join(this.server.folder, 'token')
    writeFileSync(tokenFile, token, { mode: 0o600 })
    const name = `host-${host.index}-${++host.starts}`
    const args = ['--connect', this.server.url, '--plaintext', '--token-file', tokenFile]
    const workDir = join(this.server.folder, 'work')
    const [program = '', ...enter] = host.enter
    const child = spawn(
      program,
      [...enter, process.execPath, main, 'agent', ...args].concat([
        '--name',
        name,
        '--cores',
        '2',
        '--work-dir',
        workDir,
      ]),
      { env: { ...process.env, [marker]: this.id } },
    )
    host.agent = watch(child)
    onTestFinished(() => void child.kill('SIGKILL'))
    const isConnected = await Promise.race([
      host.agent.seen('is connected').then(() => true),
      host.agent.ended.then(() => false),
    ])
    if (isConnected) return
    // A link that was just restored may refuse the first connection, so retry as a service would.
    if (host.starts > maxStarts) throw new Error((await host.agent.ended).stderr)
    await this.startAgent(host)
  }

  /** Processes that agents have left. */
  processes(): string[] {
    return processesWith(`${marker}=${this.id}`)
  }
}

type Fault = (cluster: ChaosCluster, host: Host) => Promise<void>

const faults: Readonly<Record<string, Fault>> = {
  async 'agent killed'(cluster, host) {
    host.agent?.child.kill('SIGKILL')
    await host.agent?.ended
    await cluster.startAgent(host)
  },
  async 'agent stopped'(_, host) {
    host.agent?.child.kill('SIGSTOP')
    await wait(lossSeconds * 1500)
    host.agent?.child.kill('SIGCONT')
  },
  async 'agent drained'(cluster, host) {
    host.agent?.child.kill('SIGTERM')
    await host.agent?.ended
    await cluster.startAgent(host)
  },
  async 'link cut for long'({ network }, { index }) {
    network.cut(index)
    await wait(lossSeconds * 1500)
    network.mend(index)
  },
  async 'link cut shortly'({ network }, { index }) {
    network.cut(index)
    await wait(lossSeconds * 300)
    network.mend(index)
  },
  async 'server killed'({ server }) {
    await server.kill()
    await server.start()
  },
}

const lines = (file: string): string[] => readFileSync(file, 'utf8').trim().split('\n')

function createTasks(count: number, begun: string, from = 0): ComputeTask<unknown>[] {
  return Array.from({ length: count }, (_, at) => {
    const index = from + at
    const uid = `task-${index}`
    if (index % 10 !== 0) {
      return new ComputeTask({ uid, function: work, args: [begun, uid, taskMs], retries: 50 })
    }
    const args = ['-c', `echo ${uid} >> ${begun}; sleep ${taskMs / 1000}`]
    return new ComputeTask({ uid, executable: '/bin/sh', arguments: args, retries: 50 })
  })
}

/** How often each one is in the list. */
const countsOf = (list: readonly string[]): Map<string, number> => {
  const counts = new Map<string, number>()
  for (const one of list) counts.set(one, (counts.get(one) ?? 0) + 1)
  return counts
}

describe('a cluster whose parts fail at seeded moments', () => {
  needs(...networkNeeds)(
    'a cluster whose parts fail at seeded moments ends every task once, without leftovers',
    async () => {
      const random = createRandom(chooseSeed())
      const cluster = await ChaosCluster.start(byRun(3, 4))
      const { server, hosts } = cluster
      const backend = await ClusterBackend.create({
        servers: server.url,
        token,
        plaintext: true,
        lossSeconds,
      })
      const session = new Session([backend])
      onTestFinished(() => session.close())
      const telemetry = await session.startTelemetry()
      const ends: string[] = []
      const moved: string[] = []
      const retried: string[] = []
      telemetry.subscribe((event) => {
        const { event_type: type, task_id: uid } = event
        if (type === 'TaskCompleted' || type === 'TaskFailed' || type === 'TaskCanceled') {
          ends.push(uid ?? '')
        } else if (type === 'tutti.TaskMoved') {
          moved.push(...(event as unknown as { tasks: string[] }).tasks)
        } else if (type === 'tutti.AttemptStarted') retried.push(uid ?? '')
      })
      const begun = join(server.folder, 'begun')
      const tasks = createTasks(byRun(120, 10_000), begun)
      await session.submitTasks(tasks)
      const names = Object.keys(faults)
      for (let step = 0; step < byRun(6, 60); step++) {
        // Every fault meets work, however fast the machine is.
        const enough = byRun(80, 200)
        if (tasks.filter(({ state }) => state !== 'DONE').length < enough) {
          const more = createTasks(enough, begun, tasks.length)
          tasks.push(...more)
          await session.submitTasks(more)
        }
        const name = names[step < names.length ? step : Math.floor(random() * names.length)] ?? ''
        const host = hosts[Math.floor(random() * hosts.length)]
        if (host !== undefined) await faults[name]?.(cluster, host)
        await wait(random() * 300)
      }
      await session.waitTasks(tasks)
      expect(tasks.filter(({ state }) => state !== 'DONE').map(({ error }) => error)).toEqual([])
      await telemetry.flush()
      expect(ends.toSorted()).toEqual(tasks.map(({ uid }) => uid).toSorted())
      const [moves, retries] = [countsOf(moved), countsOf(retried)]
      const tooOften = [...countsOf(lines(begun))].filter(
        ([uid, count]) => count > 1 + (moves.get(uid) ?? 0) + (retries.get(uid) ?? 0),
      )
      expect(tooOften).toEqual([])
      await session.close()
      for (const { agent } of hosts) agent?.child.kill('SIGTERM')
      for (const { agent } of hosts) await agent?.ended
      await eventually(() => expect(cluster.processes()).toEqual([]))
      expect(await storedNames(server.url)).toEqual([])
      expect(readdirSync(join(server.folder, 'work'))).toEqual([])
    },
    timeoutMs,
  )

  needs(...networkNeeds)(
    'row 100: a link that fails again and again loses nothing',
    async () => {
      const cluster = await ChaosCluster.start(2)
      const { server, hosts, network } = cluster
      const options = { servers: server.url, token, plaintext: true, lossSeconds: byRun(8, 10) }
      const session = new Session([await ClusterBackend.create(options)])
      onTestFinished(() => session.close())
      const telemetry = await session.startTelemetry()
      const lost: string[] = []
      telemetry.subscribe(({ event_type: type }) => {
        if (/NodeLost|TaskMoved|StaleResult|TaskAttempt/.test(type)) lost.push(type)
      })
      const begun = join(server.folder, 'begun')
      const tasks = createTasks(byRun(240, 30_000), begun)
      await session.submitTasks(tasks)
      for (let cuts = 0; cuts < byRun(2, 5); cuts++) {
        const [host] = hosts
        if (host !== undefined) network.cut(host.index)
        await wait(byRun(2500, 5000))
        if (host !== undefined) network.mend(host.index)
        await wait(byRun(1500, 55_000))
      }
      await session.waitTasks(tasks)
      expect(tasks.filter(({ state }) => state !== 'DONE')).toEqual([])
      expect(lines(begun).toSorted()).toEqual(tasks.map(({ uid }) => uid).toSorted())
      await telemetry.flush()
      expect(lost).toEqual([])
    },
    timeoutMs,
  )
})

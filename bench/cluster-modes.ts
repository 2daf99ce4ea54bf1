/** The measurements of `bench/cluster.ts`: each mode is a process and prints its numbers. */

import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import type { Backend } from '../src/backends/backend.ts'
import { ConcurrentBackend } from '../src/backends/local/concurrent-backend.ts'
import { connectToNats } from '../src/cluster/broker/nats.ts'
import { startNatsServer } from '../src/cluster/broker/nats-server.ts'
import { ClusterBackend } from '../src/cluster/cluster-backend.ts'
import { systemClock } from '../src/foundation/clock.ts'
import { processLog } from '../src/foundation/log.ts'
import { Session } from '../src/session/session.ts'
import { ComputeTask } from '../src/tasks/compute-task.ts'
import { median, runMode } from './harness.ts'
import { nothing } from './workers-functions.ts'

const count = Number(process.env['TASKS'] ?? 40_000)
const programs = Number(process.env['PROGRAMS'] ?? 400)
const roundTrips = 500

interface Measured {
  readonly tasks_per_s: number
  readonly cpu_us: number
}

async function measure(tasks: number, run: () => Promise<unknown>): Promise<Measured> {
  const cpu = process.cpuUsage()
  const from = performance.now()
  await run()
  const seconds = (performance.now() - from) / 1000
  const { user, system } = process.cpuUsage(cpu)
  return { tasks_per_s: tasks / seconds, cpu_us: (user + system) / tasks }
}

/** The second of two bags: the first one warms everything up. */
async function functions(backend: Backend, tasks = count): Promise<Measured> {
  await using session = new Session([backend])
  let measured: Measured = { tasks_per_s: 0, cpu_us: 0 }
  for (let round = 0; round < 2; round++) {
    measured = await measure(tasks, async () => {
      const bag = Array.from({ length: tasks }, () => new ComputeTask({ function: nothing }))
      await session.submitTasks(bag)
      await session.waitTasks(bag)
    })
  }
  return measured
}

async function runPrograms(backend: Backend): Promise<Measured> {
  await using session = new Session([backend])
  let measured: Measured = { tasks_per_s: 0, cpu_us: 0 }
  for (let round = 0; round < 2; round++) {
    measured = await measure(programs, async () => {
      const bag = Array.from({ length: programs }, () => {
        return new ComputeTask({ executable: '/bin/true' })
      })
      await session.submitTasks(bag)
      await session.waitTasks(bag)
    })
  }
  return measured
}

async function oneAtATime(): Promise<object> {
  await using session = new Session([await ClusterBackend.local({ agents: 2, cores: 1 })])
  const times: number[] = []
  for (let trip = 0; trip < roundTrips * 2; trip++) {
    const from = performance.now()
    const task = new ComputeTask({ function: nothing })
    await session.submitTasks([task])
    await task
    times.push(performance.now() - from)
  }
  return { p50_ms: median(times.slice(roundTrips)) }
}

/** A request to another process over the same kind of server. */
async function bareRequest(): Promise<object> {
  const token = 'a token of the benchmark'
  const server = await startNatsServer({ token, clock: systemClock })
  const options = { servers: [server.url], token, log: processLog }
  const broker = await connectToNats({ ...options, name: 'asks' })
  const program = fileURLToPath(new URL('fixtures/nats-responder.ts', import.meta.url))
  const responder: ChildProcess = fork(program, [server.url, token])
  await once(responder, 'message')
  const times: number[] = []
  for (let trip = 0; trip < roundTrips * 2; trip++) {
    const from = performance.now()
    await broker.request('bench', new Uint8Array(64), 5000)
    times.push(performance.now() - from)
  }
  responder.kill()
  await broker.close()
  await server.close()
  return { p50_ms: median(times.slice(roundTrips)) }
}

/** The driver's CPU with many agents, which share this machine: only the driver is measured. */
async function manyAgents(agents: number): Promise<Measured> {
  return functions(await ClusterBackend.local({ agents, cores: 1 }), count / 2)
}

await runMode(import.meta.url, {
  local: async () => functions(await ConcurrentBackend.create({ workers: 2 })),
  cluster: async () => functions(await ClusterBackend.local({ agents: 2, cores: 1 })),
  localPrograms: async () => runPrograms(await ConcurrentBackend.create({ maxProcesses: 2 })),
  clusterPrograms: async () => runPrograms(await ClusterBackend.local({ agents: 2, cores: 1 })),
  oneAtATime,
  bareRequest,
  agents2: () => manyAgents(2),
  agents16: () => manyAgents(16),
})
process.exit()

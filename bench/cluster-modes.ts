/** The measurements of `bench/cluster.ts`: each mode runs in a process and prints its numbers. */

import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout } from 'node:timers/promises'
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
import { bullmq } from './bullmq.ts'
import { median, runMode } from './harness.ts'
import { familyCpu } from './process-cpu.ts'
import { nothing } from './workers-functions.ts'

const count = Number(process.env['TASKS'] ?? 100_000)
const programs = Number(process.env['PROGRAMS'] ?? 2000)
const roundTrips = 1000
const memoryTasks = Number(process.env['MEMORY_TASKS'] ?? 1_000_000)
/** Fewer jobs than for tutti, because each takes ten times as long. */
const bullmqJobs = Number(process.env['BULLMQ_JOBS'] ?? 10_000)
const token = 'a token of the benchmark'
/** Only the last of these rounds counts; the others warm up. */
const rounds = 3

interface Measured {
  readonly tasks_per_s: number
  /** CPU time of this process per task. */
  readonly cpu_us: number
  /** CPU time of this process and its children per task. */
  readonly total_us: number
}

const nothingMeasured: Measured = { tasks_per_s: 0, cpu_us: 0, total_us: 0 }

async function measure(tasks: number, run: () => Promise<unknown>): Promise<Measured> {
  const cpu = process.cpuUsage()
  const total = familyCpu()
  const from = performance.now()
  await run()
  const seconds = (performance.now() - from) / 1000
  const { user, system } = process.cpuUsage(cpu)
  return {
    tasks_per_s: tasks / seconds,
    cpu_us: (user + system) / tasks,
    total_us: (familyCpu() - total) / tasks,
  }
}

async function functions(backend: Backend, tasks = count): Promise<Measured> {
  await using session = new Session([backend])
  let measured = nothingMeasured
  for (let round = 0; round < rounds; round++) {
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
  let measured = nothingMeasured
  for (let round = 0; round < rounds; round++) {
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

async function oneAtATime(backend: Backend, pauseMs: number): Promise<object> {
  await using session = new Session([backend])
  const times: number[] = []
  for (let trip = 0; trip < roundTrips * 2; trip++) {
    if (pauseMs > 0) await setTimeout(pauseMs)
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

/** The driver's CPU time with many agents that run nothing and share a process. */
async function stubAgents(agents: number): Promise<Measured> {
  const server = await startNatsServer({ token, clock: systemClock })
  const program = fileURLToPath(new URL('fixtures/stub-agents.ts', import.meta.url))
  const child = fork(program, [server.url, token, String(agents)])
  await once(child, 'message')
  const measured = await functions(await ClusterBackend.create({ servers: server.url, token }))
  child.kill()
  await server.close()
  return measured
}

/** The peak memory of this process with a million tasks, all submitted together. */
async function memory(backend: Backend): Promise<object> {
  await using session = new Session([backend])
  const bag = Array.from({ length: memoryTasks }, () => new ComputeTask({ function: nothing }))
  await session.submitTasks(bag)
  await session.waitTasks(bag)
  return { peak_mb: process.resourceUsage().maxRSS / 1024 }
}

await runMode(import.meta.url, {
  local: async () => functions(await ConcurrentBackend.create({ workers: 2 })),
  cluster: async () => functions(await ClusterBackend.local({ agents: 2, cores: 1 })),
  localPrograms: async () => runPrograms(await ConcurrentBackend.create({ maxProcesses: 2 })),
  clusterPrograms: async () => runPrograms(await ClusterBackend.local({ agents: 2, cores: 1 })),
  oneAtATime: async () => oneAtATime(await ClusterBackend.local({ agents: 2, cores: 1 }), 0),
  bareRequest,
  // The worker falls asleep during the pause, like that of an agent.
  localAfterPause: async () => oneAtATime(await ConcurrentBackend.create({ workers: 1 }), 1),
  agents2: () => stubAgents(2),
  agents64: () => stubAgents(64),
  localMemory: async () => memory(await ConcurrentBackend.create({ workers: 2 })),
  clusterMemory: async () => memory(await ClusterBackend.local({ agents: 2, cores: 1 })),
  bullmq: () => bullmq(bullmqJobs),
})
process.exit()

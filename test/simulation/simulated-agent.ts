/** An agent of a simulation: the real `Agent` on a simulated node. */

import type { BackendListener, Job, TaskReport } from '../../src/backends/backend.ts'
import type { LocalConnection } from '../../src/backends/local/concurrent-backend.ts'
import { Agent } from '../../src/cluster/io/agent/agent.ts'
import type { WorkFolder } from '../../src/cluster/io/agent/work-folder.ts'
import { UnpackedBundles } from '../../src/cluster/bundles/unpacked-bundles.ts'
import type { Log } from '../../src/foundation/log.ts'
import { unknownReadings } from '../../src/backends/sampling/sampler.ts'
import { SimulatedConnection } from './simulated-connection.ts'
import type { Execution, Executions } from './executions.ts'
import type { SeededRandom } from './seeded-random.ts'
import type { SimulatedNats } from './simulated-nats.ts'
import { SimulatedProcess, type VirtualTime } from './virtual-time.ts'

export interface SimulatedAgentOptions {
  readonly name: string
  readonly cores: number
  readonly token: string
  readonly maxPayload: number
  readonly time: VirtualTime
  readonly server: SimulatedNats
  readonly random: SeededRandom
  readonly executions: Executions
  readonly log: Log
  readonly trace: (text: string) => void
}

const startDelayMs = 500
const folder = { path: '/nowhere', async remove() {}, async close() {} } as unknown as WorkFolder
const createSampler = () => ({
  async prime() {},
  sample: async () => ({ node: unknownReadings, gpus: [] }),
  async close() {},
})

/** A node. Its agent may die, and start again under the same name. */
export class SimulatedAgent {
  readonly name: string
  readonly #options: SimulatedAgentOptions
  #process: SimulatedProcess
  #connection: SimulatedConnection | null = null
  #backend: SimulatedBackend | null = null
  #agent: Agent | null = null
  #starts = 0

  constructor(options: SimulatedAgentOptions) {
    this.#options = options
    this.name = options.name
    this.#process = new SimulatedProcess(options.time)
  }

  get process(): SimulatedProcess {
    return this.#process
  }

  get connection(): SimulatedConnection | null {
    return this.#connection
  }

  /** The sessions for which the agent still holds something. */
  get openSessions(): number {
    return this.#backend?.connections ?? 0
  }

  start(): void {
    const { time, server, executions, random, maxPayload } = this.#options
    const process = new SimulatedProcess(time)
    this.#process = process
    if (!server.isUp) {
      process.clock.after(startDelayMs, () => this.start())
      return
    }
    const name = `${this.name}/${++this.#starts}`
    const { cores } = this.#options
    const backend = new SimulatedBackend({ name, cores, process, executions })
    const own = { server, time, random: random.fork(), process, maxPayload }
    const connection = new SimulatedConnection(own)
    this.#connection = connection
    this.#backend = backend
    const retry = (): void => {
      connection.close().catch(() => {})
      if (this.#process === process) process.clock.after(startDelayMs, () => this.start())
    }
    this.#startAgent(connection, backend, process).catch(retry)
  }

  async #startAgent(
    broker: SimulatedConnection,
    backend: SimulatedBackend,
    { clock }: SimulatedProcess,
  ): Promise<void> {
    const { name, cores, token, log, trace } = this.#options
    const agent = await Agent.start({
      name,
      token,
      broker,
      facts: { cores, gpus: 0, memoryMb: 1000, labels: {} },
      rules: { only: null, allow: null },
      backend,
      folder,
      bundles: new UnpackedBundles('/nowhere', async () => {}),
      clock,
      log,
      createSampler,
      refuse: () => null,
      watcher: null,
    })
    this.#agent = agent
    trace(`${name} is ready`)
    const restart = (): void => {
      trace(`${name} has left`)
      if (this.#agent === agent) clock.after(startDelayMs, () => this.start())
    }
    agent.left.then(restart, restart)
  }

  kill(): void {
    this.#process.kill()
    this.#connection?.break()
    this.#backend?.kill()
    this.#agent = null
    this.#backend = null
  }

  drain(): void {
    this.#process.do(() => this.#agent?.drain())
  }
}

interface SimulatedBackendOptions {
  readonly name: string
  readonly cores: number
  readonly process: SimulatedProcess
  readonly executions: Executions
}

interface RunningJob {
  readonly job: Job
  readonly listener: BackendListener
  readonly execution: Execution
  readonly cancelEnd: () => void
}

interface QueuedJob {
  readonly job: Job
  readonly listener: BackendListener
}

const cancelDelayMs = 2

/** Runs the tasks of a plan, each on one core. */
class SimulatedBackend {
  connections = 0
  readonly #options: SimulatedBackendOptions
  readonly #running = new Map<Job, RunningJob>()
  #queue: QueuedJob[] = []

  constructor(options: SimulatedBackendOptions) {
    this.#options = options
  }

  connect(listener: BackendListener): LocalConnection {
    this.connections++
    return {
      submit: (jobs) => {
        for (const job of jobs) this.#queue.push({ job, listener })
        this.#begin()
      },
      cancel: (job, reason) => this.#cancel(job, reason),
      output: async () => null,
      withdraw: () => {
        const withdrawn = this.#queue.filter((one) => one.listener === listener)
        this.#queue = this.#queue.filter((one) => one.listener !== listener)
        return withdrawn.map(({ job }) => job)
      },
      release: async (reason) => {
        const all = [...this.#queue, ...this.#running.values()]
        for (const one of all) if (one.listener === listener) this.#cancel(one.job, reason)
        await new Promise<void>((resolve) => {
          this.#options.process.clock.after(cancelDelayMs, resolve)
        })
        this.connections--
      },
    }
  }

  async close(): Promise<void> {}

  kill(): void {
    for (const { execution } of this.#running.values()) this.#options.executions.kill(execution)
  }

  #begin(): void {
    const { cores, executions, name, process } = this.#options
    while (this.#running.size < cores) {
      const next = this.#queue.shift()
      if (next === undefined) return
      const { job, listener } = next
      const execution = executions.begin(job.uid, job.attempt, name)
      const workerId = `${name}/worker`
      listener.report(job, { kind: 'start', workerId, nodeId: name.split('/')[0] ?? '' })
      const end = (): void => this.#end(job)
      const cancelEnd = process.clock.after(execution.plan.durationMs, end)
      this.#running.set(job, { job, listener, execution, cancelEnd })
    }
  }

  #end(job: Job): void {
    const running = this.#running.get(job)
    if (running === undefined) return
    const { execution, listener } = running
    this.#running.delete(job)
    listener.report(job, this.#toReport(execution))
    this.#begin()
  }

  #toReport(execution: Execution): TaskReport {
    const { plan, number } = execution
    const facts = { workerId: `${this.#options.name}/worker` }
    if (this.#options.executions.end(execution) === 'thrown') {
      const error = new Error(`${plan.uid} has thrown in execution ${number}`)
      return { kind: 'fail', error, isThrown: true, facts }
    }
    const filling = 'v'.repeat(plan.valueBytes)
    return { kind: 'complete', value: { execution: number, filling }, facts }
  }

  #cancel(job: Job, reason: string): void {
    const queued = this.#queue.find((one) => one.job === job)
    if (queued !== undefined) {
      this.#queue = this.#queue.filter((one) => one !== queued)
      queued.listener.report(job, { kind: 'cancel', reason })
      return
    }
    const running = this.#running.get(job)
    if (running === undefined) return
    running.cancelEnd()
    this.#running.delete(job)
    this.#options.executions.cancel(running.execution)
    running.listener.report(job, { kind: 'cancel', reason })
    this.#begin()
  }
}

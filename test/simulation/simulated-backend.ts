/** The node of a simulated agent: runs the tasks of a plan, each on one core. */

import type { BackendListener, Job, TaskReport } from '../../src/backends/backend.ts'
import type { LocalConnection } from '../../src/backends/local/concurrent-backend.ts'
import type { Execution, Executions } from './executions.ts'
import type { SimulatedProcess } from './virtual-time.ts'

export interface SimulatedBackendOptions {
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

export class SimulatedBackend {
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
      release: (reason) => new Promise((resolve) => this.release(listener, reason, resolve)),
    }
  }

  release(listener: BackendListener, reason: string, onReleased: () => void): void {
    const all = [...this.#queue, ...this.#running.values()]
    for (const one of all) if (one.listener === listener) this.#cancel(one.job, reason)
    this.#options.process.clock.after(cancelDelayMs, () => {
      this.connections--
      onReleased()
    })
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

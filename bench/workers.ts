/**
 * The speed of the worker pool alone, under a scheduler that only counts: no-ops and small objects
 * on two threads compared with piscina and tinypool, and the latency of one task at a time with a
 * bare `postMessage` round trip. Each run is a process; runs are interleaved.
 */

import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { Worker } from 'node:worker_threads'
import { Piscina } from 'piscina'
import { Tinypool } from 'tinypool'
import type { Job } from '../src/backends/backend.ts'
import { WorkerPool } from '../src/backends/local/functions/worker-pool.ts'
import { systemClock } from '../src/foundation/clock.ts'
import { processLog } from '../src/foundation/log.ts'
import { ComputeTask } from '../src/tasks/compute-task.ts'
import { median, table } from './harness.ts'
import { nothing, point } from './workers-functions.ts'

const tasks = Number(process.env['TASKS'] ?? 100_000)
const runs = Number(process.env['RUNS'] ?? 5)
const roundTrips = 5000
const threads = 2
const filename = fileURLToPath(new URL('workers-functions.ts', import.meta.url))

type Work = 'no-op' | 'object'

/** Feeds a pool from a list and resolves when all jobs have ended. */
class Feeder {
  readonly pool: WorkerPool
  #queue: readonly Job[] = []
  #next = 0
  #count = 0
  #ended = 0
  #done: () => void = () => {}

  constructor(isolation: 'thread' | 'process') {
    this.pool = new WorkerPool({
      nodeId: 'bench',
      idPrefix: 'bench',
      size: threads,
      isolation,
      clock: systemClock,
      log: processLog,
      listener: {
        report: (_, report) => {
          if (report.kind !== 'start') this.#ended++
        },
        notice: () => {},
        resultDropped() {},
        requeue: (jobs) => {
          this.#queue = [...this.#queue, ...jobs]
        },
        finish: () => this.#pump(),
      },
    })
  }

  run(jobs: readonly Job[]): Promise<void> {
    this.#queue = jobs
    this.#count = jobs.length
    this.#next = 0
    this.#ended = 0
    const done = new Promise<void>((resolve) => (this.#done = resolve))
    this.#pump()
    return done
  }

  #pump(): void {
    while (this.#next < this.#queue.length && this.pool.freeSlots > 0) {
      const end = this.#next + this.pool.batchSize(this.#queue.length - this.#next)
      const jobs = this.#queue.slice(this.#next, end)
      this.#next = end
      this.pool.assign({ jobs, gpuIds: [] })
    }
    if (this.#ended >= this.#count) this.#done()
  }
}

const toJob = ({ uid, spec }: ComputeTask<unknown>): Job => ({
  sessionId: 'bench',
  uid,
  attempt: 1,
  spec,
})
const jobsOf = (work: Work, count: number): Job[] =>
  Array.from({ length: count }, (_, at) =>
    toJob(
      work === 'no-op'
        ? new ComputeTask({ function: nothing })
        : new ComputeTask({ function: point, args: [at] }),
    ),
  )

/** Tasks per second with warm workers. */
async function measureOurs(work: Work, isolation: 'thread' | 'process'): Promise<number> {
  const feeder = new Feeder(isolation)
  await feeder.run(jobsOf(work, 2000))
  const jobs = jobsOf(work, tasks)
  const begin = performance.now()
  await feeder.run(jobs)
  const rate = tasks / ((performance.now() - begin) / 1000)
  await feeder.pool.close('measured')
  return rate
}

async function measurePeer(work: Work, name: 'piscina' | 'tinypool'): Promise<number> {
  const options = { filename, minThreads: threads, maxThreads: threads }
  const pool = name === 'piscina' ? new Piscina(options) : new Tinypool(options)
  const runAll = (count: number): Promise<unknown> =>
    Promise.all(
      Array.from({ length: count }, (_, at) => pool.run(work === 'no-op' ? undefined : at)),
    )
  await runAll(2000)
  const begin = performance.now()
  await runAll(tasks)
  const rate = tasks / ((performance.now() - begin) / 1000)
  await pool.destroy()
  return rate
}

/** Median microseconds of a bare round trip and of tutti's, measured alternately. */
async function measureLatency(): Promise<readonly [number, number]> {
  const code = `const { parentPort } = require('node:worker_threads')
    parentPort.on('message', (message) => parentPort.postMessage(message))`
  const worker = new Worker(code, { eval: true })
  const feeder = new Feeder('thread')
  const bare: number[] = []
  const ours: number[] = []
  for (let trip = 0; trip < roundTrips; trip++) {
    const begin = performance.now()
    // oxlint-disable-next-line unicorn/require-post-message-target-origin -- a thread, not a window
    worker.postMessage(trip)
    await once(worker, 'message')
    const jobs = jobsOf('no-op', 1)
    const middle = performance.now()
    await feeder.run(jobs)
    ours.push((performance.now() - middle) * 1000)
    bare.push((middle - begin) * 1000)
  }
  await Promise.all([worker.terminate(), feeder.pool.close('measured')])
  return [median(bare.slice(500)), median(ours.slice(500))]
}

async function measure(what: string): Promise<readonly number[]> {
  const [name, work] = what.split('/') as [string, Work]
  if (name === 'latency') return measureLatency()
  if (name === 'piscina' || name === 'tinypool') return [await measurePeer(work, name)]
  return [await measureOurs(work, name === 'processes' ? 'process' : 'thread')]
}

function compare(): void {
  const works: readonly Work[] = ['no-op', 'object']
  const names = ['ours', 'piscina', 'tinypool']
  const kinds = [...works.flatMap((work) => names.map((name) => `${name}/${work}`)), 'latency']
  const results = new Map(kinds.map((kind) => [kind, [] as (readonly number[])[]]))
  for (let run = 0; run < runs; run++) {
    for (const kind of kinds) {
      const program = [fileURLToPath(import.meta.url), kind]
      const output = execFileSync(process.execPath, program, { encoding: 'utf8' })
      results.get(kind)?.push(JSON.parse(output) as number[])
    }
  }
  const of = (kind: string, at = 0): number =>
    median((results.get(kind) ?? []).map((values) => values[at] ?? Number.NaN))
  const ratio = (a: number, b: number): string => `${(a / b).toFixed(2)}x`
  table(
    ['tasks/s, 2 threads', ...names, 'ours/piscina', 'ours/tinypool'],
    works.map((work) => {
      const [ours = 0, piscina = 0, tinypool = 0] = names.map((name) => of(`${name}/${work}`))
      const rates = [ours, piscina, tinypool].map((rate) => Math.round(rate))
      return [work, ...rates, ratio(ours, piscina), ratio(ours, tinypool)]
    }),
  )
  const [bare, ours] = [of('latency'), of('latency', 1)]
  table(
    ['one task at a time, µs', 'bare postMessage', 'ours', 'ratio'],
    [['round trip', bare.toFixed(1), ours.toFixed(1), ratio(ours, bare)]],
  )
}

const [what] = process.argv.slice(2)
if (what === undefined) compare()
else process.stdout.write(JSON.stringify(await measure(what)))

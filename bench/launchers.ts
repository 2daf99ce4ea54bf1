/**
 * The cost of starting a program with launchers compared with plain spawn, in one run: `node
 * bench/launchers.ts`.
 */

import { execFile, spawn } from 'node:child_process'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { promisify } from 'node:util'
import type { Job } from '../src/backends/backend.ts'
import type { Batch } from '../src/backends/local/executor.ts'
import { LauncherPool } from '../src/backends/local/programs/launcher-pool.ts'
import { systemClock as clock } from '../src/foundation/clock.ts'
import { processLog as log } from '../src/foundation/log.ts'
import { ComputeTask } from '../src/tasks/compute-task.ts'
import { median, table } from './harness.ts'

/** One way to run programs; each measurement has its own process. */
interface Contender {
  readonly name: string
  readonly run: (count: number, concurrency: number) => Promise<void>
  readonly ballastMb: number
  readonly count: number
}

interface Measurement {
  readonly perSecond: number
  readonly delayMs: number
}

const rounds = 5
const concurrency = Number(process.env['CONCURRENCY'] ?? 16)
const resolutionMs = 1
const throughPool = (options: { launchers?: number; spawner?: 'auto' | 'plain' }) => {
  return (count: number, max: number): Promise<void> => runInPool(count, max, options)
}

const contenders: readonly Contender[] = [
  { name: 'plain spawn', run: runPlainly, ballastMb: 0, count: 1500 },
  { name: '1 launcher', run: throughPool({ launchers: 1 }), ballastMb: 0, count: 3000 },
  { name: '2 launchers', run: throughPool({ launchers: 2 }), ballastMb: 0, count: 3000 },
  {
    name: 'launcher without koffi',
    run: throughPool({ spawner: 'plain' }),
    ballastMb: 0,
    count: 1500,
  },
  { name: 'plain spawn, 1 GB touched', run: runPlainly, ballastMb: 1024, count: 60 },
  {
    name: '1 launcher, 1 GB touched',
    run: throughPool({ launchers: 1 }),
    ballastMb: 1024,
    count: 3000,
  },
]

let pool: LauncherPool | undefined
let onFinish: (batch: Batch) => void = () => {}

const [mode, index] = process.argv.slice(2)
if (mode === 'one') await measureOne(contenders[Number(index)])
else await compareAll()

/** Interleaved, so that other load on the machine affects all alike. */
async function compareAll(): Promise<void> {
  const results = contenders.map((): Measurement[] => [])
  for (let round = 0; round < rounds; round++) {
    for (const at of contenders.keys()) {
      const command = [...process.execArgv, import.meta.filename, 'one', String(at)]
      const { stdout } = await promisify(execFile)(process.execPath, command)
      results[at]?.push(JSON.parse(stdout) as Measurement)
    }
  }
  const rates = results.map((each) => median(each.map(({ perSecond }) => perSecond)))
  const delays = results.map((each) => median(each.map(({ delayMs }) => delayMs)))
  const plainOf = (at: number): number => (contenders[at]?.ballastMb === 0 ? 0 : 4)
  table(
    [`/bin/true, ${concurrency} at once`, 'per s', '× plain', 'loop delay p99, ms', 'plain ÷'],
    contenders.map(({ name }, at) => [
      name,
      (rates[at] ?? NaN).toFixed(0),
      ((rates[at] ?? NaN) / (rates[plainOf(at)] ?? NaN)).toFixed(2),
      (delays[at] ?? NaN).toFixed(2),
      ((delays[plainOf(at)] ?? NaN) / (delays[at] ?? NaN)).toFixed(1),
    ]),
  )
}

async function measureOne(contender: Contender | undefined): Promise<void> {
  if (contender === undefined) throw new Error('no such contender')
  const ballast = Array.from({ length: contender.ballastMb / 64 }, () => Buffer.alloc(64 << 20, 1))
  await contender.run(Math.min(200, contender.count), concurrency)
  const delay = monitorEventLoopDelay({ resolution: resolutionMs })
  delay.enable()
  const began = clock.monotonicMs()
  await contender.run(contender.count, concurrency)
  const seconds = (clock.monotonicMs() - began) / 1000
  delay.disable()
  const delayMs = Math.max(0.01, delay.percentile(99) / 1e6 - resolutionMs)
  const measurement: Measurement = { perSecond: contender.count / seconds, delayMs }
  process.stdout.write(JSON.stringify(measurement))
  if (ballast.length * 64 !== contender.ballastMb) throw new Error('the ballast was lost')
  await pool?.close('done')
}

/** Plain spawn with the same work: captures output and awaits the end. */
function runPlainly(count: number, max: number): Promise<void> {
  return new Promise((resolve) => {
    let [started, ended] = [0, 0]
    const next = (): void => {
      if (started === count) return
      started++
      const child = spawn('/bin/true', { stdio: ['ignore', 'pipe', 'pipe'] })
      child.stdout.resume()
      child.stderr.resume()
      child.on('close', () => (++ended === count ? resolve() : next()))
    }
    for (let at = 0; at < max; at++) next()
  })
}

/** A minimal scheduler: starts jobs as long as there is a free slot. */
function runInPool(
  count: number,
  max: number,
  options: { launchers?: number; spawner?: 'auto' | 'plain' },
): Promise<void> {
  pool ??= new LauncherPool({
    nodeId: 'bench',
    idPrefix: 'bench',
    maxProcesses: max,
    clock,
    log,
    listener: {
      report(job, report) {
        if (report.kind === 'fail') throw new Error(`${job.uid} failed`, { cause: report.error })
      },
      notice() {},
      resultDropped() {},
      requeue() {},
      finish: (batch) => onFinish(batch),
    },
    ...options,
  })
  const jobs = Array.from({ length: count }, (): Job => {
    const task = new ComputeTask({ executable: '/bin/true' })
    return { sessionId: 'bench', uid: task.uid, attempt: 1, spec: task.spec }
  })
  return new Promise((resolve) => {
    let ended = 0
    const pump = (): void => {
      const begun = jobs.splice(0, pool?.freeSlots ?? 0)
      for (const job of begun) pool?.assign({ jobs: [job], gpuIds: [] })
    }
    onFinish = () => (++ended === count ? resolve() : pump())
    pump()
  })
}

/** The measurements of bench/local.ts; each runs in its own process. */

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { availableParallelism, tmpdir } from 'node:os'
import { join } from 'node:path'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { fileURLToPath } from 'node:url'
import { Worker } from 'node:worker_threads'
import { Piscina } from 'piscina'
import { Tinypool } from 'tinypool'
import { ConcurrentBackend } from '../src/backends/local/concurrent-backend.ts'
import { NoopBackend } from '../src/backends/noop-backend.ts'
import { Session } from '../src/session/session.ts'
import { ComputeTask } from '../src/tasks/compute-task.ts'
import { TelemetryManager } from '../src/telemetry/manager.ts'
import { emitTask } from './emit-task.ts'
import { noop } from './fixtures/noop.ts'
import { median, runMode, timed } from './harness.ts'

interface Measured {
  perSecond?: number
  p50Micros?: number
  delayP99Ms?: number
  peakMb?: number
}

const count = Number(process.env['TASKS'] ?? 100_000)
const programCount = Number(process.env['PROGRAMS'] ?? 2000)
const threads = 2
const cores = availableParallelism()
const peerNoop = fileURLToPath(new URL('fixtures/peer-noop.mjs', import.meta.url))

export const modes = {
  piscina: () =>
    peer(new Piscina({ filename: peerNoop, minThreads: threads, maxThreads: threads })),
  tinypool: () =>
    peer(new Tinypool({ filename: peerNoop, minThreads: threads, maxThreads: threads })),
  functions: () => sessionFunctions(false),
  functionsTelemetry: () => sessionFunctions(true),
  functionsResults: () => sessionFunctions(true, true),
  telemetry: telemetryAlone,
  bareLatency,
  latency: () => sessionLatency(false),
  latencyTelemetry: () => sessionLatency(true),
  spawn: () => plainSpawn(programCount),
  spawn16: () => plainSpawn(programCount, 16),
  spawn64: () => plainSpawn(programCount, 64),
  programs: () => sessionPrograms(programCount),
  programs16: () => sessionPrograms(programCount, 16),
  programs64: () => sessionPrograms(programCount, 64),
  idleBeside: idleBesidePrograms,
  // Only a tenth: with so much memory, plain spawn starts only a few per second.
  spawnLarge: () => withTouchedMemory(() => plainSpawn(programCount / 10)),
  programsLarge: () => withTouchedMemory(() => sessionPrograms(programCount / 10)),
  million: () => million(false),
  millionTelemetry: () => million(true),
} satisfies Record<string, () => Promise<Measured>>

async function peer(pool: {
  run(value: number): Promise<unknown>
  destroy(): Promise<void>
}): Promise<Measured> {
  await pool.run(0)
  const seconds = await timed(() =>
    Promise.all(Array.from({ length: count }, (_, value) => pool.run(value))),
  )
  await pool.destroy()
  return { perSecond: count / seconds }
}

async function sessionFunctions(isObserved: boolean, keepResults = false): Promise<Measured> {
  const backend = await ConcurrentBackend.create({ workers: threads })
  const session = new Session([backend])
  const folder = mkdtempSync(join(tmpdir(), 'tutti-bench-'))
  if (isObserved) {
    const telemetry = await session.startTelemetry({ checkpointPath: folder, keepResults })
    telemetry.subscribe(() => {})
  }
  await warmUp(session)
  const seconds = await timed(async () => {
    const tasks = createTasks(count)
    await session.submitTasks(tasks)
    await session.waitTasks(tasks)
    if (tasks.some(({ state }) => state !== 'DONE')) throw new Error('a task did not succeed')
    if (isObserved) await session.telemetry?.flush()
  })
  await session.close()
  rmSync(folder, { recursive: true })
  return { perSecond: count / seconds }
}

async function telemetryAlone(): Promise<Measured> {
  const folder = mkdtempSync(join(tmpdir(), 'tutti-bench-'))
  const telemetry = new TelemetryManager({ sessionId: 's-bench', checkpointPath: folder })
  telemetry.subscribe(() => {})
  await telemetry.start()
  const seconds = await timed(async () => {
    for (let task = 0; task < count; task++) {
      emitTask(telemetry, `task-${task}`)
      if (task % 100 === 99) await new Promise((resolve) => setImmediate(resolve))
    }
    await telemetry.flush()
  })
  await telemetry.stop()
  rmSync(folder, { recursive: true })
  return { perSecond: count / seconds }
}

async function bareLatency(): Promise<Measured> {
  const worker = new Worker(new URL('fixtures/echo-thread.mjs', import.meta.url))
  let answer = (_message: unknown): void => {}
  worker.on('message', (message) => answer(message))
  const ask = (value: number): Promise<unknown> =>
    new Promise((resolve) => {
      answer = resolve
      worker.postMessage({ uid: `task-${value}`, args: [value] })
    })
  const p50Micros = await latencyOf(ask)
  await worker.terminate()
  return { p50Micros }
}

async function sessionLatency(isObserved: boolean): Promise<Measured> {
  const session = new Session([await ConcurrentBackend.create({ workers: 1 })])
  const stop = await observe(session, isObserved)
  const p50Micros = await latencyOf(async (value) => {
    const task = new ComputeTask({ function: noop, args: [value] })
    await session.submitTasks([task])
    return await task
  })
  await stop()
  return { p50Micros }
}

/** Starts full telemetry, if wanted. The returned function closes the session. */
async function observe(session: Session, isObserved: boolean): Promise<() => Promise<void>> {
  const folder = mkdtempSync(join(tmpdir(), 'tutti-bench-'))
  if (isObserved) {
    const telemetry = await session.startTelemetry({ checkpointPath: folder })
    telemetry.subscribe(() => {})
  }
  return async () => {
    await session.close()
    rmSync(folder, { recursive: true })
  }
}

async function latencyOf(ask: (value: number) => Promise<unknown>): Promise<number> {
  const micros: number[] = []
  for (let value = 0; value < 30_000; value++) {
    const from = performance.now()
    await ask(value)
    if (value >= 10_000) micros.push((performance.now() - from) * 1000)
  }
  return median(micros)
}

async function plainSpawn(programs: number, atOnce = cores): Promise<Measured> {
  let next = 0
  const runOne = (): Promise<void> =>
    new Promise((resolve, reject) => {
      const child = spawn('/bin/true', [], { stdio: ['ignore', 'pipe', 'pipe'] })
      child.on('error', reject)
      child.on('close', () => resolve())
    })
  const lane = async (): Promise<void> => {
    while (next++ < programs) await runOne()
  }
  return watched(programs, () => Promise.all(Array.from({ length: atOnce }, lane)))
}

async function sessionPrograms(programs: number, atOnce = cores): Promise<Measured> {
  await using session = new Session([await ConcurrentBackend.create({ maxProcesses: atOnce })])
  const first = new ComputeTask({ executable: '/bin/true' })
  await session.submitTasks([first])
  await first
  return await watched(programs, async () => {
    const tasks = Array.from(
      { length: programs },
      () => new ComputeTask({ executable: '/bin/true' }),
    )
    await session.submitTasks(tasks)
    await Promise.all(tasks)
  })
}

/** The lower bound: the delay of an idle event loop while another process runs the programs. */
async function idleBesidePrograms(): Promise<Measured> {
  const program = fileURLToPath(import.meta.url)
  return await watched(programCount, async () => {
    const child = spawn(process.execPath, [program, 'programs'], { stdio: 'ignore' })
    await once(child, 'close')
  })
}

async function watched(programs: number, run: () => Promise<unknown>): Promise<Measured> {
  const delay = monitorEventLoopDelay({ resolution: 1 })
  delay.enable()
  const seconds = await timed(run)
  delay.disable()
  return { perSecond: programs / seconds, delayP99Ms: delay.percentile(99) / 1e6 }
}

async function withTouchedMemory(run: () => Promise<Measured>): Promise<Measured> {
  const buffers = Array.from({ length: 16 }, () => Buffer.alloc(64 * 2 ** 20, 1))
  const measured = await run()
  if (buffers.some((buffer) => buffer[0] !== 1)) throw new Error('the buffers changed')
  return measured
}

async function million(isObserved: boolean): Promise<Measured> {
  const total = 1_000_000
  const session = new Session([new NoopBackend()])
  const stop = await observe(session, isObserved)
  const seconds = await timed(() => session.submitTasks(createTasks(total)))
  await stop()
  return { perSecond: total / seconds, peakMb: process.resourceUsage().maxRSS / 1024 }
}

const createTasks = (length: number): ComputeTask<number, [number]>[] =>
  Array.from({ length }, (_, value) => new ComputeTask({ function: noop, args: [value] }))

async function warmUp(session: Session): Promise<void> {
  const tasks = createTasks(threads * 50)
  await session.submitTasks(tasks)
  await session.waitTasks(tasks)
}

await runMode(import.meta.url, modes)

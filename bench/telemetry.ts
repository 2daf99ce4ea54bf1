/**
 * The cost of full telemetry. Baseline A builds five plain frozen objects per task, stringifies
 * them and writes the lines in batches. Telemetry adds ids, spans, metrics, a subscriber and the
 * bus. Each run is a separate process; runs are interleaved and medians compared.
 */

import { execFileSync } from 'node:child_process'
import {
  closeSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { fileURLToPath } from 'node:url'
import { systemClock } from '../src/foundation/clock.ts'
import { newUuid } from '../src/foundation/ids.ts'
import { TelemetryManager } from '../src/telemetry/manager.ts'
import { emitTask, lifecycle, recordTask } from './emit-task.ts'
import { median, table } from './harness.ts'

const tasks = Number(process.env['TASKS'] ?? 100_000)
const runs = Number(process.env['RUNS'] ?? 5)
const warmUps = 3
const warmUpTasks = 20_000
/** Tasks per turn of the event loop, like a session that submits in slices. */
const slice = 100

/** How a mode emits, and whether somebody receives the events. */
interface Mode {
  readonly emit: (telemetry: TelemetryManager, number: number) => void
  readonly isWatched: boolean
  /** Tasks per second; without it, as many as possible. */
  readonly rate?: number
}

const emitPublic = (telemetry: TelemetryManager, number: number): void =>
  emitTask(telemetry, `task-${number}`)
// A tenth of the rate that the thread reaches on the reference machine, half on a slow one.
const rate = Number(process.env['RATE'] ?? 30_000)
const modes: Readonly<Record<string, Mode>> = {
  emitter: { emit: recordTask, isWatched: true },
  unwatched: { emit: recordTask, isWatched: false },
  public: { emit: emitPublic, isWatched: true },
  paced: { emit: recordTask, isWatched: true, rate },
  pacedNothing: { emit: () => {}, isWatched: false, rate },
}
const titles: Readonly<Record<string, string>> = {
  A: 'A: stringify and write, no telemetry',
  emitter: 'session events, one subscriber',
  unwatched: 'session events, no subscriber',
  public: '`makeEvent` and `emit`, one subscriber',
  paced: 'session events at a fixed rate, one subscriber',
  pacedA: 'A at that rate',
  pacedNothing: 'no events at that rate',
}

interface Result {
  readonly tasksPerSecond: number
  /** CPU time of the main thread, and of all threads. */
  readonly mainMicros: number
  readonly allMicros: number
  readonly delayP99Ms: number
  /** Heap and external memory. */
  readonly bytesPerTask: number
  readonly lines: number
}

function compare(): void {
  const names = Object.keys(titles)
  const results = new Map<string, Result[]>(names.map((name) => [name, []]))
  for (let run = 0; run < runs; run++) {
    for (const name of names) {
      const output = execFileSync(
        process.execPath,
        ['--expose-gc', fileURLToPath(import.meta.url), name],
        { encoding: 'utf8' },
      )
      results.get(name)?.push(JSON.parse(output) as Result)
    }
  }
  const of = (name: string, key: keyof Result) =>
    median((results.get(name) ?? []).map((result) => result[key]))
  const ratio = (name: string, key: keyof Result) => (of(name, key) / of('A', key)).toFixed(2)
  table(
    [
      '',
      'tasks/s',
      'of A',
      'main thread (µs CPU/task)',
      'all threads',
      'loop delay p99 (ms)',
      'of A',
      'memory (B/task)',
      'lines on disk',
    ],
    names.map((name) => [
      titles[name] ?? name,
      Math.round(of(name, 'tasksPerSecond')),
      ratio(name, 'tasksPerSecond'),
      of(name, 'mainMicros').toFixed(1),
      of(name, 'allMicros').toFixed(1),
      of(name, 'delayP99Ms').toFixed(2),
      ratio(name, 'delayP99Ms'),
      Math.round(of(name, 'bytesPerTask')),
      of(name, 'lines'),
    ]),
  )
}

async function measure(which: string): Promise<Result> {
  // Warms up, because otherwise compilation would cause the slowest turns. More than once, because
  // V8 specializes code to the first manager and compiles it again for others.
  for (let warmUp = 0; warmUp < warmUps; warmUp++) await measureOne(which, warmUpTasks)
  liveHeap()
  gcMs = 0
  return await measureOne(which, tasks)
}

async function measureOne(which: string, count: number): Promise<Result> {
  const folder = mkdtempSync(join(tmpdir(), 'tutti-bench-'))
  try {
    const mode = modes[which]
    return mode === undefined
      ? await measureBaseline(folder, count, which === 'pacedA' ? rate : undefined)
      : await measureOurs(folder, count, mode)
  } finally {
    rmSync(folder, { recursive: true })
  }
}

async function measureBaseline(
  folder: string,
  count: number,
  tasksPerSecond: number | undefined,
): Promise<Result> {
  const file = openSync(join(folder, 'a.jsonl'), 'a')
  let lines = ''
  const heaps = new HeapSlope(count)
  return timed(folder, count, heaps, async () => {
    const pace = new Pace(tasksPerSecond)
    for (let task = 0; task < count; task++) {
      const uid = `task-${task}`
      for (const { eventType } of lifecycle)
        lines += `${JSON.stringify(plainEvent(eventType, uid))}\n`
      if (task % slice === slice - 1) {
        writeSync(file, lines)
        lines = ''
        await pace.nextTurn(task)
      }
      heaps.sample(task)
    }
    writeSync(file, lines)
    closeSync(file)
  })
}

function plainEvent(eventType: string, uid: string): object {
  const now = systemClock.now()
  const event = {
    event_id: newUuid(),
    event_type: eventType,
    event_time: now,
    emit_time: now,
    session_id: 's-bench',
    backend: 'local',
    task_id: uid,
    node_id: null,
    attributes: { executable: 'noop', task_type: 'function' },
  }
  return Object.freeze(
    eventType === 'TaskCompleted' ? { ...event, duration_seconds: 0.001 } : event,
  )
}

/** Limits the rate of tasks. */
class Pace {
  readonly #from = performance.now()
  readonly #rate: number | undefined

  constructor(tasksPerSecond: number | undefined) {
    this.#rate = tasksPerSecond
  }

  async nextTurn(task: number): Promise<void> {
    const due = this.#rate === undefined ? 0 : this.#from + (task / this.#rate) * 1000
    await new Promise((resolve) => setImmediate(resolve))
    // Waits without using CPU time, because that of the main thread is measured.
    while (performance.now() < due) await new Promise((resolve) => setTimeout(resolve, 1))
  }
}

async function measureOurs(folder: string, count: number, mode: Mode): Promise<Result> {
  const telemetry = new TelemetryManager({ sessionId: 's-bench', checkpointPath: folder })
  let received = 0
  const unsubscribe = telemetry.subscribe(() => {
    received++
  })
  await telemetry.start()
  if (!mode.isWatched) unsubscribe()
  const heaps = new HeapSlope(count)
  const result = await timed(folder, count, heaps, async () => {
    const pace = new Pace(mode.rate)
    for (let task = 0; task < count; task++) {
      mode.emit(telemetry, task)
      if (task % slice === slice - 1) await pace.nextTurn(task)
      heaps.sample(task)
    }
    await telemetry.stop()
  })
  if (mode.isWatched && received !== count * 5 + 2) {
    throw new Error(`the subscriber got ${received} events`)
  }
  const isSilent = mode === modes['pacedNothing']
  if (result.lines !== (isSilent ? 0 : count * 6) + 4)
    throw new Error(`${result.lines} lines are on disk`)
  if (process.env['COST'] !== undefined) console.error(telemetry.summary().telemetry)
  return result
}

/** The live heap and external memory after 20 % and after all of the tasks. */
class HeapSlope {
  readonly #count: number
  #early = 0
  #late = 0

  constructor(count: number) {
    this.#count = count
  }

  sample(task: number): void {
    if (task === this.#count / 5 - 1) this.#early = liveHeap()
    if (task === this.#count - 1) this.#late = liveHeap()
  }

  get bytesPerTask(): number {
    return (this.#late - this.#early) / (this.#count * 0.8)
  }
}

let gcMs = 0
function liveHeap(): number {
  const from = performance.now()
  globalThis.gc?.()
  gcMs += performance.now() - from
  const { heapUsed, external } = process.memoryUsage()
  return heapUsed + external
}

async function timed(
  folder: string,
  count: number,
  heaps: HeapSlope,
  run: () => Promise<void>,
): Promise<Result> {
  const delay = monitorEventLoopDelay({ resolution: 1 })
  delay.enable()
  const from = performance.now()
  const [thread, all] = [process.threadCpuUsage(), process.cpuUsage()]
  await run()
  const microsOf = ({ user, system }: NodeJS.CpuUsage): number =>
    (user + system - gcMs * 1000) / count
  const mainMicros = microsOf(process.threadCpuUsage(thread))
  const allMicros = microsOf(process.cpuUsage(all))
  const seconds = (performance.now() - from - gcMs) / 1000
  delay.disable()
  let lines = 0
  for (const name of readdirSync(folder)) {
    const bytes = readFileSync(join(folder, name))
    for (let at = bytes.indexOf(10); at !== -1; at = bytes.indexOf(10, at + 1)) lines++
  }
  return {
    tasksPerSecond: count / seconds,
    delayP99Ms: delay.percentile(99) / 1e6,
    mainMicros,
    allMicros,
    bytesPerTask: heaps.bytesPerTask,
    lines,
  }
}

const mode = process.argv[2]
if (mode === undefined) compare()
else process.stdout.write(JSON.stringify(await measure(mode)))

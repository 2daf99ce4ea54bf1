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
import { emitTask, lifecycle } from './emit-task.ts'
import { median, table } from './harness.ts'

const tasks = Number(process.env['TASKS'] ?? 100_000)
const runs = Number(process.env['RUNS'] ?? 5)
const warmUpTasks = 5000
/** Tasks per turn of the event loop, like a session that submits in slices. */
const slice = 100

interface Result {
  readonly tasksPerSecond: number
  readonly delayP99Ms: number
  readonly heapBytesPerTask: number
  readonly lines: number
}

function compare(): void {
  const results = { A: [] as Result[], ours: [] as Result[] }
  for (let run = 0; run < runs; run++) {
    for (const one of ['A', 'ours'] as const) {
      const output = execFileSync(
        process.execPath,
        ['--expose-gc', fileURLToPath(import.meta.url), one],
        { encoding: 'utf8' },
      )
      results[one].push(JSON.parse(output) as Result)
    }
  }
  const of = (one: 'A' | 'ours', key: keyof Result) => median(results[one].map((r) => r[key]))
  const row = (one: 'A' | 'ours') => [
    one,
    Math.round(of(one, 'tasksPerSecond')),
    of(one, 'delayP99Ms').toFixed(2),
    Math.round(of(one, 'heapBytesPerTask')),
    of(one, 'lines'),
  ]
  table(
    ['', 'tasks/s', 'loop delay p99 (ms)', 'heap B/task', 'lines on disk'],
    [
      row('A'),
      row('ours'),
      [
        'ours / A',
        (of('ours', 'tasksPerSecond') / of('A', 'tasksPerSecond')).toFixed(2),
        (of('ours', 'delayP99Ms') / of('A', 'delayP99Ms')).toFixed(2),
        '',
        '',
      ],
    ],
  )
}

async function measure(which: string): Promise<Result> {
  // Warms up, because otherwise compilation would be the slowest turns of both.
  await measureOne(which, warmUpTasks)
  gcMs = 0
  return await measureOne(which, tasks)
}

async function measureOne(which: string, count: number): Promise<Result> {
  const folder = mkdtempSync(join(tmpdir(), 'tutti-bench-'))
  try {
    return which === 'A' ? await measureBaseline(folder, count) : await measureOurs(folder, count)
  } finally {
    rmSync(folder, { recursive: true })
  }
}

async function measureBaseline(folder: string, count: number): Promise<Result> {
  const file = openSync(join(folder, 'a.jsonl'), 'a')
  let lines = ''
  const heaps = new HeapSlope(count)
  return timed(folder, count, heaps, async () => {
    for (let task = 0; task < count; task++) {
      const uid = `task-${task}`
      for (const { eventType } of lifecycle)
        lines += `${JSON.stringify(plainEvent(eventType, uid))}\n`
      if (task % slice === slice - 1) {
        writeSync(file, lines)
        lines = ''
        await new Promise((resolve) => setImmediate(resolve))
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

async function measureOurs(folder: string, count: number): Promise<Result> {
  const telemetry = new TelemetryManager({ sessionId: 's-bench', checkpointPath: folder })
  let received = 0
  telemetry.subscribe(() => {
    received++
  })
  await telemetry.start()
  const heaps = new HeapSlope(count)
  const result = await timed(folder, count, heaps, async () => {
    for (let task = 0; task < count; task++) {
      emitTask(telemetry, `task-${task}`)
      if (task % slice === slice - 1) await new Promise((resolve) => setImmediate(resolve))
      heaps.sample(task)
    }
    await telemetry.stop()
  })
  if (received !== count * 5 + 2) throw new Error(`the subscriber got ${received} events`)
  if (result.lines !== count * 6 + 4) throw new Error(`${result.lines} lines are on disk`)
  return result
}

/** The live heap after 20 % and after all of the tasks. */
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
  return process.memoryUsage().heapUsed
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
  await run()
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
    heapBytesPerTask: heaps.bytesPerTask,
    lines,
  }
}

const mode = process.argv[2]
if (mode === undefined) compare()
else process.stdout.write(JSON.stringify(await measure(mode)))

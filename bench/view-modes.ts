/** The modes of `bench/view.ts`; each runs in its own process. */

import { execFileSync } from 'node:child_process'
import { existsSync, readdirSync } from 'node:fs'
import { open } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type EventClass, stampEvent } from '../src/events/event.ts'
import { NodeJoined } from '../src/events/library-events.ts'
import { systemClock } from '../src/foundation/clock.ts'
import { readViews } from '../src/record/record-views.ts'
import { TelemetryManager } from '../src/telemetry/manager.ts'
import type { RunPass } from '../src/views/all-panels.ts'
import { bounds } from '../src/views/bounds/bounds.ts'
import { lifecycle } from './emit-task.ts'
import { runMode } from './harness.ts'

const folder = process.env['RECORD_FOLDER'] ?? ''
const tasks = Number(process.env['TASKS'] ?? 100_000)
const workers = 8
/** Tasks per turn of the event loop. */
const slice = 100

export const modes = { write, idle, parse, views, bounds: withBounds, again, snapshot }

await runMode(import.meta.url, modes)

/** Writes a record as a session does: every task with its hash, worker and times. */
async function write(): Promise<object> {
  const telemetry = new TelemetryManager({ sessionId: 's-bench', checkpointPath: folder })
  await telemetry.start()
  const node = { cores: workers, gpus: 0, memory_mb: 0, labels: {}, version: '' }
  const common = { session_id: 's-bench', backend: 'local', node_id: 'node-1' }
  telemetry.emit(
    stampEvent(NodeJoined as unknown as EventClass, systemClock, { ...common, ...node }),
  )
  for (let task = 0; task < tasks; task++) {
    emitLife(telemetry, task)
    if (task % slice === slice - 1) await new Promise((resolve) => setImmediate(resolve))
  }
  await telemetry.stop()
  return {}
}

function emitLife(telemetry: TelemetryManager, task: number): void {
  const now = systemClock.now()
  const named = { executable: `simulate-${task % 5}`, task_type: 'function' }
  const attempt = { ...named, worker_id: `node-1/local/w${(task % workers) + 1}`, attempt: 1 }
  const hash = `${'0123456789abcdef'.repeat(2)}.${String(task).padStart(32, '0')}.`
  for (const [at, eventClass] of lifecycle.entries()) {
    telemetry.emit(
      stampEvent(eventClass as EventClass<string, { duration_seconds: number }>, systemClock, {
        session_id: 's-bench',
        backend: at === 0 ? '' : 'local',
        task_id: `task.${String(task).padStart(6, '0')}`,
        node_id: at < 3 ? null : 'node-1',
        event_time: now + at * 1e-4,
        attributes: at === 0 ? { ...named, definition_hash: hash } : at < 3 ? named : attempt,
        duration_seconds: 1e-4,
      }),
    )
  }
}

function recordPath(): string {
  return join(folder, readdirSync(folder).find((name) => name.endsWith('.jsonl')) ?? '')
}

/** The cost of only splitting a file into lines and parsing each of them. */
async function parse(): Promise<object> {
  const file = await open(recordPath())
  const buffer = Buffer.allocUnsafeSlow(262_144)
  let rest = Buffer.alloc(0)
  let lines = 0
  const from = process.cpuUsage()
  for (;;) {
    const { bytesRead } = await file.read(buffer, 0, buffer.length, null)
    if (bytesRead === 0) break
    const chunk = Buffer.concat([rest, buffer.subarray(0, bytesRead)])
    let start = 0
    for (let end = chunk.indexOf(10); end !== -1; end = chunk.indexOf(10, start)) {
      JSON.parse(chunk.toString('utf8', start, end))
      lines++
      start = end + 1
    }
    rest = Buffer.from(chunk.subarray(start))
  }
  const used = cpuSince(from)
  await file.close()
  if (lines < 6 * tasks) throw new Error('lines are missing')
  return { cpu: used, rss: rssOf() }
}

async function idle(): Promise<object> {
  await Promise.resolve()
  return { rss: rssOf() }
}

/** All panels over the file, without a snapshot. */
async function views(): Promise<object> {
  return await measured('ignore')
}

async function withBounds(): Promise<object> {
  return await measured('ignore', ({ counts, states }) => {
    const { slotSeconds } = bounds.show(states.bounds, { counts, ...states })
    if (slotSeconds.ran === 0) throw new Error('nothing ran')
  })
}

/** All panels from a snapshot that another reader has written. */
async function again(): Promise<object> {
  const path = recordPath()
  if (!existsSync(`${path}.view`)) {
    execFileSync(process.execPath, [fileURLToPath(import.meta.url), 'snapshot'])
  }
  return await measured('use')
}

async function snapshot(): Promise<object> {
  await readViews(recordPath(), { snapshot: 'write' })
  return {}
}

async function measured(
  kind: 'use' | 'ignore',
  show: (pass: RunPass) => void = () => {},
): Promise<object> {
  const from = process.cpuUsage()
  const { pass } = await readViews(recordPath(), { snapshot: kind })
  show(pass)
  const used = cpuSince(from)
  if (pass.counts.totals.completed !== tasks) throw new Error('tasks are missing')
  return { cpu: used, rss: rssOf() }
}

function cpuSince(from: NodeJS.CpuUsage): number {
  const { user, system } = process.cpuUsage(from)
  return (user + system) / 1e6
}

/** Memory in megabytes, after a garbage collection. */
function rssOf(): number {
  globalThis.gc?.()
  return process.memoryUsage().rss / 2 ** 20
}

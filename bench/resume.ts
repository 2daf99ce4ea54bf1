/**
 * The CPU time until a resumed run starts its first task, compared with one pass that splits the
 * record into lines and parses each. Both run in their own process.
 *
 *     node bench/resume.ts [TASKS]
 */

import { mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { open } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { execFileSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { ComputeTask, NoopBackend, Session } from '../src/index.ts'
import { table } from './harness.ts'

const program = fileURLToPath(import.meta.url)
const [, , first = '100000', folder = '', countText = ''] = process.argv

function compute(value: number): number {
  return value
}

const createTasks = (count: number): ComputeTask<number>[] =>
  Array.from({ length: count }, (_, value) => new ComputeTask({ function: compute, args: [value] }))

async function write(): Promise<void> {
  const session = new Session([new NoopBackend({ name: 'noop' })])
  await session.startTelemetry({ checkpointPath: folder, keepResults: true })
  const tasks = createTasks(Number(countText))
  await session.submitTasks(tasks)
  await session.waitTasks(tasks)
  await session.close()
}

const recordIn = (place: string): string =>
  join(place, readdirSync(place).find((name) => name.endsWith('.jsonl')) ?? '')

/** Submits one task more than the record has, which is the first to run. */
async function resume(): Promise<void> {
  const session = new Session([new NoopBackend({ name: 'noop' })])
  const { done } = await session.resume(recordIn(folder))
  await session.startTelemetry({ keepResults: true })
  const tasks = createTasks(Number(countText) + 1).toReversed()
  const submitting = session.submitTasks(tasks)
  await tasks[0]
  if (done !== Number(countText)) throw new Error(`only ${done} were done`)
  void submitting.catch(() => {})
}

async function parse(): Promise<void> {
  const file = await open(recordIn(folder))
  let lines = 0
  for await (const line of file.readLines()) lines += JSON.parse(line) === null ? 0 : 1
  if (lines < Number(countText)) throw new Error('the record is too short')
}

const steps: Readonly<Record<string, () => Promise<void>>> = { write, resume, parse }
const step = steps[first]
if (step !== undefined) {
  const before = process.cpuUsage()
  await step()
  const { user, system } = process.cpuUsage(before)
  const { rss } = process.memoryUsage()
  process.stdout.write(JSON.stringify({ seconds: (user + system) / 1e6, rss }))
  // The rest of the resumed run is not measured.
  process.exit()
} else {
  const place = mkdtempSync(join(tmpdir(), 'tutti-bench-'))
  const measure = (name: string): { seconds: number; rss: number } =>
    JSON.parse(execFileSync(process.execPath, [program, name, place, first]).toString()) as {
      seconds: number
      rss: number
    }
  measure('write')
  const parsed = measure('parse')
  const resumed = measure('resume')
  rmSync(place, { recursive: true })
  const seconds = (one: { seconds: number }): string => one.seconds.toFixed(1)
  table(
    [`${first} finished tasks`, 'CPU seconds', 'ratio'],
    [
      ['split and parse every line', seconds(parsed), ''],
      [
        'resume to the first task run',
        seconds(resumed),
        (resumed.seconds / parsed.seconds).toFixed(2),
      ],
    ],
  )
}

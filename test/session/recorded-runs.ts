/** Runs of a session that keep a record, and tasks that report whether they ran. */

import { readFileSync, writeFileSync } from 'node:fs'
import type { AnyTask } from '../../src/backends/backend.ts'
import {
  ConcurrentBackend,
  type ConcurrentBackendOptions,
} from '../../src/backends/local/concurrent-backend.ts'
import type { EventLine } from '../../src/checkpoint/format.ts'
import { readViews } from '../../src/record/record-views.ts'
import { counts } from '../../src/views/panels/counts.ts'
import type { ResumedRecord, ResumeOptions } from '../../src/core/resume/resumption.ts'
import type { SessionOptions, SessionTelemetryOptions } from '../../src/core/session-options.ts'
import { Session } from '../../src/session/session.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'

interface RunOptions {
  readonly folder: string
  /** The record to continue. */
  readonly resume?: string
  readonly how?: ResumeOptions
  readonly session?: SessionOptions
  readonly backend?: ConcurrentBackendOptions
  readonly telemetry?: SessionTelemetryOptions
}

interface Run {
  readonly id: string
  readonly record: string
  readonly resumed: ResumedRecord | null
  readonly warnings: readonly string[]
}

/** Runs the tasks to their ends in a session of its own, with a record in the folder. */
export async function run(options: RunOptions, tasks: readonly AnyTask[]): Promise<Run> {
  const warnings: string[] = []
  const log = { warn: (code: string, text: string) => void warnings.push(`${code}: ${text}`) }
  const backend = await ConcurrentBackend.create({ workers: 1, ...options.backend })
  const session = new Session([backend], { log, ...options.session })
  const { folder, resume, how } = options
  try {
    const resumed = resume === undefined ? null : await session.resume(resume, how)
    const kept = { checkpointPath: folder, keepResults: true }
    const telemetry = await session.startTelemetry({ ...kept, ...options.telemetry })
    await session.submitTasks(tasks)
    await session.waitTasks(tasks)
    return { id: session.id, record: telemetry.checkpointFile ?? '', resumed, warnings }
  } finally {
    await session.close()
  }
}

const calls: string[] = []

/** Counts its calls by name. */
export function note(name: string, value: unknown): unknown {
  calls.push(name)
  if (value instanceof Error) throw value
  return value
}

/** With a generated uid unless it is given one. */
export function noted(...[name, value, uid]: [string, unknown?, string?]): ComputeTask<unknown> {
  return new ComputeTask({ function: note, args: [name, value], ...(uid && { uid }) })
}

/** The calls since the last time. */
export const newCalls = (): string[] => calls.splice(0)

export const eventsIn = (record: string): EventLine[] =>
  readFileSync(record, 'utf8')
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as EventLine)
    .filter(({ section }) => section === 'event')

export const eventsOf = (record: string, uid: string): EventLine[] =>
  eventsIn(record).filter(({ task_id }) => task_id === uid)

/** Drops all lines from that of the first such event, as if the process had been killed there. */
export function cutBefore(record: string, isFirst: (event: EventLine) => boolean): void {
  const lines = readFileSync(record, 'utf8').trimEnd().split('\n')
  const first = eventsIn(record).find(isFirst)?.event_id
  const at = lines.findIndex((line) => (JSON.parse(line) as EventLine).event_id === first)
  if (first === undefined || at < 1) throw new Error('the record has no such event')
  writeFileSync(record, `${lines.slice(0, at).join('\n')}\n`)
}

/** How many tasks the run has, by their ends, as every reader counts them. */
export async function totalsOf(record: string) {
  const { pass } = await readViews(record, { snapshot: 'ignore' })
  const { tasks, completed, failed, canceled, open } = counts.show(pass.counts)
  return { tasks, completed, failed, canceled, open }
}

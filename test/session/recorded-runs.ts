/** Runs of a session that keep a record, and tasks that tell which of them ran. */

import { readFileSync } from 'node:fs'
import type { AnyTask } from '../../src/backends/backend.ts'
import { ConcurrentBackend } from '../../src/backends/local/concurrent-backend.ts'
import type { EventLine } from '../../src/checkpoint/format.ts'
import type { ResumedRecord, ResumeOptions } from '../../src/core/resume/resume-options.ts'
import {
  Session,
  type SessionOptions,
  type SessionTelemetryOptions,
} from '../../src/session/session.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'

interface RunOptions {
  readonly folder: string
  /** The record to continue. */
  readonly resume?: string
  readonly how?: ResumeOptions
  readonly session?: SessionOptions
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
  const backend = await ConcurrentBackend.create({ workers: 1 })
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

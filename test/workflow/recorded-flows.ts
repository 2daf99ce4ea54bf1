/** Runs of a workflow that keep a record. */

import { expect } from 'vitest'
import { ConcurrentBackend } from '../../src/backends/local/concurrent-backend.ts'
import { verifyJournal } from '../../src/cli/journal.ts'
import { createOutput } from '../../src/cli/output.ts'
import type { ResumedRecord, ResumeOptions } from '../../src/core/resume/resumption.ts'
import { WorkflowEngine } from '../../src/workflow/workflow-engine.ts'
import { tempFolder } from '../checkpoint/open-writer.ts'

interface RunOptions {
  readonly folder: string
  readonly resume?: string
  readonly how?: ResumeOptions
}

/** Runs the body in an engine of its own, with a record in the folder. */
export async function run<T>(options: RunOptions, body: (flow: WorkflowEngine) => Promise<T>) {
  const flow = await WorkflowEngine.create({
    backend: await ConcurrentBackend.create({ workers: 1 }),
    log: { warn() {} },
  })
  const { folder, resume, how } = options
  try {
    const resumed: ResumedRecord | null =
      resume === undefined ? null : await flow.resume(resume, how)
    const telemetry = await flow.startTelemetry({ checkpointPath: folder, keepResults: true })
    const value = await body(flow)
    return { value, resumed, record: telemetry.checkpointFile ?? '', id: flow.id }
  } finally {
    await flow.shutdown()
  }
}

/** The exit code of `tutti journal verify`. */
export function verdictOf(record: string): Promise<number> {
  const stream = { write: () => true }
  return verifyJournal(record, createOutput('quiet', stream, stream))
}

type Body<T> = (flow: WorkflowEngine) => Promise<T>

/** Runs the first program, then the second one with its record; the values of both. */
export async function valuesOfBoth<T>(first: Body<T>, second: Body<T>): Promise<[T, T]> {
  const folder = tempFolder()
  const before = await run({ folder }, first)
  const after = await run({ folder, resume: before.record }, second)
  expect(await verdictOf(after.record)).toBe(0)
  return [before.value, after.value]
}

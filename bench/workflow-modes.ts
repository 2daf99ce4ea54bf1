/** The measurements of bench/workflow.ts; each runs in its own process. */

import { ConcurrentBackend } from '../src/backends/local/concurrent-backend.ts'
import { Session } from '../src/session/session.ts'
import { ComputeTask } from '../src/tasks/compute-task.ts'
import { WorkflowEngine } from '../src/workflow/workflow-engine.ts'
import type { Handle } from '../src/workflow/task-function.ts'
import { join, noop } from './fixtures/noop.ts'
import { median, runMode, timed } from './harness.ts'

interface Measured {
  perSecond?: number
  /** The median over rounds of 1,000 tasks. */
  taskMicros?: number
  /** The median over tasks. */
  p50Micros?: number
}

const count = Number(process.env['TASKS'] ?? 100_000)
const diamonds = Number(process.env['DIAMONDS'] ?? 10_000)
const chainLength = 1000
const rounds = 30
const coldRounds = 10
const threads = 2

export const modes = { oneAtATime, chain, sessionBag, engineBag, diamondsOfFour } satisfies Record<
  string,
  () => Promise<Measured>
>

/** As in bench/local.ts: constructs, submits and awaits tasks one after the other. */
async function oneAtATime(): Promise<Measured> {
  await using session = new Session([await ConcurrentBackend.create({ workers: 1 })])
  const micros: number[] = []
  for (let value = 0; value < rounds * chainLength; value++) {
    const from = performance.now()
    const task = new ComputeTask({ function: noop, args: [value] })
    await session.submitTasks([task])
    await task
    micros.push((performance.now() - from) * 1000)
  }
  const warm = micros.slice(coldRounds * chainLength)
  const sums = Array.from({ length: rounds - coldRounds }, (_, round) =>
    warm.slice(round * chainLength, (round + 1) * chainLength).reduce((a, b) => a + b, 0),
  )
  return { p50Micros: median(warm), taskMicros: median(sums) / chainLength }
}

/** Every task depends on the previous one. */
async function chain(): Promise<Measured> {
  await using flow = await WorkflowEngine.create({
    backend: await ConcurrentBackend.create({ workers: 1 }),
  })
  const step = flow.functionTask(noop)
  const micros: number[] = []
  for (let round = 0; round < rounds; round++) {
    const from = performance.now()
    let last: Handle<number> = step(round)
    for (let at = 1; at < chainLength; at++) last = step(last)
    await last
    if (round >= coldRounds) micros.push(((performance.now() - from) * 1000) / chainLength)
  }
  return { taskMicros: median(micros) }
}

async function sessionBag(): Promise<Measured> {
  await using session = new Session([await ConcurrentBackend.create({ workers: threads })])
  const run = async (length: number): Promise<void> => {
    const tasks = Array.from(
      { length },
      (_, value) => new ComputeTask({ function: noop, args: [value] }),
    )
    await session.submitTasks(tasks)
    await Promise.all(tasks)
  }
  await run(100)
  return { perSecond: count / (await timed(() => run(count))) }
}

async function engineBag(): Promise<Measured> {
  await using flow = await WorkflowEngine.create({
    backend: await ConcurrentBackend.create({ workers: threads }),
  })
  const step = flow.functionTask(noop)
  const run = async (length: number): Promise<void> => {
    await Promise.all(Array.from({ length }, (_, value) => step(value)))
  }
  await run(100)
  return { perSecond: count / (await timed(() => run(count))) }
}

/** Diamonds: one task, two that depend on it, and one that depends on both. */
async function diamondsOfFour(): Promise<Measured> {
  await using flow = await WorkflowEngine.create({
    backend: await ConcurrentBackend.create({ workers: threads }),
  })
  const step = flow.functionTask(noop)
  const both = flow.functionTask(join)
  const run = async (length: number): Promise<void> => {
    await Promise.all(
      Array.from({ length }, (_, value) => {
        const top = step(value)
        return both(step(top), step(top))
      }),
    )
  }
  await run(100)
  return { perSecond: diamonds / (await timed(() => run(diamonds))) }
}

await runMode(import.meta.url, modes)

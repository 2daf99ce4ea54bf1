/**
 * The workloads of bench/revisions.ts. They use the built package of the checkout in
 * `TUTTI_CHECKOUT` through its entry points only. CPU time counts all threads, and for programs
 * also the child processes.
 */

import { fork } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import type * as Library from '../src/index.ts'
import type * as Inference from '../src/inference/index.ts'
import type * as Workflow from '../src/workflow/index.ts'
import { join as joinNodes, noop } from './fixtures/noop.ts'
import { runMode } from './harness.ts'

interface Measured {
  readonly cpuMicros: number
}

const checkout = process.env['TUTTI_CHECKOUT'] ?? fileURLToPath(new URL('..', import.meta.url))
const load = <T>(path: string): Promise<T> =>
  import(pathToFileURL(join(checkout, 'dist', path)).href) as Promise<T>
const library = () => load<typeof Library>('index.js')
const workflow = () => load<typeof Workflow>('workflow/index.js')
const inference = () => load<typeof Inference>('inference/index.js')

export const workloads = {
  functions: () => functions({ isObserved: false }),
  functionsWithTelemetry: () => functions({ isObserved: true }),
  functionsWithResults: () => functions({ isObserved: true, keepResults: true }),
  telemetry: telemetryAlone,
  oneAtATime,
  programs,
  noopBackend,
  workflowBag,
  workflowChain,
  workflowDiamonds,
  chatRequests: () => chatRequests('none'),
  streamedTokens: () => chatRequests('stream'),
  guardedRequests: () => chatRequests('guardrails'),
} satisfies Record<string, () => Promise<Measured>>

/** CPU time of this process per item, in the second of two equal rounds. */
async function perItem(items: number, round: () => Promise<unknown>): Promise<Measured> {
  await round()
  const before = process.cpuUsage()
  await round()
  const { user, system } = process.cpuUsage(before)
  return { cpuMicros: (user + system) / items }
}

async function functions({
  isObserved,
  keepResults = false,
}: {
  isObserved: boolean
  keepResults?: boolean
}): Promise<Measured> {
  const { ComputeTask, ConcurrentBackend, Session } = await library()
  const count = 100_000
  const folder = mkdtempSync(join(tmpdir(), 'tutti-bench-'))
  const session = new Session([await ConcurrentBackend.create({ workers: 2 })])
  if (isObserved) {
    const telemetry = await session.startTelemetry({ checkpointPath: folder, keepResults })
    telemetry.subscribe(() => {})
  }
  const measured = await perItem(count, async () => {
    const tasks = Array.from(
      { length: count },
      (_, value) => new ComputeTask({ function: noop, args: [value] }),
    )
    await session.submitTasks(tasks)
    await session.waitTasks(tasks)
    if (tasks.some(({ state }) => state !== 'DONE')) throw new Error('a task did not succeed')
    await session.telemetry?.flush()
  })
  await session.close()
  rmSync(folder, { recursive: true })
  return measured
}

async function telemetryAlone(): Promise<Measured> {
  const { NoopBackend, ComputeTask, Session } = await library()
  const count = 50_000
  const folder = mkdtempSync(join(tmpdir(), 'tutti-bench-'))
  const session = new Session([new NoopBackend({ name: 'noop' })])
  const manager = await session.startTelemetry({ checkpointPath: folder })
  manager.subscribe(() => {})
  const measured = await perItem(count, async () => {
    const tasks = Array.from({ length: count }, () => new ComputeTask({ executable: 'true' }))
    await session.submitTasks(tasks)
    await session.waitTasks(tasks)
    await manager.flush()
  })
  await session.close()
  rmSync(folder, { recursive: true })
  return measured
}

async function oneAtATime(): Promise<Measured> {
  const { ComputeTask, ConcurrentBackend, Session } = await library()
  const count = 20_000
  const session = new Session([await ConcurrentBackend.create({ workers: 1 })])
  const measured = await perItem(count, async () => {
    for (let value = 0; value < count; value++) {
      const task = new ComputeTask({ function: noop, args: [value] })
      await session.submitTasks([task])
      await task
    }
  })
  await session.close()
  return measured
}

async function programs(): Promise<Measured> {
  const { ComputeTask, ConcurrentBackend, Session } = await library()
  const count = 1000
  const session = new Session([await ConcurrentBackend.create()])
  const tasks = Array.from({ length: count }, () => new ComputeTask({ executable: '/bin/true' }))
  const before = process.cpuUsage()
  await session.submitTasks(tasks)
  await session.waitTasks(tasks)
  await session.close()
  const { user, system } = process.cpuUsage(before)
  return { cpuMicros: (user + system + childrenCpuMicros()) / count }
}

/** CPU time of children that have been waited for; the kernel counts hundredths of a second. */
function childrenCpuMicros(): number {
  const fields = readFileSync('/proc/self/stat', 'utf8').split(') ')[1]?.split(' ') ?? []
  return (Number(fields[13]) + Number(fields[14])) * 10_000
}

async function noopBackend(): Promise<Measured> {
  const { ComputeTask, NoopBackend, Session } = await library()
  const count = 200_000
  const session = new Session([new NoopBackend({ name: 'noop' })])
  const measured = await perItem(count, async () => {
    const tasks = Array.from({ length: count }, () => new ComputeTask({ executable: 'true' }))
    await session.submitTasks(tasks)
    await session.waitTasks(tasks)
  })
  await session.close()
  return measured
}

async function openWorkflow(workers: number) {
  const { ConcurrentBackend } = await library()
  const { WorkflowEngine } = await workflow()
  return WorkflowEngine.create({ backend: await ConcurrentBackend.create({ workers }) })
}

async function workflowBag(): Promise<Measured> {
  const flow = await openWorkflow(2)
  const count = 100_000
  const step = flow.functionTask(noop)
  const measured = await perItem(count, () =>
    Promise.all(Array.from({ length: count }, (_, value) => step(value))),
  )
  await flow.shutdown()
  return measured
}

async function workflowChain(): Promise<Measured> {
  const flow = await openWorkflow(1)
  const count = 10_000
  const step = flow.functionTask(noop)
  const measured = await perItem(count, async () => {
    let last = step(0)
    for (let at = 1; at < count; at++) last = step(last)
    await last
  })
  await flow.shutdown()
  return measured
}

async function workflowDiamonds(): Promise<Measured> {
  const flow = await openWorkflow(2)
  const count = 10_000
  const step = flow.functionTask(noop)
  const end = flow.functionTask(joinNodes)
  const measured = await perItem(count, () =>
    Promise.all(
      Array.from({ length: count }, (_, value) => {
        const top = step(value)
        return end(step(top), step(top))
      }),
    ),
  )
  await flow.shutdown()
  return measured
}

/** Requests to a server in this process; the load comes from another process. */
async function chatRequests(kind: 'none' | 'stream' | 'guardrails'): Promise<Measured> {
  const { InferenceBackend } = await inference()
  const folder = mkdtempSync(join(tmpdir(), 'tutti-bench-'))
  const guardrails = kind === 'guardrails' ? 'guardrails: { toggle_on: true }\n' : ''
  const configFile = join(folder, 'model.yaml')

  writeFileSync(configFile, `required: { model_name: tiny }\n${guardrails}engine: { kind: echo }\n`)
  const backend = new InferenceBackend({ configFile, modelName: 'tiny', port: 0 })
  await backend.initialize()
  const client = fork(fileURLToPath(new URL('fixtures/chat-load.ts', import.meta.url)), [
    String(backend.endpoint),
    kind,
  ])
  const count = 5000
  const measured = await perItem(count, async () => {
    client.send(count)
    await once(client, 'message')
  })
  client.disconnect()
  await backend.close()
  rmSync(folder, { recursive: true })
  return measured
}

await runMode(import.meta.url, workloads)

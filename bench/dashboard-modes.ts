/** The modes of `bench/dashboard.ts` that run functions; each runs in its own process. */

import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Readable } from 'node:stream'
import { fileURLToPath } from 'node:url'
import { ConcurrentBackend } from '../src/backends/local/concurrent-backend.ts'
import { openDashboard } from '../src/dashboard/dashboard.ts'
import { Session } from '../src/session/session.ts'
import { ComputeTask } from '../src/tasks/compute-task.ts'
import { noop } from './fixtures/noop.ts'
import { runMode, timed } from './harness.ts'

const count = Number(process.env['FUNCTIONS'] ?? 300_000)
const pageFolder = fileURLToPath(new URL('../dist/dashboard/page/', import.meta.url))
const viewer = fileURLToPath(new URL('fixtures/dashboard-viewer.mjs', import.meta.url))

export const modes = {
  without: () => functions(),
  /** The same again, whose ratio shows how much two equal modes differ. */
  again: () => functions(),
  idle: () => functions(0),
  watched: () => functions(1),
}

await runMode(import.meta.url, modes)

/** The rate of functions with telemetry and a record; without `viewers`, there is no dashboard. */
async function functions(viewers?: number): Promise<{
  perSecond: number
  answers: number
}> {
  const folder = mkdtempSync(join(tmpdir(), 'tutti-bench-'))
  const session = new Session([await ConcurrentBackend.create({ workers: 2 })])
  const telemetry = await session.startTelemetry({ checkpointPath: folder })
  const open = () => openDashboard(telemetry, { port: 0 }, { pageFolder })
  const dashboard = viewers === undefined ? null : await open()
  await run(session, 1000)
  const watching = Array.from({ length: viewers ?? 0 }, () => startViewer(dashboard?.link() ?? ''))
  await Promise.all(watching.map(({ stdout }) => once(stdout, 'data')))
  let answers = 0
  for (const { stdout } of watching) stdout.on('data', () => answers++)
  const seconds = await timed(() => run(session, count))
  for (const one of watching) one.kill()
  await session.close()
  await dashboard?.close()
  rmSync(folder, { recursive: true })
  return { perSecond: count / seconds, answers: answers / seconds }
}

function startViewer(link: string): ChildProcess & { readonly stdout: Readable } {
  return spawn(process.execPath, [viewer, link], { stdio: ['ignore', 'pipe', 'inherit'] })
}

async function run(session: Session, tasks: number): Promise<void> {
  const all = Array.from(
    { length: tasks },
    (_, value) => new ComputeTask({ function: noop, args: [value] }),
  )
  await session.submitTasks(all)
  await session.waitTasks(all)
  if (all.some(({ error }) => error !== null)) throw new Error('a task failed')
  await session.telemetry?.flush()
}

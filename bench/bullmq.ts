/**
 * No-op jobs through BullMQ on Redis: bulk adds, two worker processes, and a listener for every
 * completed job. The package is installed into a temporary folder, because it is not a dependency.
 */

import { execFileSync, fork, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdirSync, mkdtempSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { findFreePort } from '../src/runtime/server/guarded-server.ts'
import { familyCpu } from './process-cpu.ts'

const packages = ['bullmq@6.7.0', 'ioredis@5']
const bulk = 1000
const workers = 2

/** The part of the package that is used here. */
interface BullMQ {
  readonly Queue: new (
    name: string,
    options: object,
  ) => {
    addBulk(jobs: readonly object[]): Promise<unknown>
    close(): Promise<void>
  }
  readonly QueueEvents: new (
    name: string,
    options: object,
  ) => {
    waitUntilReady(): Promise<unknown>
    on(event: 'completed', listener: () => void): void
    close(): Promise<void>
  }
}

/** Jobs per second, and the CPU time of all processes, Redis included, per job. */
export async function bullmq(
  jobs: number,
): Promise<{ readonly tasks_per_s: number; readonly total_us: number }> {
  const folder = installed()
  const { Queue, QueueEvents } = createRequire(`${folder}/`)('bullmq') as BullMQ
  const port = await findFreePort('127.0.0.1')
  const data = mkdtempSync(join(tmpdir(), 'tutti-redis-'))
  const server = spawn('redis-server', ['--port', String(port), '--save', '', '--dir', data])
  await once(server.stdout, 'data')
  const connection = { host: '127.0.0.1', port, maxRetriesPerRequest: null }
  const program = fileURLToPath(new URL('fixtures/bullmq-worker.mjs', import.meta.url))
  const children = Array.from({ length: workers }, () => fork(program, [folder, String(port)]))
  await Promise.all(children.map((child) => once(child, 'message')))
  const queue = new Queue('bench', { connection })
  const events = new QueueEvents('bench', { connection })
  await events.waitUntilReady()
  let left = 0
  let allEnded: () => void = () => {}
  events.on('completed', () => {
    if (--left === 0) allEnded()
  })
  const round = async (): Promise<void> => {
    left = jobs
    const { promise, resolve } = Promise.withResolvers<void>()
    allEnded = resolve
    const opts = { removeOnComplete: true }
    for (let added = 0; added < jobs; added += bulk) {
      const size = Math.min(bulk, jobs - added)
      await queue.addBulk(Array.from({ length: size }, () => ({ name: 'nothing', data: {}, opts })))
    }
    await promise
  }
  await round()
  const [cpu, from] = [familyCpu(), performance.now()]
  await round()
  const seconds = (performance.now() - from) / 1000
  const measured = { tasks_per_s: jobs / seconds, total_us: (familyCpu() - cpu) / jobs }
  await queue.close()
  await events.close()
  for (const child of children) child.kill()
  server.kill()
  return measured
}

function installed(): string {
  const folder = join(tmpdir(), `tutti-bench-${packages.join('-')}`)
  if (existsSync(join(folder, 'node_modules/ioredis/package.json'))) return folder
  mkdirSync(folder, { recursive: true })
  writeFileSync(join(folder, 'package.json'), '{ "private": true }\n')
  const args = ['install', '--no-audit', '--no-fund', '--ignore-scripts', ...packages]
  execFileSync('npm', args, { cwd: folder, stdio: ['ignore', 'ignore', 'inherit'] })
  return folder
}

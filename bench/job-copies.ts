/**
 * Whether copies of jobs are as fast as originals. A job that came from another process has neither
 * the objects nor the private tag of a session's own jobs. Submits no-op functions to one
 * connection: jobs as a session creates them, and structured clones of them. Every run is a
 * separate process.
 */

import type { Job, TaskReport } from '../src/backends/backend.ts'
import { TaggedJob } from '../src/backends/job-tag.ts'
import { ConcurrentBackend } from '../src/backends/local/concurrent-backend.ts'
import { ComputeTask } from '../src/tasks/compute-task.ts'
import type { TaskSpec } from '../src/tasks/spec.ts'
import { noop } from './fixtures/noop.ts'
import { measureModes, runMode, table } from './harness.ts'

const runs = Number(process.env['RUNS'] ?? 9)
const rounds = 5
const count = Number(process.env['TASKS'] ?? 100_000)

class Original extends TaggedJob implements Job {
  readonly sessionId = 'bench'
  readonly uid: string
  readonly attempt = 1
  readonly spec: TaskSpec

  constructor({ uid, spec }: ComputeTask<number, [number]>) {
    super()
    this.uid = uid
    this.spec = spec
  }
}

const modes = { originals: () => run((job) => job), copies: () => run(structuredClone<Job>) }

async function run(prepare: (job: Job) => Job): Promise<{ cpuMicros: number }> {
  await using backend = await ConcurrentBackend.create({ workers: 2 })
  let left = 0
  let finish = (): void => {}
  const report = (_: Job, { kind }: TaskReport): void => {
    if (kind !== 'start' && --left === 0) finish()
  }
  const session = { id: 'bench', closureOf: () => null }
  const connection = backend.connect({ report, notice() {} }, session)
  const submit = async (jobs: readonly Job[]): Promise<void> => {
    left = jobs.length
    const done = new Promise<void>((resolve) => (finish = resolve))
    connection.submit(jobs)
    await done
  }
  await submit(createJobs(2000, prepare))
  let micros = 0
  for (let round = 0; round < rounds; round++) {
    const jobs = createJobs(count, prepare)
    globalThis.gc?.()
    const before = process.cpuUsage()
    await submit(jobs)
    const { user, system } = process.cpuUsage(before)
    micros += user + system
  }
  await connection.release('measured')
  return { cpuMicros: micros / (count * rounds) }
}

const createJobs = (length: number, prepare: (job: Job) => Job): Job[] =>
  Array.from({ length }, (_, value) =>
    prepare(new Original(new ComputeTask({ function: noop, args: [value] }))),
  )

await runMode(import.meta.url, modes)
if (process.argv[2] === undefined) {
  const found = measureModes(new URL(import.meta.url), Object.keys(modes), runs)
  const [originals, copies] = [found('originals', 'cpuMicros'), found('copies', 'cpuMicros')]
  table(
    ['no-op functions, one connection', 'µs CPU per task', 'ratio'],
    [
      ["the session's jobs", originals.toFixed(2), ''],
      ['structured clones of them', copies.toFixed(2), `${(copies / originals).toFixed(2)} x`],
    ],
  )
}

/** The measurements of `bench/hpc.ts`: each mode runs in a process and prints its numbers. */

import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import type { Backend } from '../src/backends/backend.ts'
import { ClusterBackend } from '../src/cluster/cluster-backend.ts'
import { Placement } from '../src/cluster/protocol/placement/placement.ts'
import type { PlacedJob } from '../src/cluster/protocol/placement/shapes.ts'
import { noRules } from '../src/cluster/wire/agent-rules.ts'
import { HpcBackend, setStartMethod } from '../src/hpc/index.ts'
import { Session } from '../src/session/session.ts'
import { ComputeTask } from '../src/tasks/compute-task.ts'
import { defaultResources } from '../src/tasks/resources.ts'
import { median, runMode, timed } from './harness.ts'
import { nothing } from './workers-functions.ts'

const execute = promisify(execFile)
const functions = Number(process.env['TASKS'] ?? 50_000)
const programs = Number(process.env['PROGRAMS'] ?? 1000)
const steps = Number(process.env['STEPS'] ?? 60)
const placedTasks = Number(process.env['PLACED'] ?? 1_000_000)
const { BENCH_JOB: job = '', BENCH_RANKS: ranks = '' } = process.env
const ofJob = ['--overlap', `--jobid=${job}`, '--mem=0', '--quiet']
/** The same limits as in the tests: with all transports, Debian's Open MPI sometimes hangs. */
const transports = { OMPI_MCA_pml: 'ob1', OMPI_MCA_btl: 'tcp,self', PMIX_MCA_gds: 'hash' }

async function createHpc(): Promise<HpcBackend> {
  setStartMethod('slurm')
  return HpcBackend.create({ graceSeconds: 1 })
}

/** The median over all rounds but the first, which is shorter and warms up. */
async function rate(
  backend: Backend,
  count: number,
  make: () => ComputeTask<unknown>,
): Promise<object> {
  await using session = new Session([backend])
  const seconds: number[] = []
  for (const share of [0.2, 1, 1, 1]) {
    const tasks = Array.from({ length: count * share }, make)
    const took = await timed(async () => {
      await session.submitTasks(tasks)
      await session.waitTasks(tasks)
    })
    if (share === 1) seconds.push(took)
  }
  return { tasks_per_s: count / median(seconds) }
}

const noop = (): ComputeTask<void> => new ComputeTask({ function: nothing })

/** One Slurm step per program, four at a time. */
async function stepRate(): Promise<object> {
  const seconds = await timed(async () => {
    let left = steps
    const worker = async (): Promise<void> => {
      while (left-- > 0) await execute('srun', [...ofJob, '-N1', '-n1', '/bin/true'])
    }
    await Promise.all([worker(), worker(), worker(), worker()])
  })
  return { tasks_per_s: steps / seconds }
}

/** Skips the first rounds, because Node processes get faster with their first tasks. */
async function medianMs(run: () => Promise<unknown>): Promise<object> {
  const seconds: number[] = []
  for (let round = 0; round < 7; round++) seconds.push(await timed(run))
  return { ms: median(seconds.slice(2)) * 1000 }
}

async function rankTask(): Promise<object> {
  await using session = new Session([await createHpc()])
  const resources = { ranks: 4, ranksPerNode: 1 }
  const options = { executable: ranks, arguments: ['end'], env: transports, resources }
  return await medianMs(async () => {
    const task = new ComputeTask(options)
    await session.submitTasks([task])
    await task
  })
}

async function bareRanks(): Promise<object> {
  const env = { ...process.env, ...transports }
  const line = [...ofJob, '-N4', '-n4', '--mpi=pmix', '--input=none', ranks, 'end']
  return await medianMs(() => execute('srun', line, { env }))
}

/** The time of a launch inside the allocation until its first task has started. */
function launchMs(): Promise<object> {
  const script = toFile('fixtures/first-task.ts')
  return untilBegun((begun) => [toFile('../dist/cli/main.js'), 'launch', script, begun])
}

/** The time of only the Node processes that a launch consists of. */
function bareLaunch(): Promise<object> {
  return untilBegun((begun) => [toFile('fixtures/bare-launch.mjs'), 'launcher', job, begun])
}

const toFile = (path: string): string => fileURLToPath(new URL(path, import.meta.url))

async function untilBegun(toArguments: (begun: string) => string[]): Promise<object> {
  const begun = resolve(`begun-${process.pid}`)
  await execute('mkfifo', [begun])
  const from = performance.now()
  const child = spawn(process.execPath, toArguments(begun), {
    env: { ...process.env, SLURM_JOB_ID: job },
    stdio: ['ignore', 'ignore', 'inherit'],
  })
  await readFile(begun)
  const ms = performance.now() - from
  await once(child, 'close')
  return { ms }
}

async function bareStart(): Promise<object> {
  const seconds = await timed(async () => {
    await execute('srun', [...ofJob, '-N4', '-n4', 'hostname'])
    await execute(process.execPath, ['-e', '0'])
  })
  return { ms: seconds * 1000 }
}

/** Uses the real placement code: jobs arrive, end, and release their resources. */
async function placementUs(nodes: number): Promise<object> {
  const placement = new Placement<PlacedJob>()
  const facts = { cores: 4, gpus: 2, memoryMb: 4000, labels: {} }
  const offer = { ...facts, ahead: 4 }
  for (let at = 0; at < nodes; at++) placement.addNode(`n${at}`, facts, offer, noRules)
  const spec = { kind: 'function', priority: 0, resources: defaultResources } as const
  const rest = { spec, avoidedNode: null, exclusion: null, isRetry: false }
  let placed = 0
  const seconds = await timed(async () => {
    for (let sequence = 0; sequence < placedTasks; sequence++) placement.push({ ...rest, sequence })
    while (placement.waiting > 0) {
      for (const [name, jobs] of placement.assign()) {
        placed += jobs.length
        for (const one of jobs) placement.release(name, one)
      }
    }
  })
  return { us: (seconds * 1e6) / placed }
}

await runMode(import.meta.url, {
  programs: async () => {
    const make = (): ComputeTask => new ComputeTask({ executable: '/bin/true' })
    return rate(await createHpc(), programs, make)
  },
  steps: stepRate,
  functions: async () => rate(await createHpc(), functions, noop),
  clusterFunctions: async () => {
    return rate(await ClusterBackend.local({ agents: 4, cores: 4 }), functions, noop)
  },
  rankTask,
  bareRanks,
  launch: launchMs,
  bareLaunch,
  bareStart,
  nodes10000: () => placementUs(10_000),
  nodes10: () => placementUs(10),
})

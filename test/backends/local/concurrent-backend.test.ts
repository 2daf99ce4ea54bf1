import { mkdtemp, realpath, rm } from 'node:fs/promises'
import { hostname, tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import type { Job } from '../../../src/backends/backend.ts'
import type { BaseEvent } from '../../../src/events/event.ts'
import {
  ConcurrentBackend,
  type ConcurrentBackendOptions,
} from '../../../src/backends/local/concurrent-backend.ts'
import { usableCores } from '../../../src/backends/local/node-capacity.ts'
import {
  PoisonTaskError,
  StateError,
  TimeoutError,
  ValueError,
} from '../../../src/foundation/errors.ts'
import { ExecutableFailedError } from '../../../src/foundation/task-errors.ts'
import { Session } from '../../../src/session/session.ts'
import { AITask } from '../../../src/tasks/ai-task.ts'
import { currentTask } from '../../../src/foundation/task-context.ts'
import { ComputeTask } from '../../../src/tasks/compute-task.ts'
import { defineTask } from '../../../src/tasks/define-task.ts'
import { backendContract, type ContractTasks } from '../../../src/testing/backend-contract.ts'
import { FakeSession } from '../../../src/testing/fake-backend.ts'
import { RecordingListener } from '../../../src/testing/recorders.ts'
import { where } from './functions/fixtures/functions.ts'
import { die, diverge, seenGpus, spin, square } from './fixtures/backend-tasks.ts'

const create = (options: ConcurrentBackendOptions = {}) =>
  ConcurrentBackend.create({ name: 'local', workers: 2, maxProcesses: 2, ...options })

const closures: ContractTasks = {
  quick: () => new ComputeTask({ function: () => 42 }),
  failing: () =>
    new ComputeTask({
      function: () => {
        throw new RangeError('on purpose')
      },
    }),
  endless: (options = {}) => new ComputeTask({ function: () => new Promise(() => {}), ...options }),
  ownUid: () => new ComputeTask({ function: () => currentTask()?.uid }),
}

const programs: ContractTasks = {
  quick: () => new ComputeTask({ executable: '/bin/true' }),
  failing: () => new ComputeTask({ executable: '/bin/false' }),
  endless: (options = {}) =>
    new ComputeTask({ executable: '/bin/sleep', arguments: ['600'], ...options }),
}

describe('the contract of a backend, kept by ConcurrentBackend', () => {
  describe('with functions on threads', () => backendContract(it, () => create(), { flood: 8 }))
  describe('with functions in processes', () =>
    backendContract(it, () => create({ isolation: 'process' }), { flood: 8 }))
  describe('with programs', () =>
    backendContract(it, () => create(), { tasks: programs, flood: 8 }))
  describe('with closures', () =>
    backendContract(it, () => create(), { tasks: closures, flood: 1200 }))
})

describe('what a connection is given', () => {
  it('submit: what is no job fails alone, and release() settles', async () => {
    await using backend = await create()
    const listener = new RecordingListener()
    const session = new FakeSession()
    const connection = backend.connect(listener, session)
    const good = session.createJob(new ComputeTask({ function: () => 42 }))
    const wrong = [{}, null, { spec: { kind: 'closure' } }] as unknown as Job[]
    connection.submit([...wrong.slice(0, 1), good, ...wrong.slice(1)])
    await listener.ended([good, ...wrong])
    expect(listener.of(good).at(-1)).toMatchObject({ kind: 'complete', value: 42 })
    for (const job of wrong) {
      const error = { name: 'BackendError', message: expect.stringContaining('no job') as string }
      expect(listener.of(job)).toMatchObject([{ kind: 'fail', error }])
    }
    await connection.release('over')
  })
})

async function openSession(options: ConcurrentBackendOptions = {}) {
  const backend = await create(options)
  const session = new Session([backend])
  const telemetry = await session.startTelemetry()
  const events: BaseEvent[] = []
  telemetry.subscribe((event) => void events.push(event))
  const close = async (): Promise<readonly BaseEvent[]> => {
    await session.close()
    return events
  }
  /** Resolves when so many tasks have started. */
  const started = (count: number): Promise<void> =>
    new Promise((resolve) => {
      let left = count
      telemetry.subscribe(({ event_type }) => {
        if (event_type === 'TaskStarted' && --left === 0) resolve()
      })
    })
  return { session, started, close }
}

const lifeOf = (events: readonly BaseEvent[], { uid }: { uid: string }): string[] =>
  events.filter(({ task_id }) => task_id === uid).map(({ event_type }) => event_type)

const full = ['TaskCreated', 'TaskSubmitted', 'TaskQueued', 'TaskStarted', 'TaskCompleted']

describe('a session over ConcurrentBackend', () => {
  it('a session runs functions, closures and programs in parallel, with all events', async () => {
    const { session, close } = await openSession()
    const squares = Array.from({ length: 200 }, (_, x) => {
      return new ComputeTask({ function: square, args: [x] })
    })
    const closure = new ComputeTask({ function: (name: string) => `hello ${name}`, args: ['you'] })
    const program = new ComputeTask({ executable: '/bin/echo', arguments: ['a b', '$HOME'] })
    await session.submitTasks([...squares, closure, program])
    expect(await Promise.all(squares)).toEqual(squares.map((_, x) => x * x))
    expect(await closure).toBe('hello you')
    expect(await program).toEqual({ stdout: 'a b $HOME\n', stderr: '', exitCode: 0 })
    const events = await close()
    for (const task of [...squares, closure, program]) expect(lifeOf(events, task)).toEqual(full)
    const started = events.filter(({ event_type }) => event_type === 'TaskStarted')
    expect(new Set(started.map(({ node_id }) => node_id))).toEqual(new Set([hostname()]))
    expect(new Set(started.map(({ backend }) => backend))).toEqual(new Set(['local']))
  })

  it('failures, time-outs and poison have different causes, and other tasks go on', async () => {
    const { session, close } = await openSession()
    const failing = new ComputeTask({ function: diverge, args: [7] })
    const spinning = new ComputeTask({ function: spin, timeoutSeconds: 0.2 })
    const poison = new ComputeTask({ function: die, retries: 5 })
    const program = new ComputeTask({
      executable: '/bin/sh',
      arguments: ['-c', 'echo oops >&2; exit 3'],
    })
    const tasks = [failing, spinning, poison, program] as const
    await session.submitTasks(tasks)
    await session.waitTasks(tasks)
    expect(failing.error?.cause).toMatchObject({ name: 'RangeError', message: 'bad seed 7' })
    expect(spinning.error?.cause).toBeInstanceOf(TimeoutError)
    expect(poison.error?.cause).toBeInstanceOf(PoisonTaskError)
    expect(program.error).toBeInstanceOf(ExecutableFailedError)
    expect(program.error).toMatchObject({ exitCode: 3, signal: null, stderr: 'oops\n' })
    const after = new ComputeTask({ function: square, args: [5] })
    await session.submitTasks([after])
    expect(await after).toBe(25)
    const events = await close()
    const poisoned = lifeOf(events, poison)
    expect(poisoned.filter((type) => type === 'tutti.TaskAttempt')).toHaveLength(2)
    expect(poisoned.filter((type) => type === 'TaskStarted')).toHaveLength(1)
    expect(poisoned.at(-1)).toBe('TaskFailed')
  })

  it('programs run while the worker of a function that timed out is replaced', async () => {
    await using session = new Session([await create({ workers: 1, maxProcesses: 1, cores: 1 })])
    const hanging = new ComputeTask({ function: spin, timeoutSeconds: 0.2 })
    const next = new ComputeTask({ uid: 'next', function: square, args: [3] })
    const program = new ComputeTask({ uid: 'program', executable: '/bin/true' })
    const order: string[] = []
    await session.submitTasks([hanging, next, program])
    for (const task of [next, program]) void task.then(() => order.push(task.uid))
    await session.waitTasks([hanging, next, program])
    expect(hanging.error?.cause).toBeInstanceOf(TimeoutError)
    expect(order).toEqual(['program', 'next'])
  })

  it('a session that closes ends running tasks before SessionEnded', async () => {
    const { session, started, close } = await openSession()
    const tasks = [
      new ComputeTask({ function: spin }),
      new ComputeTask({ executable: '/bin/sleep', arguments: ['600'] }),
      new ComputeTask({ function: () => new Promise(() => {}) }),
    ] as const
    const running = started(3)
    await session.submitTasks(tasks)
    await running
    expect(tasks.map(({ state }) => state)).toEqual(['RUNNING', 'RUNNING', 'RUNNING'])
    const events = await close()
    expect(tasks.map(({ state }) => state)).toEqual(['CANCELED', 'CANCELED', 'CANCELED'])
    expect(events.at(-1)?.event_type).toBe('SessionEnded')
    expect(events.filter(({ event_type }) => event_type === 'TaskCanceled')).toHaveLength(3)
  })
})

describe('what ConcurrentBackend refuses', () => {
  it('a refusal names the field: prompts, resources, functions of the entry module', async () => {
    await using backend = await create()
    await using session = new Session([backend])
    const entry = process.argv[1] ?? ''
    const main = defineTask(new URL(`file://${entry}`).href, function main() {})
    const refused: [ComputeTask<unknown> | AITask, string, RegExp][] = [
      [new AITask({ prompt: 'a', backend: 'local' }), 'prompt', /runs no prompts/],
      [new ComputeTask({ function: main }), 'function', /entry module/],
      [
        new ComputeTask({ executable: 'x', resources: { cores: 100_000 } }),
        'resources.cores',
        /asks/,
      ],
      [
        new ComputeTask({ executable: 'x', resources: { gpus: 99 } }),
        'resources.gpus',
        /asks for 99, but the node has \d+ \(backend "local"\)$/,
      ],
      [
        new ComputeTask({ executable: 'x', resources: { memoryMb: 1e12 } }),
        'resources.memoryMb',
        /asks/,
      ],
      [new ComputeTask({ executable: 'x', resources: { ranks: 2 } }), 'resources.ranks', /MPI/],
    ]
    for (const [task, field, message] of refused) {
      const error = await session.submitTasks([task]).then(
        () => null,
        (reason: unknown) => reason,
      )
      expect(error).toBeInstanceOf(ValueError)
      expect(error).toMatchObject({ field: `tasks[0].${field}` })
      expect((error as ValueError).message).toMatch(message)
    }
    await backend.close()
    expect(backend.refuse(new ComputeTask({ function: square, args: [1] }).spec)).toEqual({
      field: 'backend',
      message: '"local" is closed',
    })
  })

  it.each([
    [{ workers: 0 }, 'workers'],
    [{ workers: 1.5 }, 'workers'],
    [{ workers: null }, 'workers'],
    [{ maxProcesses: 0 }, 'maxProcesses'],
    [{ maxProcesses: null }, 'maxProcesses'],
    [{ isolation: null }, 'isolation'],
    [{ name: null }, 'name'],
    [{ isolation: 'container' }, 'isolation'],
    [{ name: '' }, 'name'],
    [{ worker: 1 }, 'worker'],
    [{ nodeId: '' }, 'nodeId'],
    [{ cores: 0 }, 'cores'],
    [{ cores: 1.5 }, 'cores'],
    [{ memoryMb: -1 }, 'memoryMb'],
    [{ memoryMb: Number.NaN }, 'memoryMb'],
    [{ gpus: -1 }, 'gpus'],
    [{ gpus: 'all' }, 'gpus'],
    [{ gpus: [0, 'tpu'] }, 'gpus[1]'],
    [{ gpus: [0, 1, 0] }, 'gpus[2]'],
    [{ workDir: '' }, 'workDir'],
    [{ workDir: 'a\0b' }, 'workDir'],
    [{ workDir: '/missing' }, 'workDir'],
    [{ workDir: process.execPath }, 'workDir'],
  ])('wrong options: %j', async (options, field) => {
    await expect(ConcurrentBackend.create(options as object)).rejects.toMatchObject({ field })
  })

  it.each([
    ['processes', {}, []],
    [
      'threads, with a warning, if they are asked for',
      { isolation: 'thread' },
      ['ThreadMemoryLimit'],
    ],
  ] as const)('row 18: `workerMemoryMb` runs functions in %s', async (_, options, warnings) => {
    const codes: string[] = []
    const log = { warn: (code: string) => void codes.push(code) }
    const limits = { workers: 1, workerMemoryMb: 64, log }
    await using session = new Session([await ConcurrentBackend.create({ ...limits, ...options })])
    const task = new ComputeTask({ function: where })
    await session.submitTasks([task])
    expect((await task).pid === process.pid).toBe(warnings.length > 0)
    expect(codes).toEqual(warnings)
  })

  it.each(['workers', 'maxProcesses'] as const)(
    '`%s` above the cores of the machine raises what runs at a time',
    async (option) => {
      const count = usableCores() + 2
      await using session = new Session([await ConcurrentBackend.create({ [option]: count })])
      const folder = await mkdtemp(join(tmpdir(), 'tutti-at-once-'))
      onTestFinished(() => rm(folder, { recursive: true }))
      // Each waits until all have begun.
      const script = 'touch "$0/$1"; while [ "$(ls "$0" | wc -l)" -lt "$2" ]; do sleep 0.02; done'
      const tasks = Array.from({ length: count }, (_, at) => {
        const args = ['-c', script, folder, String(at), String(count)]
        return new ComputeTask({ executable: '/bin/sh', arguments: args })
      })
      await session.submitTasks(tasks)
      await session.waitTasks(tasks)
      expect(tasks.map(({ state }) => state)).toEqual(tasks.map(() => 'DONE'))
    },
  )

  it('ConcurrentBackend runs within its given capacity, under the name of its node', async () => {
    const workDir = await realpath(tmpdir())
    const options = { nodeId: 'node-7', cores: 2, gpus: ['GPU-ab', 'MIG-cd/1'], memoryMb: 512 }
    const backend = await ConcurrentBackend.create({ ...options, workDir })
    await using session = new Session([backend])
    const refused = [
      [{ cores: 3 }, 'asks for 3, but the node has 2'],
      [{ gpus: 3 }, 'asks for 3, but the node has 2'],
      [{ memoryMb: 513 }, 'asks for 513, but the node has 512'],
    ] as const
    for (const [resources, message] of refused) {
      const { spec } = new ComputeTask({ executable: '/bin/pwd', resources })
      expect(backend.refuse(spec)?.message).toBe(message)
    }
    expect(backend.nodes.map(({ nodeId }) => nodeId)).toEqual(['node-7'])
    const telemetry = await session.startTelemetry()
    const seen = new Set<string>()
    telemetry.subscribe(({ event_type, node_id, attributes }) => {
      if (event_type === 'TaskStarted') seen.add(`${node_id} ${String(attributes['worker_id'])}`)
    })
    const program = new ComputeTask({
      executable: '/bin/sh',
      arguments: ['-c', 'echo "$CUDA_VISIBLE_DEVICES"; pwd'],
      resources: { gpus: 2 },
    })
    const tasks = [
      program,
      new ComputeTask({ function: square, args: [2] }),
      new ComputeTask({ function: () => 1 }),
    ]
    await session.submitTasks(tasks)
    await session.waitTasks(tasks)
    await telemetry.flush()
    expect(program.stdout).toBe(`GPU-ab,MIG-cd/1\n${workDir}\n`)
    expect([...seen].toSorted()).toEqual([
      'node-7 node-7/concurrent/main',
      'node-7 node-7/concurrent/p1',
      'node-7 node-7/concurrent/w1',
    ])
  })

  it('workers of two backends on one node have different ids', async () => {
    const backends = [await create({ name: 'a' }), await create({ name: 'b' })]
    await using session = new Session(backends)
    const telemetry = await session.startTelemetry()
    const seen = new Set<string>()
    telemetry.subscribe(({ event_type, attributes }) => {
      if (event_type === 'TaskStarted') seen.add(String(attributes['worker_id']))
    })
    const tasks = backends.flatMap(({ name: backend }) => [
      new ComputeTask({ function: square, args: [2], backend }),
      new ComputeTask({ executable: 'true', backend }),
      new ComputeTask({ function: () => 1, backend }),
    ])
    await session.submitTasks(tasks)
    await session.waitTasks(tasks)
    await telemetry.flush()
    expect(seen.size).toBe(tasks.length)
  })

  it('ConcurrentBackend replaces a worker process before it is shown other GPUs', async () => {
    const backend = await create({ isolation: 'process', gpus: [0, 1], cores: 2 })
    await using session = new Session([backend])
    const show = (gpus: number) => new ComputeTask({ function: seenGpus, resources: { gpus } })
    const shown = new Map<number, Set<string>>()
    for (const gpus of [1, 2, 1, 0, 2, 2]) {
      const task = show(gpus)
      await session.submitTasks([task])
      const [pid, seen] = await task
      expect(seen.split(',')).toHaveLength(Math.max(1, gpus))
      if (gpus > 0) shown.set(pid, (shown.get(pid) ?? new Set()).add(seen))
    }
    const counts = [...shown.values()].map(({ size }) => size)
    expect(counts).toEqual(counts.map(() => 1))
  })

  it("ConcurrentBackend gives each program its GPUs, also by Intel's variable", async () => {
    vi.stubEnv('CUDA_VISIBLE_DEVICES', '3,5,5')
    vi.stubEnv('ZE_AFFINITY_MASK', '3,5')
    try {
      await using session = new Session([await create({ maxProcesses: 4 })])
      const show = (gpus: number) =>
        new ComputeTask({
          executable: '/bin/sh',
          arguments: ['-c', 'echo "$CUDA_VISIBLE_DEVICES $ZE_AFFINITY_MASK"'],
          resources: { gpus },
        })
      const [one, both] = [show(1), show(2)]
      await session.submitTasks([one, both])
      expect([(await one).stdout, (await both).stdout]).toEqual(['3 3\n', '3,5 3,5\n'])
      await expect(session.submitTasks([show(3)])).rejects.toMatchObject({
        field: 'tasks[0].resources.gpus',
      })
    } finally {
      vi.unstubAllEnvs()
    }
  })
})

it('the constructor, which JavaScript can call, names `create`', () => {
  const Constructor = ConcurrentBackend as unknown as new (options: object) => ConcurrentBackend
  expect(() => new Constructor({})).toThrow(StateError)
  expect(() => new Constructor({})).toThrow('`create`')
})

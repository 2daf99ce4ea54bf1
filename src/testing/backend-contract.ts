/** The contract of a backend as one callable suite. The test of every backend calls it. */

import assert from 'node:assert/strict'
import type { AnyTask, Backend, Connection, Job } from '../backends/backend.ts'
import { systemClock } from '../foundation/clock.ts'
import { TimeoutError } from '../foundation/errors.ts'
import { boundedWait } from '../foundation/promises.ts'
import { ComputeTask } from '../tasks/compute-task.ts'
import { echo, fail, ownUid, wait } from './contract-tasks.ts'
import { FakeSession } from './fake-backend.ts'
import { RecordingListener } from './recorders.ts'

/** The function `test` or `it` of a test runner. */
export type ContractTest = (name: string, body: () => Promise<void>) => unknown

/** The tasks that the suite submits. Default: functions that a worker can import. */
export interface ContractTasks {
  /** Creates a task that soon completes with a value. */
  quick(): AnyTask
  /** Creates a task that soon fails. */
  failing(): AnyTask
  /** Creates a task that runs until it is stopped from outside. */
  endless(options?: { readonly timeoutSeconds?: number }): AnyTask
  /**
   * Creates a task whose value is `currentTask()?.uid`. Left out if tasks cannot call this library.
   */
  ownUid?(): AnyTask
}

/** Options that adapt `backendContract` to one backend. */
export interface ContractOptions {
  /** Names of cases that cannot pass for this backend, each with the reason. */
  readonly skip?: Readonly<Record<string, string>>
  readonly tasks?: ContractTasks
  /** The number of endless tasks that occupy all slots of the backend. Default 64. */
  readonly flood?: number
}

const functionTasks: ContractTasks = {
  quick: () => new ComputeTask({ function: echo, args: [42] }),
  failing: () => new ComputeTask({ function: fail, args: ['on purpose'] }),
  endless: (options = {}) => new ComputeTask({ function: wait, ...options }),
  ownUid: () => new ComputeTask({ function: ownUid }),
}

interface BackendFixture {
  readonly backend: Backend
  readonly listener: RecordingListener
  readonly connection: Connection
  readonly tasks: ContractTasks
  readonly flood: number
  readonly job: (task: AnyTask) => Job
}

/** The name of the case that is skipped for backends whose tasks cannot call `currentTask()`. */
const currentTaskCase = 'runs code inside its task'

const backendCases: Readonly<Record<string, (fixture: BackendFixture) => Promise<void>>> = {
  'runs a task and reports its end once': async ({ listener, connection, tasks, job }) => {
    const one = job(tasks.quick())
    connection.submit([one])
    await listener.ended([one])
    assert.deepEqual(listener.kindsOf(one), ['start', 'complete'])
  },
  'ends each of many tasks exactly once': async ({ listener, connection, tasks, job }) => {
    const many = Array.from({ length: 500 }, () => job(tasks.quick()))
    connection.submit(many)
    await listener.ended(many)
    for (const one of many) assert.equal(countFinalReports(listener, one), 1)
  },
  'reports a failure with the original error': async ({ listener, connection, tasks, job }) => {
    const one = job(tasks.failing())
    connection.submit([one])
    await listener.ended([one])
    const last = listener.of(one).at(-1)
    assert.ok(last?.kind === 'fail' && last.error instanceof Error)
  },
  [currentTaskCase]: async ({ listener, connection, tasks, job }) => {
    const one = job(tasks.ownUid?.() ?? tasks.quick())
    connection.submit([one])
    await listener.ended([one])
    const last = listener.of(one).at(-1)
    assert.ok(last?.kind === 'complete')
    assert.equal(last.value, one.uid, 'expected `currentTask()` to be the task: use `runInTask`')
  },
  'ends a running task that is canceled': async ({ listener, connection, tasks, job }) => {
    const one = job(tasks.endless())
    connection.submit([one])
    await listener.started(one)
    connection.cancel(one, 'enough')
    await listener.ended([one])
    assert.deepEqual(listener.kindsOf(one), ['start', 'cancel'])
  },
  'never begins a task that is canceled while it waits': async (fixture) => {
    const { listener, connection, tasks, job, flood } = fixture
    const blocking = Array.from({ length: flood }, () => job(tasks.endless()))
    const waiting = job(tasks.quick())
    connection.submit([...blocking, waiting])
    connection.cancel(waiting, 'not needed')
    await listener.ended([waiting])
    assert.deepEqual(listener.kindsOf(waiting), ['cancel'])
    for (const one of blocking) connection.cancel(one, 'enough')
    await listener.ended(blocking)
    for (const one of blocking) assert.equal(countFinalReports(listener, one), 1)
  },
  'ignores a cancel that comes after the end': async ({ listener, connection, tasks, job }) => {
    const [one, next] = [job(tasks.quick()), job(tasks.quick())]
    connection.submit([one])
    await listener.ended([one])
    connection.cancel(one, 'too late')
    connection.submit([next])
    await listener.ended([next])
    assert.equal(countFinalReports(listener, one), 1)
  },
  'accepts that ends are recorded, in batches, and continues': async (fixture) => {
    const { listener, connection, tasks, job } = fixture
    const first = [job(tasks.quick()), job(tasks.failing()), job(tasks.endless())] as const
    connection.submit(first)
    await listener.started(first[2])
    connection.cancel(first[2], 'enough')
    await listener.ended(first)
    connection.recorded?.([first[0], first[1]])
    connection.recorded?.([])
    const next = job(tasks.quick())
    connection.submit([next])
    connection.recorded?.([first[2]])
    await listener.ended([next])
    connection.recorded?.([next])
    assert.equal(listener.kindsOf(next).at(-1), 'complete')
    for (const one of first) assert.equal(countFinalReports(listener, one), 1)
  },
  'fails a task that runs longer than its limit': async (fixture) => {
    const { listener, connection, tasks, job } = fixture
    const one = job(tasks.endless({ timeoutSeconds: 0.05 }))
    connection.submit([one])
    await listener.ended([one])
    const last = listener.of(one).at(-1)
    assert.ok(last?.kind === 'fail' && last.error instanceof TimeoutError)
  },
  'leaves other clients alone when one is released': async (fixture) => {
    const { backend, listener, connection, tasks, job } = fixture
    const other = new RecordingListener()
    const session = new FakeSession('other-session')
    const shared = backend.connect(other, session)
    const [mine, theirs] = [job(tasks.endless()), session.createJob(tasks.endless())]
    connection.submit([mine])
    shared.submit([theirs])
    await Promise.all([listener.started(mine), other.started(theirs)])
    await connection.release('done here')
    assert.equal(listener.of(mine).at(-1)?.kind, 'cancel')
    assert.equal(other.hasEnded(theirs), false)
    await shared.release('done too')
    assert.equal(other.of(theirs).at(-1)?.kind, 'cancel')
  },
  'cancels everything when it is closed, and says so': async (fixture) => {
    const { backend, listener, connection, tasks, job, flood } = fixture
    const many = Array.from({ length: flood }, () => job(tasks.endless()))
    connection.submit(many)
    await listener.until(() => many.some((one) => listener.of(one).length > 0))
    await backend.close()
    for (const one of many) assert.equal(listener.of(one).at(-1)?.kind, 'cancel')
    for (const one of many) assert.equal(countFinalReports(listener, one), 1)
  },
  'cancels what comes after it was closed': async (fixture) => {
    const { backend, listener, connection, tasks, job } = fixture
    const closing = backend.close()
    assert.equal(backend.close(), closing)
    await closing
    const lateJob = job(tasks.quick())
    connection.submit([lateJob])
    await listener.ended([lateJob])
    assert.deepEqual(listener.kindsOf(lateJob), ['cancel'])
  },
}

/**
 * Declares one test per case of the contract. `create` must return a new backend each time.
 *
 * @example
 * import { it } from 'vitest' // or `test` of node:test
 * backendContract(it, () => MyBackend.create(), {
 *   tasks: {
 *     quick: () => new ComputeTask({ executable: 'true' }),
 *     failing: () => new ComputeTask({ executable: 'false' }),
 *     endless: (options) => {
 *       return new ComputeTask({ executable: 'sleep', arguments: ['600'], ...options })
 *     },
 *   },
 * })
 */
export function backendContract(
  test: ContractTest,
  create: () => Backend | Promise<Backend>,
  options: ContractOptions = {},
): void {
  const { skip = {}, tasks = functionTasks, flood = 64 } = options
  const unknown = Object.keys(skip).find((name) => !(name in backendCases))
  assert.equal(unknown, undefined, `the contract has no case "${unknown}"`)
  for (const [name, body] of Object.entries(backendCases)) {
    if (name in skip || (name === currentTaskCase && tasks.ownUid === undefined)) continue
    test(name, async () => {
      const backend = await create()
      const listener = new RecordingListener()
      try {
        const session = new FakeSession()
        const connection = backend.connect(listener, session)
        const job = (task: AnyTask): Job => session.createJob(task)
        const fixture = { backend, listener, connection, session, tasks, flood, job }
        await boundedWait(systemClock, caseTimeoutMs, body(fixture))
      } finally {
        await boundedWait(systemClock, caseTimeoutMs, backend.close())
      }
      for (let at = 0; at < lateReportTurns; at++) {
        await new Promise<void>((resolve) => systemClock.nextTurn(resolve))
      }
      for (const job of listener.jobs) assert.match(listener.kindsOf(job).join(' '), validReports)
    })
  }
}

const caseTimeoutMs = 60_000
/** How many turns of the event loop to wait after `close`, to detect reports that come too late. */
const lateReportTurns = 3
const validReports = /^(?:start )?(?:complete|fail|cancel)$/

function countFinalReports(listener: RecordingListener, job: Job): number {
  return listener.kindsOf(job).filter((kind) => kind !== 'start').length
}

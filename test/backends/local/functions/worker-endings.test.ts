import { describe, expect, it } from 'vitest'
import type { Job } from '../../../../src/backends/backend.ts'
import { TimeoutError } from '../../../../src/foundation/errors.ts'
import { ManualClock } from '../../../../src/testing/manual-clock.ts'
import {
  add,
  echo,
  exitIf,
  never,
  spin,
  spinIf,
  spinInResult,
  waitFor,
  where,
} from './fixtures/functions.ts'
import { advanceUntil, errorOf, PoolDriver, toJob, valueOf } from './pool-driver.ts'

describe.for(['thread', 'process'] as const)('how jobs end, isolation %s', (isolation) => {
  const open = (options = {}): PoolDriver => new PoolDriver({ isolation, size: 1, ...options })

  it('row 17: a function that spins is ended by its time-out while others go on', async () => {
    const driver = open({ size: 2 })
    const [spinning] = driver.submit(spin, [[]], { timeoutSeconds: 0.2 })
    const [hanging] = driver.submit(never, [[]], { timeoutSeconds: 0.2 })
    const others = driver.submit(add, [
      [1, 1],
      [2, 2],
    ])
    const error = errorOf(await driver.ended(spinning))
    expect(error).toBeInstanceOf(TimeoutError)
    expect(error.message).toContain('0.2 s')
    expect(errorOf(await driver.ended(hanging))).toBeInstanceOf(TimeoutError)
    expect((await driver.allEnded(others)).map(valueOf)).toEqual([2, 4])
    expect(driver.reportsOf(spinning).map(({ kind }) => kind)).toEqual(['start', 'fail'])
    expect(driver.notices).toEqual([])
    await driver.expectAllOver()
  })

  it('row 17: a result that never comes is ended by the time-out, too', async () => {
    const driver = open()
    const [spinning] = driver.submit(spinInResult, [[]], { timeoutSeconds: 0.2 })
    const [next] = driver.submit(add, [[1, 1]])
    expect(errorOf(await driver.ended(spinning))).toBeInstanceOf(TimeoutError)
    expect(driver.reportsOf(spinning).map(({ kind }) => kind)).toEqual(['start', 'fail'])
    expect(valueOf(await driver.ended(next))).toBe(2)
    await driver.expectAllOver()
  })

  it('row 23: a job that was canceled before it began never runs', async () => {
    const driver = open()
    const [first, second, third] = driver.submit(echo, [[1], [2], [3]])
    driver.cancel(first, 'too early')
    expect(await driver.ended(first)).toEqual({ kind: 'cancel', reason: 'too early' })
    expect(driver.reportsOf(first)).toHaveLength(1)
    expect((await driver.allEnded([second, third])).map(valueOf)).toEqual([2, 3])
    await driver.expectAllOver()
  })

  it('row 23: a running job is stopped, and the next runs on a new worker', async () => {
    const driver = open()
    const { pid } = valueOf(await driver.run(where)) as { pid: number }
    const [running, next] = [...driver.submit(spin, [[]]), ...driver.submit(where, [[]])] as [
      Job,
      Job,
    ]
    await driver.started(running)
    driver.cancel(running, 'enough')
    driver.cancel(running, 'twice')
    const report = await driver.ended(running)
    expect(report).toMatchObject({ kind: 'cancel', reason: 'enough', facts: { workerId: 'n/w1' } })
    const after = await driver.ended(next)
    expect(after.facts?.workerId).toBe('n/w2')
    if (isolation === 'process') {
      expect((valueOf(after) as { pid: number }).pid).not.toBe(pid)
      expect(() => process.kill(pid, 0)).toThrow('ESRCH')
    }
    driver.cancel(running, 'after the end')
    expect(driver.reportsOf(running)).toHaveLength(2)
    expect(driver.notices).toEqual([])
    await driver.expectAllOver()
  })

  it('a pool that closes cancels everything once, and is complete then', async () => {
    const driver = open({ size: 2, batchSize: isolation === 'thread' ? 3 : 1 })
    const { pid } = valueOf(await driver.run(where)) as { pid: number }
    const jobs = driver.submit(
      spin,
      Array.from({ length: isolation === 'thread' ? 6 : 2 }, () => []),
    )
    await driver.started(jobs[0] as Job)
    const closing = driver.pool.close('the end')
    expect(driver.pool.close('again')).toBe(closing)
    await closing
    // Jobs returned earlier belong to the scheduler.
    for (const job of jobs) driver.cancel(job, 'the end')
    for (const report of await driver.allEnded(jobs)) {
      expect(report).toMatchObject({ kind: 'cancel', reason: 'the end' })
    }
    expect(driver.pool.freeSlots).toBe(0)
    expect(driver.notices).toEqual([])
    if (isolation === 'process') expect(() => process.kill(pid, 0)).toThrow('ESRCH')
    await driver.expectAllOver()
    const late = { ...(jobs[0] as Job), uid: 'late', attempt: 2 }
    driver.enqueue([late])
    driver.assign({ jobs: [late], gpuIds: [] })
    expect(await driver.ended(late)).toEqual({ kind: 'cancel', reason: 'the end' })
  })

  it('a pool that never ran a job can be closed', async () => {
    await open().pool.close('unused')
  })
})

describe('long jobs among short ones, on threads', () => {
  it('a worker is replaced only for jobs that wait, and they wait outside the pool', async () => {
    const driver = new PoolDriver({ size: 2 })
    const ended = driver.submit(exitIf, [[true], [true]])
    await driver.allEnded(ended)
    const { pool } = driver
    expect([pool.canPrepare, pool.isPreparing, pool.freeSlots]).toEqual([true, false, 0])
    const batches = driver.batchSizes.length
    const [job] = driver.submit(where, [[]])
    expect([pool.isPreparing, pool.canPrepare]).toEqual([true, true])
    expect(driver.batchSizes).toHaveLength(batches)
    const { facts } = await driver.ended(job)
    expect(facts?.workerId).toMatch(/w3$/)
    expect(pool.isPreparing).toBe(false)
    await driver.expectAllOver()
  })

  it('a job behind a long one moves to another worker', async () => {
    const driver = new PoolDriver({ size: 2, batchSize: 3 })
    const flags = new Int32Array(new SharedArrayBuffer(8))
    const long = toJob(waitFor, [flags, 1])
    const short = [toJob(echo, ['a']), toJob(echo, ['b'])]
    driver.enqueue([long, ...short])
    expect(driver.batchSizes).toEqual([3])
    expect((await driver.allEnded(short)).map(valueOf)).toEqual(['a', 'b'])
    expect(driver.givenBack.slice(0, 2)).toEqual(short.map(({ uid }) => uid))
    expect(driver.reportsOf(long).map(({ kind }) => kind)).toEqual(['start'])
    Atomics.store(flags, 1, 1)
    expect(valueOf(await driver.ended(long))).toBe('waited')
    expect(Atomics.load(flags, 0)).toBe(1)
    await driver.expectAllOver()
  })

  it('row 17: finished jobs of a batch keep their results, the rest runs elsewhere', async () => {
    const clock = new ManualClock()
    const driver = new PoolDriver({ size: 1, batchSize: 4, clock })
    const list = [[false, 'a'], [false, { b: 1 }], [true], [false, 'd']] as const
    const jobs = driver.submit(spinIf, list, { timeoutSeconds: 600 })
    await advanceUntil(clock, () => driver.reportsOf(jobs[2]).length > 0)
    await clock.advance(600_000)
    const [a, b, spun, d] = await driver.allEnded(jobs)
    expect([valueOf(a), valueOf(b), valueOf(d)]).toEqual(['a', { b: 1 }, 'd'])
    expect(errorOf(spun)).toBeInstanceOf(TimeoutError)
    // A slow import may have sent back the others before, too.
    expect(driver.givenBack).toContain(jobs[3]?.uid)
    await driver.expectAllOver()
  })

  it('the time-out counts from the start of the execution, by the pool’s clock', async () => {
    const clock = new ManualClock()
    const driver = new PoolDriver({ size: 1, clock })
    const [job] = driver.submit(never, [[]], { timeoutSeconds: 600 })
    await advanceUntil(clock, () => driver.reportsOf(job).length > 0)
    await clock.advance(599_000)
    expect(driver.reportsOf(job)).toHaveLength(1)
    await clock.advance(2000)
    expect(errorOf(await driver.ended(job))).toBeInstanceOf(TimeoutError)
    await driver.pool.close('done')
    expect(clock.pendingTimers).toBe(0)
  })
})

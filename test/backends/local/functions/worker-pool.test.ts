import { describe, expect, it } from 'vitest'
import { systemClock } from '../../../../src/foundation/clock.ts'
import { byRun } from '../../../long-run.ts'
import {
  add,
  addLater,
  busyMs,
  echo,
  gpus,
  growing,
  keep,
  nothing,
  thenable,
  uidOfTask,
  where,
} from './fixtures/functions.ts'
import { PoolDriver, valueOf } from './pool-driver.ts'

describe.for(['thread', 'process'] as const)('a pool with isolation %s', (isolation) => {
  const open = (options = {}): PoolDriver => new PoolDriver({ isolation, ...options })

  it('a pool runs functions on a worker and reports their start, then their end', async () => {
    const driver = open()
    const before = systemClock.now()
    const [job] = driver.submit(add, [[2, 3]])
    expect(valueOf(await driver.ended(job))).toBe(5)
    const [start, end, ...more] = driver.reportsOf(job)
    expect(start).toMatchObject({ kind: 'start', workerId: 'n/w1', nodeId: 'n' })
    expect(end).toMatchObject({ kind: 'complete', value: 5, facts: { workerId: 'n/w1' } })
    expect(more).toEqual([])
    const [startedAt = 0, endedAt = 0] = [start?.at?.wallSeconds, end?.at?.wallSeconds]
    expect(before).toBeLessThanOrEqual(startedAt)
    expect(startedAt).toBeLessThanOrEqual(endedAt)
    expect(endedAt).toBeLessThanOrEqual(systemClock.now())
    await driver.expectAllOver()
    const place = valueOf(await driver.run(where)) as { pid: number; threadId: number }
    expect(place.pid === process.pid).toBe(isolation === 'thread')
  })

  it('a pool waits for promises and thenables', async () => {
    const driver = open()
    expect(valueOf(await driver.run(addLater, 1, 2))).toBe(3)
    expect(valueOf(await driver.run(thenable, 'x'))).toBe('x')
    expect(valueOf(await driver.run(echo, 9))).toBe(9)
  })

  it('a pool runs a function inside its task', async () => {
    const driver = open()
    const jobs = driver.submit(uidOfTask, [[], [], []])
    const uids = (await driver.allEnded(jobs)).map(valueOf)
    expect(uids).toEqual(jobs.map(({ uid }) => [uid, uid]))
  })

  it('a pool returns every kind of value unchanged', async () => {
    const values = [
      undefined,
      null,
      true,
      false,
      0,
      -0,
      Number.NaN,
      Infinity,
      12.5,
      10n,
      '',
      'short',
      'lone \uD800 surrogate, 𝄞',
      'x'.repeat(5000),
      { a: [1, new Map([['k', new Set([2])]])], when: new Date(5) },
      new Uint8Array([1, 2, 3]),
      [],
    ]
    const driver = open({ batchSize: isolation === 'thread' ? values.length : 1 })
    const jobs = driver.submit(
      echo,
      values.map((value) => [value]),
    )
    const returned = (await driver.allEnded(jobs)).map(valueOf)
    expect(returned).toEqual(values)
    expect(Object.is(returned[5], -0)).toBe(true)
  })

  it('CUDA_VISIBLE_DEVICES is that of the batch, else that of the parent', async () => {
    const driver = open({ size: 1 })
    const parents = process.env['CUDA_VISIBLE_DEVICES'] ?? 'none'
    expect(valueOf(await driver.run(gpus))).toBe(parents)
    expect(valueOf(await driver.runWithGpus(gpus, [1, 3]))).toBe('1,3')
    expect(valueOf(await driver.run(gpus))).toBe(parents)
  })

  it('a pool reports the end of each of many jobs once', async () => {
    const count = isolation === 'thread' ? byRun(3000, 10_000) : byRun(200, 500)
    const driver = open()
    const jobs = driver.submit(
      add,
      Array.from({ length: count }, (_, at) => [at, 1] as const),
    )
    const values = (await driver.allEnded(jobs)).map(valueOf)
    expect(values).toEqual(jobs.map((_, at) => at + 1))
    await driver.expectAllOver()
    expect(driver.notices).toEqual([])
  })
})

describe('a pool of threads', () => {
  it('batches under backlog, and not when few wait', async () => {
    const driver = new PoolDriver()
    await driver.allEnded(
      driver.submit(
        nothing,
        Array.from({ length: 5000 }, () => []),
      ),
    )
    expect(driver.batchSizes[0]).toBe(1)
    expect(Math.max(...driver.batchSizes)).toBeGreaterThan(50)
    driver.batchSizes.length = 0
    await driver.run(nothing)
    expect(driver.batchSizes).toEqual([1])
  })

  it('a pool of threads starts no more workers than it needs', async () => {
    const driver = new PoolDriver({ size: 8 })
    const ids = new Set<string | undefined>()
    for (let run = 0; run < 5; run++) ids.add((await driver.run(nothing)).facts?.workerId)
    expect([...ids]).toEqual(['n/w1'])
  })

  it('a pool of threads gives each job of a batch arguments of its own', async () => {
    const driver = new PoolDriver({ batchSize: 3 })
    const list = [1]
    const jobs = driver.submit(keep, [
      [list, 2],
      [list, 3],
      [list, 4],
    ])
    expect((await driver.allEnded(jobs)).map(valueOf)).toEqual([2, 2, 2])
    expect(list).toEqual([1])
  })

  it('a result is copied when the function returns', async () => {
    const driver = new PoolDriver({ size: 1, batchSize: 3 })
    const jobs = driver.submit(growing, [[1], [2], [3]])
    const values = (await driver.allEnded(jobs)).map(valueOf)
    expect(values).toEqual([[1], [1, 2], [1, 2, 3]])
  })

  it('a pool of threads reports results before the batch is over', async () => {
    const driver = new PoolDriver({ size: 1, batchSize: 2 })
    const [quick, long] = driver.submit(busyMs, [[5], [300]])
    const first = await Promise.race([driver.ended(quick), driver.ended(long)])
    expect(valueOf(first)).toBe(5)
    expect(driver.reportsOf(long).some(({ kind }) => kind === 'complete')).toBe(false)
    expect(valueOf(await driver.ended(long))).toBe(300)
  })
})

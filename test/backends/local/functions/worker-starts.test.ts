import { execFileSync } from 'node:child_process'
import { mkdtempSync, readFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { ConcurrentBackend } from '../../../../src/backends/local/concurrent-backend.ts'
import type { BaseEvent } from '../../../../src/events/event.ts'
import { BackendThrottled, WorkerLost } from '../../../../src/events/library-events.ts'
import { Session } from '../../../../src/session/session.ts'
import { ComputeTask } from '../../../../src/tasks/compute-task.ts'
import { ManualClock } from '../../../../src/testing/manual-clock.ts'
import { eventually } from '../../../eventually.ts'
import { add, blockNatively, deafen, echo, nothing } from './fixtures/functions.ts'
import { advanceUntil, errorOf, PoolDriver, valueOf } from './pool-driver.ts'

const isolations = ['thread', 'process'] as const

describe.for(isolations)('workers that do not start, isolation %s', (isolation) => {
  it('row 22: starts that fail come with growing delays, one at a time', async () => {
    const clock = new ManualClock()
    const program = new URL('fixtures/crash-at-start.ts', import.meta.url)
    const driver = new PoolDriver({ isolation, size: 3, clock, program })
    const jobs = driver.submit(nothing, [[], [], [], []])
    const lost = (): number => noticesOf(driver, WorkerLost).length
    await eventually(() => expect(lost()).toBe(3))
    expect(driver.pool.refusal()).toBeNull()
    let starts = 3
    for (const delayMs of [1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]) {
      expect(noticesOf(driver, BackendThrottled)).toHaveLength(starts - 2)
      expect(driver.pool.freeSlots).toBe(0)
      await clock.advance(delayMs - 1)
      expect(lost()).toBe(starts)
      await clock.advance(1)
      starts++
      await eventually(() => expect(lost()).toBe(starts))
      if (starts < 5) expect(driver.pool.refusal()).toBeNull()
      else expect(driver.pool.refusal()).toMatchObject({ code: 'WorkersDoNotStartError' })
    }
    expect(driver.warnings).toEqual(['WorkersDoNotStart'])
    for (const job of jobs) expect(driver.reportsOf(job)).toEqual([])
    const throttled = noticesOf(driver, BackendThrottled)
    const reason = expect.stringMatching(/cannot start.*the next one is started in 1 s/) as string
    expect(throttled[0]).toMatchObject({ fields: { reason } })
    expect(throttled.at(-1)).toMatchObject({ fields: { limit: 0 } })
    await driver.pool.close('enough')
    expect(clock.pendingTimers).toBe(0)
  })
})

describe('workers that die while they start', () => {
  it('row 112: queued jobs wait until workers start again, without a retry', async () => {
    const events: BaseEvent[] = []
    const backend = await ConcurrentBackend.create({ isolation: 'process', workers: 5 })
    const session = new Session([backend])
    onTestFinished(() => session.close())
    const telemetry = await session.startTelemetry()
    telemetry.subscribe((event) => void events.push(event))
    const options = process.env['NODE_OPTIONS']
    const restore = (): void => {
      if (options === undefined) delete process.env['NODE_OPTIONS']
      else process.env['NODE_OPTIONS'] = options
    }
    onTestFinished(restore)
    process.env['NODE_OPTIONS'] = '--import "data:text/javascript,process.exit(7)"'
    const tasks = Array.from({ length: 200 }, (_, at) => {
      return new ComputeTask({ function: add, args: [at, 1] })
    })
    await session.submitTasks(tasks)
    const late = new ComputeTask({ function: add, args: [1, 1] })
    await eventually(() => {
      const lost = events.filter(({ event_type }) => event_type === 'tutti.WorkerLost')
      expect(lost.length).toBeGreaterThanOrEqual(5)
    })
    await expect(session.submitTasks([late])).rejects.toMatchObject({
      code: 'WorkersDoNotStartError',
      message: expect.stringContaining('code 7') as string,
    })
    restore()
    expect(await Promise.all(tasks)).toEqual(tasks.map((_, at) => at + 1))
    await session.submitTasks([late])
    expect(await late).toBe(2)
    await telemetry.flush()
    const types = new Set(events.map(({ event_type }) => event_type))
    expect(types).toContain('tutti.BackendThrottled')
    expect(types).not.toContain('tutti.TaskAttempt')
    expect(types).not.toContain('TaskFailed')
  })
})

describe.for(isolations)('workers that do not answer, isolation %s', (isolation) => {
  it('row 114: a job that a worker does not begin goes to a new one, without cost', async () => {
    const clock = new ManualClock()
    const driver = new PoolDriver({ isolation, size: 1, beginDeadlineMs: 50, clock })
    const deaf = (await driver.run(deafen)).facts?.workerId
    const [job] = driver.submit(echo, [['begun']])
    // The start of a worker is checked as the clock advances: the next one has all the time it
    // needs.
    await advanceUntil(clock, () => driver.notices.length > 0)
    const report = await driver.ended(job)
    expect(valueOf(report)).toBe('begun')
    expect(report.facts?.workerId).not.toBe(deaf)
    expect(driver.reportsOf(job).map(({ kind }) => kind)).toEqual(['start', 'complete'])
    const reason = expect.stringContaining('did not begin a job within 0.05 s') as string
    expect(driver.notices).toMatchObject([{ fields: { worker_id: deaf, reason, tasks: [] } }])
    await driver.expectAllOver()
  })
})

it('row 114: a job that five workers in turn do not begin fails', async () => {
  const program = new URL('fixtures/deaf-at-start.ts', import.meta.url)
  const clock = new ManualClock()
  const driver = new PoolDriver({ size: 1, beginDeadlineMs: 50, program, clock })
  const [job] = driver.submit(echo, [['unread']])
  while (driver.reportsOf(job).length === 0) await clock.advance(100)
  const error = errorOf(await driver.ended(job))
  expect(error.message).toContain('5 workers in turn did not begin')
  expect(noticesOf(driver, WorkerLost)).toHaveLength(5)
  await driver.expectAllOver()
})

it('row 114: a worker process that is stopped while it starts is replaced', async () => {
  const clock = new ManualClock()
  const driver = new PoolDriver({ isolation: 'process', size: 1, clock })
  const before = children()
  const [job] = driver.submit(echo, [['begun']])
  const pid = children().find((one) => !before.includes(one))
  process.kill(Number(pid), 'SIGSTOP')
  await clock.advance(60_000)
  await driver.noticed(1)
  const reason = expect.stringContaining('not ready within 60 s') as string
  expect(driver.notices[0]).toMatchObject({ fields: { worker_id: 'n/w1', reason, tasks: [] } })
  await clock.advance(1000)
  expect(valueOf(await driver.ended(job))).toBe('begun')
  expect(driver.reportsOf(job).map(({ kind }) => kind)).toEqual(['start', 'complete'])
})

describe('a thread inside of a native call', () => {
  async function block(options: object) {
    const clock = new ManualClock()
    const file = join(mkdtempSync(join(tmpdir(), 'tutti-')), 'pid')
    const driver = new PoolDriver({ size: 1, clock })
    const [job] = driver.submit(blockNatively, [[file]], options)
    const pid = await eventually(() => Number(readFileSync(file, 'utf8')))
    onTestFinished(() => void execFileSync('kill', [String(pid)]))
    await advanceUntil(clock, () => driver.reportsOf(job).length > 0)
    return { clock, driver, job }
  }

  it.for(['cancel', 'time-out'] as const)(
    'row 109: a %s ends the task after a grace, and the worker is replaced',
    async (how) => {
      const { clock, driver, job } = await block(how === 'cancel' ? {} : { timeoutSeconds: 900 })
      if (how === 'cancel') driver.cancel(job, 'enough')
      else await clock.advance(900_000 - 5000)
      await clock.advance(4000)
      expect(driver.reportsOf(job)).toHaveLength(1)
      await clock.advance(6020)
      const report = await driver.ended(job)
      expect(report.kind).toBe(how === 'cancel' ? 'cancel' : 'fail')
      expect(driver.notices).toMatchObject([
        {
          type: WorkerLost,
          fields: {
            worker_id: 'n/w1',
            tasks: [job.uid],
            reason: expect.stringMatching(
              /left behind in this state: 1; this process can exit only/,
            ) as string,
          },
        },
      ])
      const next = await driver.run(echo, 'next')
      expect([valueOf(next), next.facts?.workerId]).toEqual(['next', 'n/w2'])
      await driver.pool.close('done')
      await driver.expectAllOver()
    },
  )
})

const noticesOf = (driver: PoolDriver, type: unknown) =>
  driver.notices.filter((notice) => notice.kind === 'event' && notice.type === type)

const children = (): string[] =>
  readFileSync(`/proc/self/task/${process.pid}/children`, 'utf8').trim().split(' ')

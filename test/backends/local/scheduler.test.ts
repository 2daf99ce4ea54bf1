import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { Job } from '../../../src/backends/backend.ts'
import type { ExecutorKind } from '../../../src/backends/local/scheduled-jobs.ts'
import { FakeSession } from '../../../src/testing/fake-backend.ts'
import { RecordingListener } from '../../../src/testing/recorders.ts'
import { jobOf, jobsOf, openScheduler, uids } from './fake-executor.ts'
import { assertProperty } from '../../property.ts'

const ask = (uid: string, resources: object, priority = 0): Job =>
  jobOf(uid, { resources, priority })

describe('the order in which jobs begin', () => {
  it('jobs begin in the order of arrival while cores are free', () => {
    const { functions, submit } = openScheduler({ cores: 2 })
    const jobs = jobsOf(5)
    submit(jobs)
    expect(uids(functions.begun)).toBe('0 1')
    functions.end(jobs[1] ?? jobOf('x'))
    expect(uids(functions.begun)).toBe('0 1 2')
    functions.end(jobs[0] ?? jobOf('x'))
    functions.end(jobs[2] ?? jobOf('x'))
    expect(uids(functions.begun)).toBe('0 1 2 3 4')
  })

  it('jobs that their client has withdrawn never begin, and are not reported', async () => {
    const { functions, scheduler, listener, submit } = openScheduler({ cores: 2 })
    const jobs = jobsOf(5)
    submit(jobs)
    expect(uids(scheduler.withdraw(listener))).toBe('2 3 4')
    expect(scheduler.withdraw(listener)).toEqual([])
    for (const job of jobs.slice(0, 2)) functions.end(job)
    await scheduler.waitUntilDrained(listener)
    expect(uids(functions.begun)).toBe('0 1')
    // It may come again.
    submit(jobs.slice(2))
    expect(uids(functions.begun)).toBe('0 1 2 3')
  })

  it('jobs begin by priority, also between programs and functions', () => {
    const { functions, programs, submit } = openScheduler({ cores: 1 })
    const first = jobOf('first')
    submit([first])
    submit([jobOf('low', { priority: -1 }), jobOf('plain'), jobOf('high', { priority: 9 })])
    submit([jobOf('urgent', { priority: 10 })], 'programs')
    const order: string[] = []
    for (let at = 0; at < 5; at++) {
      const [job = first] = [...functions.running, ...programs.running]
      order.push(job.uid)
      functions.end(job)
      programs.end(job)
    }
    expect(order).toEqual(['first', 'urgent', 'high', 'plain', 'low'])
  })

  it('jobs begin with retries, then come new jobs of the same priority', () => {
    const { functions, programs, submit } = openScheduler({ cores: 1 })
    const first = jobOf('first')
    submit([first])
    submit([jobOf('new'), jobOf('high', { priority: 1 })])
    submit([{ ...jobOf('retry'), attempt: 2, isRetry: true }], 'programs')
    submit([{ ...jobOf('second retry'), attempt: 3, isRetry: true }])
    const order: string[] = []
    for (let at = 0; at < 5; at++) {
      const [job = first] = [...functions.running, ...programs.running]
      order.push(job.uid)
      functions.end(job)
      programs.end(job)
    }
    expect(order).toEqual(['first', 'high', 'retry', 'second retry', 'new'])
  })

  it('a large request is not starved by small ones', () => {
    const { functions, submit } = openScheduler({ cores: 4 })
    const small = jobsOf(4)
    submit(small)
    const large = ask('large', { cores: 4 })
    submit([large, ...jobsOf(10)])
    for (const job of small.slice(0, 3)) functions.end(job)
    // Three cores are free, and ten small jobs would fit.
    expect(functions.begun).toHaveLength(4)
    functions.end(small[3] ?? large)
    expect(functions.running).toEqual([large])
    functions.end(large)
    expect(functions.running).toHaveLength(4)
  })

  it('closures, which need no cores, begin before a request that waits for cores', () => {
    const { functions, closures, submit } = openScheduler({ cores: 2 })
    submit([jobOf('running'), ask('large', { cores: 2 })])
    submit([jobOf('closure')], 'closures')
    expect(uids(functions.begun)).toBe('running')
    expect(uids(closures.begun)).toBe('closure')
    submit([ask('greedy closure', { cores: 2 })], 'closures')
    expect(uids(closures.begun)).toBe('closure')
  })

  it('an executor without a free slot does not hold up the others', () => {
    const { functions, programs, submit } = openScheduler({ cores: 4 })
    functions.max = 1
    submit([jobOf('a'), jobOf('b')])
    submit([jobOf('p')], 'programs')
    expect([uids(functions.begun), uids(programs.begun)]).toEqual(['a', 'p'])
  })

  it('jobs of other kinds pass one whose worker is replaced, unless of lower priority', () => {
    const { scheduler, functions, programs, submit } = openScheduler({ cores: 2 })
    functions.max = 0
    functions.canPrepare = true
    const [f, p, q, low] = [jobOf('f'), jobOf('p'), jobOf('q'), jobOf('low', { priority: -1 })]
    submit([f, jobOf('g')])
    submit([p, q, low], 'programs')
    // Two could begin for their cores, when one was submitted and when both were.
    expect(functions.prepared).toEqual([2])
    expect([uids(functions.begun), uids(programs.begun)]).toEqual(['', 'p q'])
    programs.end(p)
    expect(uids(programs.begun)).toBe('p q')
    functions.isPreparing = false
    functions.max = 1
    scheduler.requeue([])
    expect([uids(functions.begun), uids(programs.begun)]).toEqual(['f', 'p q'])
    programs.end(q)
    expect(uids(programs.begun)).toBe('p q low')
  })

  it('no slot is prepared for what no resources are free for', () => {
    const { functions, programs, submit } = openScheduler({ cores: 2 })
    const [p, q] = [jobOf('p'), ask('q', { cores: 2 })]
    submit([p], 'programs')
    functions.max = 0
    functions.canPrepare = true
    submit([q])
    expect(functions.prepared).toEqual([])
    programs.end(p)
    expect(functions.prepared).toEqual([1])
  })

  it('the scheduler assigns batches as large as the executor wants, of one kind of request', () => {
    const { functions, submit } = openScheduler({ cores: 1 })
    functions.size = 3
    submit([...jobsOf(4), ask('big', { memoryMb: 5 }), jobOf('after')])
    const sizes: number[] = []
    while (functions.runningBatches.length > 0) {
      for (const { jobs } of functions.runningBatches) {
        sizes.push(jobs.length)
        for (const job of jobs) functions.end(job)
      }
    }
    expect(sizes).toEqual([3, 1, 1, 1])
    expect(uids(functions.begun)).toBe('0 1 2 3 big after')
  })

  it('copies of jobs share batches, and copies of closures hold no core, like originals', () => {
    const { functions, closures, submit } = openScheduler({ cores: 1 })
    functions.size = 3
    submit(structuredClone(jobsOf(4)))
    submit(structuredClone(jobsOf(2)), 'closures')
    expect(functions.batches.map(({ jobs }) => jobs.length)).toEqual([3])
    expect(uids(closures.begun)).toBe('0 1')
  })

  it('a copy can be canceled by the object that was submitted, while it waits and runs', () => {
    const { scheduler, functions, listener, submit } = openScheduler({ cores: 1 })
    const [running, waiting] = structuredClone(jobsOf(2)) as [Job, Job]
    submit([running, waiting])
    scheduler.cancel({ ...waiting }, 'another object')
    expect(listener.jobs).toEqual([])
    scheduler.cancel(waiting, 'asked')
    scheduler.cancel(running, 'asked')
    expect(functions.begun).toEqual([running])
    expect(listener.jobs).toEqual([waiting, running])
  })

  it('an executor that asks for a batch size of 0 gets batches of one', () => {
    const { functions, submit } = openScheduler({ cores: 2 })
    functions.size = 0
    submit(jobsOf(3))
    expect(uids(functions.begun)).toBe('0 1')
  })
})

describe('jobs that are given back', () => {
  it('jobs that are given back keep their order, whichever worker gave them back first', () => {
    const { functions, submit } = openScheduler({ cores: 2 })
    functions.size = 2
    const jobs = jobsOf(6)
    submit(jobs)
    expect(functions.batches.map((batch) => uids(batch.jobs))).toEqual(['0 1', '2 3'])
    functions.max = 0
    functions.giveBack(...jobs.slice(2, 4))
    functions.giveBack(...jobs.slice(0, 2))
    functions.max = 2
    functions.size = 1
    submit([jobOf('last')])
    const order = functions.begun.length
    while (functions.running.length > 0) functions.end(functions.running[0] ?? jobOf('x'))
    expect(uids(functions.begun.slice(order - 2))).toBe('0 1 2 3 4 5 last')
  })

  it('jobs that are given back do not come back once they were canceled', () => {
    const { functions, listener, submit } = openScheduler({ cores: 1 })
    functions.size = 3
    const jobs = jobsOf(3)
    submit(jobs)
    const [first = jobOf('x')] = jobs
    functions.report(first, { kind: 'cancel', reason: 'gone' })
    functions.giveBack(...jobs)
    expect(functions.running.map(({ uid }) => uid)).toEqual(['1', '2'])
    for (const job of functions.running) functions.end(job)
    expect(jobs.map((job) => listener.kindsOf(job).join())).toEqual([
      'cancel',
      'complete',
      'complete',
    ])
  })

  it('jobs that are given back are canceled when the scheduler is closed', () => {
    const { scheduler, functions, listener, submit } = openScheduler({ cores: 1 })
    const jobs = jobsOf(3)
    submit(jobs)
    scheduler.close('backend closed')
    const [running = jobOf('x')] = jobs
    expect(jobs.map((job) => listener.kindsOf(job).join())).toEqual(['', 'cancel', 'cancel'])
    functions.giveBack(running)
    expect(listener.of(running)).toEqual([{ kind: 'cancel', reason: 'backend closed' }])
    expect(functions.begun).toEqual([running])
  })
})

describe('canceling', () => {
  it('a waiting job reports it at once and never begins it', () => {
    const { scheduler, functions, listener, submit } = openScheduler({ cores: 1 })
    const [running, waiting, next] = [jobOf('a'), jobOf('b'), jobOf('c')]
    submit([running, waiting, next])
    scheduler.cancel(waiting, 'not needed')
    scheduler.cancel(waiting, 'again')
    expect(listener.of(waiting)).toEqual([{ kind: 'cancel', reason: 'not needed' }])
    functions.end(running)
    expect(uids(functions.begun)).toBe('a c')
  })

  it('a running job is left to its executor', () => {
    const { scheduler, listener, submit } = openScheduler()
    const job = jobOf('a')
    submit([job])
    scheduler.cancel(job, 'enough')
    scheduler.cancel(job, 'enough')
    expect(listener.kindsOf(job)).toEqual(['cancel'])
  })

  it('a request that blocked others no longer does', () => {
    const { scheduler, functions, submit } = openScheduler({ cores: 2 })
    const large = ask('large', { cores: 2 })
    submit([jobOf('a'), large, jobOf('b')])
    expect(uids(functions.begun)).toBe('a')
    scheduler.cancel(large, 'too large')
    expect(uids(functions.begun)).toBe('a b')
  })

  it("cancelAll of one session starts none of its jobs and cancels no other's", async () => {
    const { scheduler, functions, listener, submit } = openScheduler({ cores: 2 })
    const other = new RecordingListener()
    const [mine, theirs] = [jobsOf(5), jobsOf(2)]
    submit(mine)
    submit(theirs, 'functions', other)
    let isDrained = false
    const drained = scheduler.waitUntilDrained(listener).then(() => (isDrained = true))
    scheduler.cancelAll(listener, 'released')
    expect(functions.begun).toEqual([...mine.slice(0, 2), ...theirs])
    for (const job of mine)
      expect(listener.of(job)).toEqual([{ kind: 'cancel', reason: 'released' }])
    await drained
    expect([isDrained, other.jobs]).toEqual([true, []])
    for (const job of theirs) functions.end(job)
    await scheduler.waitUntilDrained(other)
    expect(other.jobs).toEqual(theirs)
  })

  it('the scheduler ignores late and repeated reports, and does not count them', async () => {
    const { scheduler, functions, listener, submit } = openScheduler()
    const [one, two] = [jobOf('1'), jobOf('2')]
    submit([one, two])
    functions.end(one)
    functions.report(one, { kind: 'complete', value: 'late' })
    functions.report(one, { kind: 'start', workerId: 'w', nodeId: 'n' })
    expect(listener.kindsOf(one)).toEqual(['complete'])
    let isDrained = false
    const drained = scheduler.waitUntilDrained(listener).then(() => (isDrained = true))
    await Promise.resolve()
    expect(isDrained).toBe(false)
    functions.end(two)
    await drained
  })
})

const request = fc.record({
  kind: fc.constantFrom<ExecutorKind>('functions', 'programs', 'closures'),
  priority: fc.integer({ min: -1, max: 1 }),
  resources: fc.record({
    cores: fc.integer({ min: 1, max: 4 }),
    gpus: fc.integer({ min: 0, max: 3 }),
    memoryMb: fc.integer({ min: 0, max: 100 }),
  }),
  isPlain: fc.boolean(),
})
const action = fc.record({
  do: fc.constantFrom('end', 'end', 'end', 'cancel', 'giveBack', 'fail'),
  at: fc.nat(100),
})

it('resources are never oversubscribed, GPUs never shared, and every job ends once', () => {
  const capacity = { cores: 4, memoryMb: 100, gpuIds: [0, 1, 2] }
  assertProperty(
    fc.property(
      fc.array(request, { minLength: 1, maxLength: 40 }),
      fc.array(action, { maxLength: 80 }),
      fc.integer({ min: 1, max: 4 }),
      (requests, actions, size) => {
        const { scheduler, functions, programs, closures, listener } = openScheduler(capacity)
        const executors = [functions, programs, closures]
        for (const executor of executors) executor.size = size
        const kindOf = new Map<Job, ExecutorKind>()
        const jobs = requests.map(({ kind, priority, resources, isPlain }, at) => {
          const job = jobOf(String(at), isPlain ? { priority } : { priority, resources })
          kindOf.set(job, kind)
          return job
        })
        const check = (): void => {
          const used = { cores: 0, memoryMb: 0, gpus: [] as (number | string)[] }
          for (const executor of executors) {
            for (const { jobs: inBatch, gpuIds } of executor.runningBatches) {
              const [{ spec } = jobOf('x')] = inBatch
              const isFree = executor === closures && spec.resources.cores === 1 && !gpuIds.length
              used.cores += isFree ? 0 : spec.resources.cores
              used.memoryMb += spec.resources.memoryMb
              used.gpus.push(...gpuIds)
              expect(gpuIds).toHaveLength(spec.resources.gpus)
            }
          }
          expect(used.memoryMb).toBeLessThanOrEqual(100)
          expect(used.cores).toBeLessThanOrEqual(4)
          expect(new Set(used.gpus).size).toBe(used.gpus.length)
        }
        const half = Math.ceil(jobs.length / 2)
        const submit = (some: readonly Job[]): void =>
          scheduler.submit(some, (job) => kindOf.get(job) ?? 'functions', {
            listener,
            session: new FakeSession(),
          })
        submit(jobs.slice(0, half))
        check()
        for (const [at, one] of actions.entries()) {
          if (at === 5) submit(jobs.slice(half))
          const running = executors.flatMap((executor) => executor.running)
          const target = running[one.at % Math.max(1, running.length)]
          const any = jobs[one.at % jobs.length]
          if (one.do === 'cancel' && any !== undefined) scheduler.cancel(any, 'asked')
          for (const executor of executors) {
            if (target === undefined) continue
            if (one.do === 'giveBack') executor.giveBack(target)
            else if (one.do === 'fail') executor.end(target, { kind: 'fail', error: 'no' })
            else if (one.do === 'end') executor.end(target)
          }
          check()
        }
        if (actions.length <= 5) submit(jobs.slice(half))
        for (;;) {
          const running = executors.flatMap((executor) => executor.running)
          if (running.length === 0) break
          for (const job of running) for (const executor of executors) executor.end(job)
          check()
        }
        for (const job of jobs) expect(listener.kindsOf(job)).toHaveLength(1)
      },
    ),
    { numRuns: 200 },
  )
})

it('the scheduler keeps up with many jobs', () => {
  const { functions, submit } = openScheduler({ cores: 4 })
  functions.size = 64
  const jobs = jobsOf(50_000)
  for (let from = 0; from < jobs.length; from += 1000) submit(jobs.slice(from, from + 1000))
  while (functions.running.length > 0) for (const job of functions.running) functions.end(job)
  expect(functions.begun).toEqual(jobs)
})

import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { Job } from '../../../src/backends/backend.ts'
import { JobQueue, type WaitingJob } from '../../../src/backends/local/job-queue.ts'
import { jobOf, jobsOf, uids } from './fake-executor.ts'
import { assertProperty } from '../../property.ts'

type Waiting = Job & WaitingJob

function drain(queue: JobQueue<Waiting>): Waiting[] {
  const jobs: Waiting[] = []
  for (let next = queue.pop(); next !== undefined; next = queue.pop()) jobs.push(next)
  return jobs
}

const waitingJobs = (jobs: readonly Job[]): Waiting[] =>
  jobs.map((job, sequence) => ({ ...job, sequence, isRetry: false }))

const filled = (jobs: readonly Waiting[]): JobQueue<Waiting> => {
  const queue = new JobQueue<Waiting>()
  for (const job of jobs) queue.push(job)
  return queue
}

describe('a queue of jobs', () => {
  it('a job queue gives the highest priority first, and the oldest job of each', () => {
    const priorities = [0, 5, -1, 5, 0.5, 0, -1]
    const queue = filled(
      waitingJobs(priorities.map((priority, at) => jobOf(String(at), { priority }))),
    )
    expect([queue.length, queue.peek()?.uid]).toEqual([7, '1'])
    expect(uids(drain(queue))).toBe('1 3 4 0 5 2 6')
    expect([queue.length, queue.peek(), queue.pop()]).toEqual([0, undefined, undefined])
  })

  it('a job queue gives retries before new jobs of their priority, the oldest first', () => {
    const queue = new JobQueue<Waiting>()
    const add = (uid: string, sequence: number, priority: number, isRetry: boolean): void =>
      queue.push({ ...jobOf(uid, { priority }), sequence, isRetry })
    add('new', 1, 0, false)
    add('high', 2, 1, false)
    add('retry', 3, 0, true)
    add('low retry', 4, -1, true)
    add('second retry', 5, 0, true)
    expect(drain(queue).map(({ uid }) => uid)).toEqual([
      'high',
      'retry',
      'second retry',
      'new',
      'low retry',
    ])
  })

  it('a job queue knows the lowest priority of its waiting jobs', () => {
    const priorities = [0, 5, -1, 5, -1]
    const jobs = waitingJobs(priorities.map((priority, at) => jobOf(String(at), { priority })))
    const queue = filled(jobs)
    const lowest = [queue.lowestPriority]
    for (const at of [2, 4, 0, 3]) {
      queue.remove(jobs[at] as Waiting)
      lowest.push(queue.lowestPriority)
    }
    queue.pop()
    expect([...lowest, queue.lowestPriority]).toEqual([-1, -1, 0, 5, 5, null])
  })

  it('a job queue forgets a removed job, wherever it waits', () => {
    const jobs = waitingJobs(jobsOf(6))
    const queue = filled(jobs)
    for (const at of [0, 3, 5]) queue.remove(jobs[at] as Waiting)
    expect(queue.length).toBe(3)
    expect(uids(drain(queue))).toBe('1 2 4')
    expect(queue.length).toBe(0)
  })

  it('a job queue keeps a job that was removed and added again, whatever else is removed', () => {
    const jobs = waitingJobs(jobsOf(2000))
    const queue = filled(jobs)
    for (const [at, job] of jobs.entries()) {
      queue.remove(job)
      if (at % 2 === 0) queue.push(job)
      else queue.requeue([job])
    }
    expect(queue.length).toBe(2000)
    expect(uids(drain(queue))).toBe(uids(jobs))
  })

  it('a job queue restores the old order, also when two jobs return in the wrong one', () => {
    const jobs = waitingJobs(jobsOf(6))
    const queue = filled(jobs)
    const taken = [queue.pop(), queue.pop(), queue.pop(), queue.pop()].filter(
      (one) => one !== undefined,
    )
    queue.requeue(taken.slice(0, 2))
    queue.requeue(taken.slice(2).toReversed())
    expect(queue.length).toBe(6)
    expect(uids(drain(queue))).toBe('0 1 2 3 4 5')
    queue.requeue(taken)
    queue.push({ ...jobOf('later'), sequence: 99, isRetry: false })
    expect(uids(drain(queue))).toBe('0 1 2 3 later')
  })

  it('a job queue behaves like a sorted list after any sequence of calls', () => {
    const operation = fc.oneof(
      fc.record({
        do: fc.constant('push' as const),
        priority: fc.integer({ min: -2, max: 2 }),
        isRetry: fc.boolean(),
      }),
      fc.record({ do: fc.constantFrom('take', 'remove', 'back'), at: fc.nat(30) }),
    )
    assertProperty(
      fc.property(fc.array(operation, { maxLength: 80 }), (operations) => {
        const queue = new JobQueue<Waiting>()
        let model: Waiting[] = []
        const taken: Waiting[] = []
        for (const [sequence, one] of operations.entries()) {
          if ('priority' in one) {
            const { priority, isRetry } = one
            const waiting = { ...jobOf(String(sequence), { priority }), sequence, isRetry }
            queue.push(waiting)
            model.push(waiting)
          } else if (one.do === 'take') {
            const next = model.shift()
            expect(queue.pop()).toEqual(next)
            if (next !== undefined) taken.push(next)
          } else if (one.do === 'remove') {
            const [gone] = model.splice(one.at % Math.max(1, model.length), 1)
            if (gone !== undefined) queue.remove(gone)
          } else {
            const back = taken.splice(one.at % (taken.length + 1))
            queue.requeue(back)
            model.push(...back)
          }
          model = model.toSorted(
            (a, b) =>
              b.spec.priority - a.spec.priority ||
              Number(b.isRetry) - Number(a.isRetry) ||
              a.sequence - b.sequence,
          )
          expect(queue.length).toBe(model.length)
          expect(queue.peek()).toEqual(model[0])
        }
        expect(drain(queue)).toEqual(model)
      }),
      { numRuns: 300 },
    )
  })

  it('a job queue removes from a long queue without searching it', () => {
    const jobs = waitingJobs(jobsOf(100_000))
    const queue = filled(jobs)
    // Quadratic work would take minutes here.
    for (const job of jobs.toReversed().slice(0, 99_990)) queue.remove(job)
    expect(queue.length).toBe(10)
    expect(uids(drain(queue))).toBe('0 1 2 3 4 5 6 7 8 9')
  })

  it('a job queue takes from as many priorities as jobs without searching them', () => {
    const jobs = Array.from({ length: 50_000 }, (_, at) =>
      jobOf(String(at), { priority: (at * 7919) % 50_000 }),
    )
    const taken = drain(filled(waitingJobs(jobs))).map(({ spec }) => spec.priority)
    expect(taken).toEqual(taken.toSorted((a, b) => b - a))
  })
})

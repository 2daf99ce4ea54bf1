import { describe, expect, it } from 'vitest'
import type { Job } from '../../../src/backends/backend.ts'
import type { Batch } from '../../../src/backends/local/executor.ts'
import { InProcessExecutor } from '../../../src/backends/local/in-process-executor.ts'
import { LoopBlocked } from '../../../src/events/library-events.ts'
import { currentTask } from '../../../src/foundation/task-context.ts'
import { ComputeTask, type FunctionOptions } from '../../../src/tasks/compute-task.ts'
import { FakeSession } from '../../../src/testing/fake-backend.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { RecordingListener } from '../../../src/testing/recorders.ts'

class BatchListener extends RecordingListener {
  readonly finished: Batch[] = []
  readonly dropped: Job[] = []
  readonly givenBack: Job[] = []

  requeue(jobs: readonly Job[]): void {
    this.givenBack.push(...jobs)
  }

  resultDropped(job: Job): void {
    this.dropped.push(job)
  }

  finish(batch: Batch): void {
    this.finished.push(batch)
  }
}

/** Code that holds the loop moves the time without firing timers. */
class HeldClock extends ManualClock {
  heldMs = 0

  override monotonicMs(): number {
    return super.monotonicMs() + this.heldMs
  }
}

function openExecutor() {
  const [clock, listener] = [new HeldClock(), new BatchListener()]
  const session = new FakeSession()
  const closureOf = (job: Job) => session.closureOf(job)
  const ids = { nodeId: 'n', idPrefix: 'n' }
  const warnings: string[] = []
  const log = { warn: (code: string, text: string) => void warnings.push(`${code}: ${text}`) }
  const executor = new InProcessExecutor({ ...ids, clock, log, listener, closureOf })
  const begin = (options: FunctionOptions<unknown, readonly unknown[]>): Job => {
    const job = session.createJob(new ComputeTask(options))
    executor.assign({ jobs: [job], gpuIds: [] })
    return job
  }
  return { clock, listener, executor, begin, warnings }
}

const never = (): Promise<never> => new Promise(() => {})

describe('closures', () => {
  it('closures run with their arguments, inside their task, and give their value', async () => {
    const { listener, begin } = openExecutor()
    const job = begin({
      function: async (...args: readonly unknown[]) => [currentTask()?.uid, ...args],
      args: [1, 'b'],
    })
    expect(listener.of(job)).toEqual([])
    await listener.ended([job])
    expect(listener.of(job)).toEqual([
      { kind: 'start', workerId: 'n/main', nodeId: 'n' },
      { kind: 'complete', value: [job.uid, 1, 'b'] },
    ])
    expect(listener.finished.map(({ jobs }) => jobs)).toEqual([[job]])
    expect(currentTask()).toBeUndefined()
  })

  it.each([[new RangeError('no')], [null], ['text']])(
    'closures fail with the value that they throw: %s',
    async (what) => {
      const { listener, begin } = openExecutor()
      const jobs = [
        begin({
          function: () => {
            throw what
          },
        }),
        begin({ function: () => Promise.reject(what) }),
      ]
      await listener.ended(jobs)
      const report = { kind: 'fail', error: what, isThrown: true }
      for (const job of jobs) expect(listener.of(job).at(-1)).toEqual(report)
    },
  )

  it('closures fail when they exceed their time limit, and are then abandoned', async () => {
    const { clock, listener, begin } = openExecutor()
    const late = Promise.withResolvers<string>()
    const job = begin({ function: () => late.promise, timeoutSeconds: 2 })
    await listener.started(job)
    await clock.advance(1999)
    expect(listener.hasEnded(job)).toBe(false)
    await clock.advance(1)
    expect(listener.of(job).at(-1)).toMatchObject({
      kind: 'fail',
      error: { name: 'TimeoutError', message: `task ${job.uid} ran longer than 2 s` },
    })
    late.resolve('too late')
    await clock.advance(1)
    expect([listener.of(job).length, listener.finished.length]).toEqual([2, 1])
    expect(listener.dropped).toEqual([job])
  })

  it('LoopBlocked: a closure that held the loop beyond its limit is named once', async () => {
    const { clock, listener, begin, warnings } = openExecutor()
    const burn = (): string => {
      clock.heldMs += 3000
      return 'burnt'
    }
    const burnLater = async (): Promise<string> => {
      await Promise.resolve()
      return burn()
    }
    const calls = [burn, burn, burnLater].map((body) =>
      begin({ function: body, timeoutSeconds: 1 }),
    )
    const within = begin({ function: burn, timeoutSeconds: 4 })
    const unlimited = begin({ function: burn })
    await listener.ended([...calls, within, unlimited])
    for (const job of [...calls, within, unlimited]) {
      expect(listener.of(job).at(-1)).toMatchObject({ kind: 'complete', value: 'burnt' })
    }
    const hint = expect.stringContaining('defineTask') as string
    const fields = { seconds: 3, timeout_seconds: 1, hint }
    expect(listener.notices).toMatchObject([
      { taskId: calls[0]?.uid, type: LoopBlocked, fields: { ...fields, executable: 'burn' } },
      { taskId: calls[2]?.uid, fields: { ...fields, executable: 'burnLater' } },
    ])
    expect(warnings).toHaveLength(2)
    expect(warnings[0]).toContain(`LoopBlocked: burn (task ${calls[0]?.uid}) held the event loop`)
  })

  it('LoopBlocked: a closure that waits is not named for another that holds the loop', async () => {
    const { clock, listener, begin } = openExecutor()
    const waited = Promise.withResolvers<string>()
    const patient = begin({ function: () => waited.promise, timeoutSeconds: 1 })
    await listener.started(patient)
    const burning = begin({
      function: function burn(): void {
        clock.heldMs += 5000
        waited.resolve('in time')
      },
      timeoutSeconds: 2,
    })
    await listener.ended([patient, burning])
    expect(listener.notices).toMatchObject([
      { taskId: burning.uid, fields: { executable: 'burn' } },
    ])
  })

  it('closures leave no timer behind', async () => {
    const { clock, listener, begin } = openExecutor()
    const job = begin({ function: () => 1, timeoutSeconds: 2 })
    await listener.ended([job])
    expect(clock.pendingTimers).toBe(0)
  })

  it('closures begin in the turn that assigns them, after the assigning code', async () => {
    const { listener, begin } = openExecutor()
    let turns = 0
    setImmediate(() => turns++)
    const job = begin({ function: () => turns })
    expect(listener.of(job)).toEqual([])
    for (let at = 0; at < 10; at++) await Promise.resolve()
    expect(listener.of(job).at(-1)).toEqual({ kind: 'complete', value: 0 })
  })

  it('closures do not block the event loop, however many there are', async () => {
    const { listener, begin } = openExecutor()
    let turns = 0
    const count = (): void => void (turns++, isOpen && setImmediate(count))
    let isOpen = true
    setImmediate(count)
    const seen: unknown[] = []
    const all = Promise.withResolvers<void>()
    const next = (): void => {
      seen.push(turns)
      if (seen.length < 3000) begin({ function: next })
      else all.resolve()
    }
    begin({ function: next })
    await all.promise
    isOpen = false
    expect(new Set(seen.slice(0, 1000))).toEqual(new Set([0]))
    expect([seen[1000], seen[2000]]).not.toContain(0)
    expect(turns).toBeGreaterThanOrEqual(2)
    expect(listener.givenBack).toEqual([])
  })

  it('closures that take long are spread over turns of the event loop', async () => {
    const { clock, listener, begin } = openExecutor()
    let turns = 0
    setImmediate(() => turns++)
    const jobs = [1, 2, 3].map(() =>
      begin({
        function: () => {
          void clock.advance(8)
          return turns
        },
      }),
    )
    await listener.ended(jobs)
    const values = jobs.map((job) => listener.of(job).at(-1))
    expect(values).toMatchObject([{ value: 0 }, { value: 0 }, { value: 1 }])
  })

  it('closures never begin when they are canceled before their turn', async () => {
    const { clock, listener, executor, begin } = openExecutor()
    let ran = 0
    const [gone, kept] = [begin({ function: () => ran++ }), begin({ function: () => ran++ })]
    executor.cancel(gone, 'not needed')
    executor.cancel(gone, 'again')
    await listener.ended([gone, kept])
    await clock.advance(1)
    expect(listener.of(gone)).toMatchObject([{ kind: 'cancel', reason: 'not needed' }])
    expect([ran, listener.finished.length]).toEqual([1, 2])
  })

  it('closures do not run when the listener cancels them at their start', async () => {
    const { clock, listener, executor, begin } = openExecutor()
    let ran = 0
    const job = begin({ function: () => ran++ })
    const report = listener.report.bind(listener)
    listener.report = (which, what) => {
      report(which, what)
      if (what.kind === 'start') executor.cancel(which, 'no')
    }
    await listener.ended([job])
    await clock.advance(1)
    expect([listener.kindsOf(job), ran]).toEqual([['start', 'cancel'], 0])
  })

  it('closures are all canceled by close(), and use slots while they run', async () => {
    const { listener, executor, begin } = openExecutor()
    const before = executor.freeSlots
    const jobs = Array.from({ length: 10 }, () => begin({ function: never }))
    expect(before - executor.freeSlots).toBe(10)
    await listener.started(jobs[9] ?? begin({ function: never }))
    await executor.close('backend closed')
    for (const job of jobs) expect(listener.kindsOf(job)).toEqual(['start', 'cancel'])
    expect([executor.freeSlots, listener.finished.length]).toEqual([before, 10])
  })
})

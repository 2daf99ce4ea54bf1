import { describe, expect, it } from 'vitest'
import { hasEnded } from '../../src/tasks/lifecycle.ts'
import { ConcurrentBackend } from '../../src/backends/local/concurrent-backend.ts'
import { defineEvent } from '../../src/events/define-event.ts'
import { makeEvent } from '../../src/events/make-event.ts'
import { TimeoutError } from '../../src/foundation/errors.ts'
import { currentTask } from '../../src/foundation/task-context.ts'
import { WorkflowEngine } from '../../src/workflow/workflow-engine.ts'
import type { Handle } from '../../src/workflow/task-function.ts'
import { square } from '../backends/local/fixtures/backend-tasks.ts'
import { rejection, turns, typesOf, untilPrimed } from '../session/open-session.ts'
import { openEngine, settled } from './open-engine.ts'

const openLocal = async (workers = 2): Promise<WorkflowEngine> =>
  WorkflowEngine.create({ backend: await ConcurrentBackend.create({ workers }) })

describe('a block', () => {
  it('block: it is a task of its own whose body makes and awaits tasks', async () => {
    await using flow = await openLocal()
    const telemetry = await flow.startTelemetry()
    const events: { uid: string | null; text: string }[] = []
    telemetry.subscribe(({ task_id: uid, event_type: type, backend }) => {
      events.push({ uid, text: `${type} ${backend}` })
    })
    const squareOf = flow.functionTask(square)
    const sum = flow.block(async function sumOfSquares(numbers: readonly number[]) {
      const squares = await Promise.all(numbers.map((n) => squareOf(n)))
      return squares.reduce((a, b) => a + b, 0)
    })
    const handle = sum([squareOf(2), 3])
    expect(await handle).toBe(25)
    await telemetry.flush()
    expect(handle.name).toBe('sumOfSquares')
    expect(events.filter(({ uid }) => uid === handle.uid).map(({ text }) => text)).toEqual([
      'TaskCreated ',
      'tutti.TaskResolved ',
      'TaskSubmitted workflow',
      'TaskQueued workflow',
      'TaskStarted workflow',
      'TaskCompleted workflow',
    ])
  })

  it('block: TaskCreated of what its body makes names the block', async () => {
    const { flow, eventsOf } = await openEngine({}, await ConcurrentBackend.create({ workers: 1 }))
    const squareOf = flow.functionTask(square)
    const made: Handle<number>[] = []
    const block = flow.block(async () => {
      made.push(squareOf(2))
      return await made[0]
    })()
    const beside = squareOf(3)
    await Promise.all([block, beside])
    const blockNamedBy = async (handle: { readonly uid: string } | undefined): Promise<unknown> => {
      const [created] = handle === undefined ? [] : await eventsOf(handle)
      return created?.attributes['tutti.block']
    }
    expect(await blockNamedBy(made[0])).toBe(block.uid)
    expect([await blockNamedBy(beside), await blockNamedBy(block)]).toEqual([undefined, undefined])
  })

  it('block: cancel() also cancels what was made inside, at any depth', async () => {
    const { flow, backend } = await openEngine()
    const f = flow.functionTask((_given: unknown) => 1, { name: 'f' })
    const made: Handle<unknown>[] = []
    const inner = flow.block(async () => {
      const own = [f(1), f(f(2))]
      made.push(...own)
      await Promise.all(own)
    })
    const outer = flow.block(async () => {
      made.push(inner(), f(3))
      await Promise.all(made)
    })
    const [block, beside] = [outer(), f(4)]
    await turns()
    expect(outer.name).toBe('anonymous')
    expect([block.state, made.length]).toEqual(['RUNNING', 4])
    expect(block.cancel('enough')).toBe(true)
    expect(block.state).toBe('CANCELED')
    for (const { job, reason } of backend.cancels) backend.report(job, { kind: 'cancel', reason })
    await turns()
    expect(made.map(({ state }) => state)).toEqual(Array(4).fill('CANCELED'))
    expect(beside.state).toBe('QUEUED')
  })

  it('block: what the body makes after the cancellation is canceled at once', async () => {
    const { flow, backend } = await openEngine()
    const f = flow.functionTask((_given: unknown) => 1)
    const { promise, resolve } = Promise.withResolvers<void>()
    const made: Handle<unknown>[] = []
    const block = flow.block(async () => {
      await promise
      made.push(f(1), f([2]))
    })()
    await turns()
    block.cancel()
    resolve()
    await turns()
    expect(made.map(({ state }) => state)).toEqual(['CANCELED', 'CANCELED'])
    expect(backend.jobs).toEqual([])
  })

  it('block: a failure cancels what is left running, a success does not', async () => {
    const { flow, backend } = await openEngine()
    const f = flow.functionTask((_given: unknown) => 1)
    const made: Handle<unknown>[] = []
    const bad = flow.block(async () => {
      made.push(f(1))
      throw new RangeError('no')
    })()
    const good = flow.block(async () => void made.push(f(2)))()
    expect(await rejection(bad)).toMatchObject({ cause: { message: 'no' } })
    await good
    await turns()
    expect(made.map(({ state }) => state)).toEqual(['QUEUED', 'QUEUED'])
    expect(backend.cancels.map(({ job }) => job.uid)).toEqual([made[0]?.uid])
  })

  it('block: 2,000 retries leave the event loop free', async () => {
    const { flow } = await openEngine()
    const failing = flow.block(
      () => {
        throw new Error('never')
      },
      { retries: 2000 },
    )()
    let passed = 0
    const count = (): void => {
      passed++
      if (!hasEnded(failing.state)) setImmediate(count)
    }
    setImmediate(count)
    await rejection(failing)
    expect(passed).toBeGreaterThan(4)
  })

  it('block: it is retried, and fails at its time limit', async () => {
    const { flow, clock, eventsOf } = await openEngine()
    let attempts = 0
    const flaky = flow.block(
      () => {
        attempts++
        if (attempts < 3) throw new Error('not yet')
        return attempts
      },
      { retries: 2 },
    )()
    expect(await flaky).toBe(3)
    await untilPrimed(clock)
    const timers = clock.pendingTimers
    const slow = flow.block(() => new Promise<never>(() => {}), { timeoutSeconds: 5 })()
    await turns()
    await clock.advance(5000)
    expect(await rejection(slow)).toMatchObject({ cause: expect.any(TimeoutError) })
    expect(typesOf(await eventsOf(slow)).at(-1)).toBe('TaskFailed')
    expect(clock.pendingTimers).toBe(timers)
  })
})

describe('an attempt at a block that timed out', () => {
  /** The first attempt waits for `late`, and is over by now; the second waits for its child. */
  async function openRetried(late: Promise<void>, onLate: () => void) {
    const opened = await openEngine()
    const { flow, clock } = opened
    const f = flow.functionTask((_given: unknown) => 1)
    const made: Handle<unknown>[] = []
    const block = flow.block(
      async () => {
        const mine = f(made.length)
        made.push(mine)
        if (made.length > 1) return await mine
        await late
        made.push(f('late'))
        return onLate()
      },
      { retries: 1, timeoutSeconds: 5 },
    )()
    await turns()
    await clock.advance(5000)
    await turns()
    return { ...opened, block, made }
  }

  it('block: a timed-out attempt cancels what it made before the next starts', async () => {
    const { backend, block, made } = await openRetried(new Promise(() => {}), () => {})
    expect([block.state, made.length]).toEqual(['RUNNING', 2])
    expect(backend.cancels.map(({ job }) => job.uid)).toEqual([made[0]?.uid])
  })

  it('block: the body of a timed-out attempt does not affect the next attempt', async () => {
    const { promise, resolve } = Promise.withResolvers<void>()
    const { backend, block, made } = await openRetried(promise, () => {
      throw new Error('late')
    })
    resolve()
    await turns()
    const [, second, late] = made
    expect([block.state, second?.state, late?.state]).toEqual(['RUNNING', 'QUEUED', 'CANCELED'])
    expect(backend.cancels).toHaveLength(1)
    if (second !== undefined) backend.complete(second, 'end')
    expect(await block).toBe('end')
  })

  it('block: currentTask() has the attempt, and tells progress and events', async () => {
    const Mark = defineEvent('test.Mark', { step: 'int' })
    const { flow, eventsOf } = await openEngine()
    const attempts: unknown[] = []
    const body = (): string => {
      const task = currentTask()
      attempts.push(task?.attempt)
      task?.emit(makeEvent(Mark, { session_id: '', backend: '', step: 3 }))
      task?.progress(0.5, 'half')
      if (attempts.length === 1) throw new Error('once')
      return 'done'
    }
    const handle = flow.block(body, { retries: 1 })()
    expect([await handle, attempts]).toEqual(['done', [1, 2]])
    const events = await eventsOf(handle)
    const told = events.filter(({ event_type: type }) => /Mark|Progress/.test(type))
    const both = [
      { event_type: 'test.Mark', step: 3, backend: 'workflow' },
      { event_type: 'tutti.TaskProgress', fraction: 0.5, text: 'half' },
    ]
    expect(told).toMatchObject([...both, ...both])
  })

  it('block: a body that is canceled has an aborted signal, and its result is late', async () => {
    const { flow, telemetry } = await openEngine()
    const { promise, resolve } = Promise.withResolvers<void>()
    let signal: AbortSignal | undefined
    const handle = flow.block(async () => {
      signal = currentTask()?.signal
      await promise
    })()
    await turns(2)
    expect([signal?.aborted, handle.cancel('enough')]).toEqual([false, true])
    await rejection(handle)
    expect([signal?.aborted, telemetry.summary().late_results]).toEqual([true, 0])
    resolve()
    await turns(2)
    expect(telemetry.summary().late_results).toBe(1)
  })

  it('block: a body whose time is over has an aborted signal', async () => {
    const { flow, clock } = await openEngine()
    let signal: AbortSignal | undefined
    const body = (): Promise<never> => {
      signal = currentTask()?.signal
      return new Promise(() => {})
    }
    const handle = flow.block(body, { timeoutSeconds: 5 })()
    await turns(2)
    await clock.advance(5000)
    await rejection(handle)
    expect(signal?.reason).toBeInstanceOf(TimeoutError)
  })
})

describe('tasks that await tasks', () => {
  it('nested tasks: 1,500 closures that wait for others do not deadlock', async () => {
    await using flow = await openLocal(1)
    const leaf = flow.functionTask(async (n: number) => n)
    const late = flow.functionTask(async (n: number) => n)
    const middle = flow.functionTask(async (n: number): Promise<number> => {
      return (await leaf(n)) + (await shared)
    })
    const all = Array.from({ length: 1500 }, (_, n) => middle(n))
    // It is behind all of them, and all of them wait for it.
    const shared = late(1)
    expect(await Promise.all(all)).toEqual(all.map((_, n) => n + 1))
  })

  it('nested tasks: closures that return a handle do not deadlock', async () => {
    await using flow = await openLocal(1)
    const leaf = flow.functionTask(async (n: number) => n)
    const middle = flow.functionTask((n: number) => leaf(n))
    const all = Array.from({ length: 1200 }, (_, n) => middle(n))
    expect(await Promise.all(all)).toEqual(all.map((_, n) => n))
  })

  it('nested tasks: a closure releases its cores while it waits', async () => {
    await using flow = await openLocal(1)
    const squareOf = flow.functionTask(square)
    const resources = { cores: 1 }
    const ask = flow.functionTask(async (n: number) => await squareOf(n), { resources })
    const values = await Promise.all(Array.from({ length: 64 }, (_, n) => ask(n)))
    expect(values).toEqual(values.map((_, n) => n * n))
  })

  it('nested tasks: a block can depend on tasks that were made outside', async () => {
    const { flow, backend } = await openEngine()
    const f = flow.functionTask((_given: unknown) => 1)
    const outside = f(0)
    const block = flow.block(async () => await f([outside, f(1)]))()
    await turns()
    for (const job of backend.jobs.slice()) backend.complete(job, 1)
    await settled()
    const last = backend.jobs.at(-1)
    if (last !== undefined) backend.complete(last, 'end')
    expect(await block).toBe('end')
    expect(backend.jobs).toHaveLength(3)
  })
})
